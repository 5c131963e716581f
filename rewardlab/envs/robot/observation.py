"""What a policy sees of a robot's state, and whether the robot is at its target."""

import numpy as np

from rewardlab.envs.robot.options import ToleranceConfig
from rewardlab.envs.robot.poses import turn_between
from rewardlab.envs.robot.protocol import Floats, RobotState

STATE_SIZE = 3 + 3 + 6 + 3 + 3 + 1  # position from the target, turn from it, velocity, force, torque, gripper
FORCE_SCALE = 0.1  # newtons become numbers of about 1, as the other entries are


def state_numbers(state: RobotState, target: Floats) -> Floats:
    """Return the observation [STATE_SIZE]; a pose has the same numbers whatever the sign of its quaternion."""
    parts = (
        state.pose[:3] - target[:3],
        turn_between(target[3:], state.pose[3:]),
        state.velocity,
        FORCE_SCALE * state.force,
        FORCE_SCALE * state.torque,
        [state.gripper],
    )
    return np.concatenate(parts).astype(np.float32)


def is_at(pose: Floats, target: Floats, tolerance: ToleranceConfig) -> bool:
    """Return whether a pose [7] is the target, as near as the tolerance says."""
    near = np.abs(pose[:3] - target[:3]).max() <= tolerance.position
    return bool(near and np.linalg.norm(turn_between(target[3:], pose[3:])) <= tolerance.rotation)
