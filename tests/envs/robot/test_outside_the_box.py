"""An arm overshoots: from a little outside of the workspace box, commands still lead into it within a step."""

import numpy as np

from rewardlab.envs.robot.limits import Limits
from rewardlab.envs.robot.protocol import RobotState

LIMITS = Limits(np.full(3, -0.1), np.full(3, 0.1), 0.02, np.array([1.0, 0, 0, 0]), 0.3, 0.1)


def state_at(position: object) -> RobotState:
    pose = np.concatenate((np.asarray(position, float), [1, 0, 0, 0]))
    return RobotState(pose, np.zeros(6), np.zeros(3), np.zeros(3), 0.0)


def command(position: object, motion: object) -> np.ndarray:
    state = state_at(position)
    found = LIMITS.command(state, np.concatenate((np.asarray(motion, float), np.zeros(3))))
    LIMITS.check_command(state, found)
    return found.pose[:3]


def test_from_inside_a_motion_is_shortened_to_a_step() -> None:
    np.testing.assert_allclose(command([0, 0, 0], [0.03, 0.04, 0]), [0.012, 0.016, 0])


def test_from_outside_the_way_back_and_the_motion_are_a_step_together() -> None:
    # 1.2 cm outside in x, so that 1.6 cm are left upwards: 0.012² + 0.016² = 0.02².
    np.testing.assert_allclose(command([0.112, 0, 0], [0, 0, 0.05]), [0.1, 0, 0.016])


def test_from_anywhere_within_a_step_of_the_box_there_is_a_command() -> None:
    rng = np.random.default_rng(0)
    positions = rng.uniform(-0.111, 0.111, (5_000, 3))
    for position, size in zip(positions, rng.choice([0.001, 0.02, 1.0], 5_000), strict=True):
        command(position, size * rng.standard_normal(3))
