"""What a Franka says of itself beside the pose of its tool: joint angles and the Jacobian.

The simulation moves the tool only. Joints are the linear approximation around one posture: enough for clients that
read, log or plot them.
"""

import numpy as np

from rewardlab.envs.robot.poses import turn_between
from rewardlab.envs.robot.protocol import Floats

# Denavit-Hartenberg parameters (modified convention) of the Franka arm: a, d, alpha of each joint, and of the flange.
_DH = np.array(
    [
        [0, 0.333, 0],
        [0, 0, -np.pi / 2],
        [0, 0.316, np.pi / 2],
        [0.0825, 0, np.pi / 2],
        [-0.0825, 0.384, -np.pi / 2],
        [0, 0, np.pi / 2],
        [0.088, 0, np.pi / 2],
        [0, 0.107, 0],
    ]
)
POSTURE = np.array([0, 0.2, 0, -2.2, 0, 2.4, np.pi / 4])  # rad


def jacobian_at(joints: Floats) -> Floats:
    """Return the geometric Jacobian [6, 7] of the flange."""
    frame, origins, axes = np.eye(4), [], []
    for (a, d, alpha), angle in zip(_DH, [*joints, 0.0], strict=True):
        cos, sin, cos_a, sin_a = np.cos(angle), np.sin(angle), np.cos(alpha), np.sin(alpha)
        frame = frame @ np.array(
            [
                [cos, -sin, 0, a],
                [sin * cos_a, cos * cos_a, -sin_a, -d * sin_a],
                [sin * sin_a, cos * sin_a, cos_a, d * cos_a],
                [0, 0, 0, 1],
            ]
        )
        origins.append(frame[:3, 3])
        axes.append(frame[:3, 2])
    columns = [
        np.concatenate((np.cross(axis, origins[-1] - origin), axis))
        for axis, origin in zip(axes[:7], origins[:7], strict=True)
    ]
    return np.stack(columns, axis=1)


JACOBIAN = jacobian_at(POSTURE)
_INVERSE = np.linalg.pinv(JACOBIAN)


def joints_at(pose: Floats, posture_pose: Floats) -> Floats:
    """Return the joint angles [7] at a pose of the tool, given the pose that it has in POSTURE."""
    moved = np.concatenate((pose[:3] - posture_pose[:3], turn_between(posture_pose[3:], pose[3:])))
    return POSTURE + _INVERSE @ moved


def joint_velocity(velocity: Floats) -> Floats:
    """Return the joints' velocities [7] at a velocity [6] of the tool."""
    found: Floats = _INVERSE @ velocity
    return found
