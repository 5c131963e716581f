"""Commands stay within the limits; the numbers are worked out by hand."""

from typing import Any

import numpy as np
import pytest

from rewardlab.envs.robot.limits import ActionScale, Limits, read_action
from rewardlab.envs.robot.poses import pose_of_angles, turn_between, turned
from rewardlab.envs.robot.protocol import Command, Floats, RobotError, RobotState

UPRIGHT = np.array([0.0, 0.0, 0.0, 1.0])
LIMITS = Limits(np.array([0.4, -0.1, 0.0]), np.array([0.6, 0.1, 0.2]), 0.02, UPRIGHT, 0.3, 0.1)
NO_TURN = np.zeros(3)


def state(position: Any, rotation: Floats = UPRIGHT, gripper: float = 0.0) -> RobotState:
    pose = np.concatenate((np.asarray(position, np.float64), rotation))
    return RobotState(pose, np.zeros(6), np.zeros(3), np.zeros(3), gripper)


def motion(position: Any = NO_TURN, turn: Any = NO_TURN) -> Floats:
    return np.concatenate((np.asarray(position, np.float64), np.asarray(turn, np.float64)))


def test_a_short_motion_is_sent_as_it_is() -> None:
    command = LIMITS.command(state([0.5, 0.0, 0.1]), motion([0.01, -0.005, 0.002], [0, 0, 0.05]))
    np.testing.assert_allclose(command.pose[:3], [0.51, -0.005, 0.102], atol=1e-12)
    np.testing.assert_allclose(command.pose[3:], [0, 0, np.sin(0.025), np.cos(0.025)], atol=1e-12)


def test_a_long_motion_keeps_its_direction() -> None:
    command = LIMITS.command(state([0.5, 0.0, 0.1]), motion([0.06, 0.08, 0.0]))  # 0.1 m: 3-4-5
    np.testing.assert_allclose(command.pose[:3], [0.512, 0.016, 0.1], atol=1e-12)


def test_a_motion_ends_at_the_wall_of_the_box() -> None:
    command = LIMITS.command(state([0.595, 0.0, 0.1]), motion([0.02, 0.0, 0.0]))
    np.testing.assert_allclose(command.pose[:3], [0.6, 0.0, 0.1], atol=1e-12)


def test_from_outside_the_box_a_command_is_in_it_and_only_a_step_away() -> None:
    # 1.6 cm outside; to the wall and 1.2 cm along it is 2 cm: 1.6-1.2-2.0
    command = LIMITS.command(state([0.384, 0.0, 0.1]), motion([0.0, 0.02, 0.0]))
    np.testing.assert_allclose(command.pose[:3], [0.4, 0.012, 0.1], atol=1e-9)
    LIMITS.check_command(state([0.384, 0.0, 0.1]), command)


def test_a_robot_far_outside_of_the_box_gets_no_command() -> None:
    with pytest.raises(RobotError, match=r"3\.0 cm outside of its workspace box.*Move it there by hand"):
        LIMITS.command(state([0.37, 0.0, 0.1]), motion())


def test_a_turn_is_shortened_to_a_step() -> None:
    command = LIMITS.command(state([0.5, 0, 0.1]), motion(turn=[0, 2.0, 0]))
    np.testing.assert_allclose(turn_between(UPRIGHT, command.pose[3:]), [0, 0.1, 0], atol=1e-9)


def test_a_turn_ends_where_the_tool_is_turned_as_far_as_is_allowed() -> None:
    start = turned(UPRIGHT, np.array([0.25, 0, 0]))
    command = LIMITS.command(state([0.5, 0, 0.1], start), motion(turn=[0.1, 0, 0]))
    np.testing.assert_allclose(turn_between(UPRIGHT, command.pose[3:]), [0.3, 0, 0], atol=1e-9)


def test_a_tool_that_is_turned_too_far_gets_no_command() -> None:
    with pytest.raises(RobotError, match=r"turned 0\.45 rad"):
        LIMITS.command(state([0.5, 0, 0.1], turned(UPRIGHT, np.array([0.45, 0, 0]))), motion())


