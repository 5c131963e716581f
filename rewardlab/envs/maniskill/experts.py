"""Scripted experts: what a robot with a two-finger gripper should do next, from the true state of some tasks.

They keep no memory: an expert that was pushed off its way, by noise or by another policy, goes on from where it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rewardlab.errors import ConfigError

Vector: TypeAlias = npt.NDArray[np.float64]  # [3]: x, y, z in metres

CONTROL_MODES = ("pd_ee_delta_pos", "pd_ee_delta_pose")
OPEN, CLOSED = 1.0, -1.0
PUSH = 0.04  # metres in a step; at the end of the arm's reach, inverse kinematics finds no larger one
ABOVE = np.array([0.0, 0.0, 0.08])


class Motion(NamedTuple):
    """How far the gripper should move, and whether its fingers should be open."""

    delta: Vector
    fingers: float


Expert: TypeAlias = Callable[[Any], Motion]


def scripted_action(env_id: str, simulator: Any) -> npt.NDArray[np.float32]:
    """Return the action of a task's expert in the present state of its simulator."""
    motion = find_expert(env_id, simulator.agent)(simulator)
    action = np.zeros(simulator.single_action_space.shape, np.float32)
    action[:3] = np.clip(motion.delta / simulator.agent.controller.controllers["arm"].config.pos_upper, -1, 1)
    action[-1] = motion.fingers
    return action


def find_expert(env_id: str, agent: Any) -> Expert:
    """Return the expert of a task; an error that names those that there are, if it has none for this robot."""
    task = env_id.removeprefix("maniskill/")
    if task not in EXPERTS:
        raise ConfigError(f"'{env_id}' has no scripted expert; those that have one: {', '.join(EXPERTS)}")
    if not str(getattr(agent, "uid", "")).startswith("panda") or agent.control_mode not in CONTROL_MODES:
        raise ConfigError(
            f"the scripted expert of '{env_id}' moves a panda with control_mode {' or '.join(CONTROL_MODES)}; found "
            f"{getattr(agent, 'uid', 'several robots')} with {getattr(agent, 'control_mode', 'several modes')}"
        )
    return EXPERTS[task]


def pick_cube(simulator: Any) -> Motion:
    """Grasp the cube and hold it still at the goal."""
    cube, goal = _position(simulator.cube), _position(simulator.goal_site)
    if bool(simulator.agent.is_grasping(simulator.cube)):
        return Motion(goal - cube, CLOSED)
    return _grasp(_gripper(simulator), cube)


def stack_cube(simulator: Any) -> Motion:
    """Put the red cube on the green one and let go."""
    gripper, cube, base = _gripper(simulator), _position(simulator.cubeA), _position(simulator.cubeB)
    place = base + np.array([0, 0, 0.0405])
    offset = place - cube
    sideways = float(np.linalg.norm(offset[:2]))
    if sideways < 0.015 and abs(offset[2]) < 0.004:  # there: let go, then go away
        return Motion(np.zeros(3) if bool(simulator.agent.is_grasping(simulator.cubeA)) else ABOVE, OPEN)
    if not bool(simulator.agent.is_grasping(simulator.cubeA)):
        return _grasp(gripper, cube)
    if sideways < 0.008:
        return Motion(offset, CLOSED)
    lift = base[2] + 0.08 - cube[2]
    # Over the edge of the other cube only when high enough.
    return Motion(np.array([*(offset[:2] if lift < 0.03 else (0, 0)), lift]), CLOSED)


def push_cube(simulator: Any) -> Motion:
    """Push or pull the cube along x to the middle of the goal, with closed fingers behind it."""
    gripper, cube, goal = _gripper(simulator), _position(simulator.obj), _position(simulator.goal_region)
    if abs(goal[0] - cube[0]) < 0.05:  # well within the goal, whose radius is 0.1
        return Motion(np.zeros(3), CLOSED)
    direction = np.sign(goal[0] - cube[0])
    behind = direction * (cube[0] - gripper[0])
    if behind > 0.015 and abs(cube[1] - gripper[1]) < 0.015:
        if gripper[2] < 0.035:
            step = np.clip(goal[0] - cube[0], -PUSH, PUSH)
            return Motion(np.array([step, cube[1] - gripper[1], 0.02 - gripper[2]]), CLOSED)
        if behind > 0.04:
            return Motion(np.array([0, cube[1] - gripper[1], 0.015 - gripper[2]]), CLOSED)
    start = cube + np.array([-0.07 * direction, 0, 0.08])
    rise = start[2] - gripper[2]
    return Motion(np.array([*(start[:2] - gripper[:2] if rise < 0.04 else (0, 0)), rise]), CLOSED)


EXPERTS: dict[str, Expert] = {
    "PickCube-v1": pick_cube,
    "PullCube-v1": push_cube,
    "PushCube-v1": push_cube,
    "StackCube-v1": stack_cube,
}


def _grasp(gripper: Vector, cube: Vector) -> Motion:
    """Go above a cube with open fingers, then down to it, then close them."""
    offset = cube - gripper
    if np.linalg.norm(offset[:2]) > 0.012:
        over = offset + ABOVE * (np.linalg.norm(offset[:2]) > 0.02)
        return Motion(over, OPEN)
    if abs(offset[2]) > 0.012:
        return Motion(offset, OPEN)
    return Motion(offset, CLOSED)


def _position(actor: Any) -> Vector:
    return np.asarray(actor._objs[0].pose.p, np.float64)


def _gripper(simulator: Any) -> Vector:
    return np.asarray(simulator.agent.tcp._objs[0].entity.pose.p, np.float64)
