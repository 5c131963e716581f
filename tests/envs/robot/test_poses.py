"""Poses, quaternions and angles."""

import numpy as np
import pytest

from rewardlab.envs.robot.poses import angles_of, multiply, pose_of_angles, turn_between, turned
from rewardlab.envs.robot.protocol import RobotError, numbers, pose_numbers

HALF = np.sqrt(0.5)


def test_quaternions_of_quarter_turns() -> None:
    np.testing.assert_allclose(pose_of_angles((1, 2, 3, np.pi / 2, 0, 0)), [1, 2, 3, HALF, 0, 0, HALF], atol=1e-12)
    np.testing.assert_allclose(pose_of_angles((0, 0, 0, 0, 0, np.pi / 2))[3:], [0, 0, HALF, HALF], atol=1e-12)


def test_angles_turn_about_fixed_axes_x_first() -> None:
    """A quarter about x and then one about z: the tool's z axis, first along -y, ends along x."""
    rotation = pose_of_angles((0, 0, 0, np.pi / 2, 0, np.pi / 2))[3:]
    axis = multiply(multiply(rotation, np.array([0.0, 0, 1, 0])), rotation * [-1, -1, -1, 1])
    np.testing.assert_allclose(axis[:3], [1, 0, 0], atol=1e-12)


@pytest.mark.parametrize("angles", [(-3.14, 0.0, 0.0), (0.3, -0.4, 2.0), (3.0, 1.2, -3.0)])
def test_angles_survive_the_way_there_and_back(angles: tuple[float, float, float]) -> None:
    np.testing.assert_allclose(angles_of(pose_of_angles((0, 0, 0, *angles))[3:]), angles, atol=1e-9)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_turn_between_two_orientations_is_the_short_one(sign: int) -> None:
    start = pose_of_angles((0, 0, 0, -3.14, 0, 0))[3:]
    end = sign * pose_of_angles((0, 0, 0, 3.14, 0, 0))[3:]  # 2 * (pi - 3.14) further, across the seam at pi
    np.testing.assert_allclose(turn_between(start, end), [-2 * (np.pi - 3.14), 0, 0], atol=1e-9)


def test_turning_by_the_turn_between_arrives() -> None:
    rng = np.random.default_rng(1)
    for start, end in rng.normal(size=(50, 2, 4)):
        start, end = start / np.linalg.norm(start), end / np.linalg.norm(end)
        assert abs(turned(start, turn_between(start, end)) @ end) == pytest.approx(1)


def test_what_a_robot_says_is_checked() -> None:
    np.testing.assert_allclose(pose_numbers([0.5, 0, 0.1, 1.05, 0, 0, 0], "pose"), [0.5, 0, 0.1, 1, 0, 0, 0])
    with pytest.raises(RobotError, match="quaternion has the length 0"):
        pose_numbers([0.5, 0, 0.1, 0, 0, 0, 0], "pose")
    for wrong in ([1, 2], None, "far", [0.5, 0, 0.1, 1, 0, 0, float("nan")], [None] * 7):
        with pytest.raises(RobotError, match="expected 7 finite numbers"):
            pose_numbers(wrong, "pose")
    assert numbers(0.25, 1, "gripper") == [0.25]