@pytest.mark.parametrize("sign", [1, -1])
def test_the_sign_of_a_quaternion_changes_no_command(sign: int) -> None:
    """A controller interpolates between quaternions: one with the other sign would send it the long way round."""
    down = pose_of_angles((0.5, 0, 0.1, -3.14, 0, 0))[3:]
    limits = Limits(LIMITS.low, LIMITS.high, 0.02, -sign * down, 0.3, 0.1)
    command = limits.command(state([0.5, 0, 0.1], sign * down), motion(turn=[0, 0, 0.1]))
    assert command.pose[3:] @ (sign * down) == pytest.approx(np.cos(0.05))


@pytest.mark.parametrize(
    ("position", "rotation", "words"),
    [
        ([0.61, 0, 0.1], UPRIGHT, "outside of the workspace box"),
        ([0.53, 0, 0.1], UPRIGHT, "more than a step away"),
        ([0.5, np.nan, 0.1], UPRIGHT, "finite numbers"),
        ([0.5, 0, 0.1], turned(UPRIGHT, np.array([0, 0, 0.2])), "more than a step"),
        ([0.5, 0, 0.1], turned(UPRIGHT, np.array([0, 0, 0.5])), "too far"),
    ],
)
def test_the_last_gate_refuses_what_is_not_within_the_limits(position: Any, rotation: Floats, words: str) -> None:
    command = Command(np.concatenate((position, rotation)))
    with pytest.raises(RobotError, match=words):
        LIMITS.check_command(
            state([0.5, 0, 0.1] if words != "outside of the workspace box" else [0.6, 0, 0.1]), command
        )


def test_random_states_and_motions_never_pass_the_limits() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3000):
        outside = rng.normal(size=3)
        outside *= rng.uniform(0, LIMITS.step) / np.linalg.norm(outside)
        here = np.clip(rng.uniform(LIMITS.low - 0.05, LIMITS.high + 0.05), LIMITS.low, LIMITS.high) + outside
        rotation = turned(UPRIGHT, rng.uniform(-1, 1, 3) * 0.4 / np.sqrt(3))
        where = state(here, rotation)
        command = LIMITS.command(where, rng.normal(size=6) * 10 ** rng.uniform(-4, 3))
        LIMITS.check_command(where, command)


def test_actions_are_shares_of_a_step() -> None:
    scale = ActionScale(("x", "z", "yaw", "gripper"), 0.02, 0.1)
    moved, gripper = scale.motion(np.array([0.5, -1.0, 0.25, 1.0]))
    np.testing.assert_allclose(moved, [0.01, 0, -0.02, 0, 0, 0.025])
    assert gripper == 1.0


def test_a_command_is_the_action_that_leads_to_it() -> None:
    scale = ActionScale(("x", "y", "z", "roll", "pitch", "yaw", "gripper"), 0.02, 0.1)
    where = state([0.5, 0.0, 0.1])
    action = np.array([0.3, -0.4, 0.5, 0.2, -0.6, 0.1, -0.5])
    command = LIMITS.command(where, *scale.motion(action))
    np.testing.assert_allclose(scale.action(where, command), action, atol=1e-9)


def test_what_the_box_took_away_is_not_in_the_executed_action() -> None:
    scale = ActionScale(("x", "y"), 0.02, 0.1)
    where = state([0.595, 0.0, 0.1])
    command = LIMITS.command(where, *scale.motion(np.array([1.0, 0.0])))
    np.testing.assert_allclose(scale.action(where, command), [0.25, 0.0], atol=1e-9)  # 5 mm of 2 cm


@pytest.mark.parametrize(
    "action",
    [
        *([np.nan, 0, 0], [np.inf, 0, 0], [0, 0], [[0, 0, 0]], 0.5, None, "abc", ["1", "0", "0"], {}),
        *(np.array([object()] * 3), np.zeros((3, 0)), np.array([1 + 1j, 0, 0]), [[0], [0, 0], 0]),
    ],
)
def test_an_action_that_is_none_is_refused(action: Any) -> None:
    with pytest.raises(RobotError, match="was not sent to the robot; expected 3 finite numbers"):
        read_action(action, 3)


def test_an_action_beyond_its_bounds_is_cut() -> None:
    np.testing.assert_array_equal(read_action([1e30, -7, 0.5], 3), [1, -1, 0.5])
