"""Poses: positions in metres, orientations as quaternions x, y, z, w, or as roll, pitch, yaw in radians."""

from collections.abc import Sequence

import numpy as np

from rewardlab.envs.robot.protocol import Floats


def pose_of_angles(pose: Sequence[float]) -> Floats:
    """Return x, y, z and a quaternion of x, y, z, roll, pitch, yaw: turns about the fixed x, y and z axes in turn."""
    x, y, z, roll, pitch, yaw = pose
    turn = multiply(multiply(_about(2, yaw), _about(1, pitch)), _about(0, roll))
    return np.concatenate(([x, y, z], turn))


def angles_of(rotation: Floats) -> Floats:
    """Return roll, pitch, yaw of a quaternion."""
    x, y, z, w = rotation
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2 * (w * y - z * x), -1, 1))
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.array([roll, pitch, yaw])


def multiply(first: Floats, second: Floats) -> Floats:
    """Return the rotation that turns by `second` and then by `first`."""
    (x1, y1, z1, w1), (x2, y2, z2, w2) = first, second
    return np.array(
        [
            w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
            w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
            w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2,
            w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
        ]
    )


def turned(rotation: Floats, vector: Floats) -> Floats:
    """Return a quaternion turned by a rotation vector: about its direction, by its length in radians."""
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return rotation
    turn = np.concatenate((np.sin(angle / 2) * vector / angle, [np.cos(angle / 2)]))
    result = multiply(turn, rotation)
    return result / np.linalg.norm(result)


def turn_between(start: Floats, end: Floats) -> Floats:
    """Return the rotation vector that turns one quaternion into another, the short way round."""
    turn = multiply(end, start * np.array([-1, -1, -1, 1]))
    turn = -turn if turn[3] < 0 else turn
    size = float(np.linalg.norm(turn[:3]))
    if size < 1e-12:
        return np.zeros(3)
    return turn[:3] / size * 2 * np.arctan2(size, turn[3])


def _about(axis: int, angle: float) -> Floats:
    turn = np.zeros(4)
    turn[axis], turn[3] = np.sin(angle / 2), np.cos(angle / 2)
    return turn
