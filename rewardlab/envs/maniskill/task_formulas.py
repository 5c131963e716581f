"""Observation, reward and success of some ManiSkill tasks in NumPy: the formulas of their classes for one robot arm."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from rewardlab.envs.maniskill.rotations import Floats

Outcome = tuple[Floats, float, dict[str, Any]]  # observation, dense reward, info
_FLAG = (np.zeros(1, np.float32), np.ones(1, np.float32))


class TaskFormulas(Protocol):
    """Reads the state of a task."""

    def read(self) -> Outcome:
        """Return the observation, the dense reward and the facts of `evaluate()`."""


def find_formulas(env: Any) -> TaskFormulas | None:
    """Return the formulas of a task with the robot that they are for; None where there are none."""
    from mani_skill.agents.robots import Panda
    from mani_skill.envs.tasks.tabletop.pick_cube import PickCubeEnv
    from mani_skill.envs.tasks.tabletop.push_cube import PushCubeEnv

    written: dict[Any, Callable[[Any], TaskFormulas]] = {PickCubeEnv: PickCube, PushCubeEnv: PushCube}
    found = written.get(type(env))
    if found is None or type(env.agent) is not Panda or env.reward_mode != "dense":
        return None
    if env.agent.controller.get_state():  # a target that is kept from step to step is a part of the observation
        return None
    return found(env)


class Gripper:
    """The two fingers of a Panda, and what they hold."""

    def __init__(self, agent: Any) -> None:
        self._physics = agent.scene.px
        self._fingers = [agent.finger1_link._objs[0], agent.finger2_link._objs[0]]
        self._entities = [finger.entity for finger in self._fingers]

    def holds(self, held: Any, min_force: float = 0.5, max_angle: float = 85) -> bool:
        """Whether both fingers press an entity, along the direction in which they close (`Panda.is_grasping`)."""
        forces = self._forces_on(held)
        for finger, force, side in zip(self._fingers, forces, (1, -1), strict=True):
            strength = np.sqrt(force.dot(force))
            if strength < min_force:
                return False
            opening = side * finger.entity_pose.to_transformation_matrix()[:3, 1]
            if np.rad2deg(np.arccos(np.clip(opening.dot(force / strength), -1, 1))) > max_angle:
                return False
        return True

    def _forces_on(self, held: Any) -> list[Floats]:
        """Return the force that acts on each finger where it touches an entity."""
        impulses = [np.zeros(3), np.zeros(3)]
        for contact in self._physics.get_contacts():
            first, second = (body.entity for body in contact.bodies)
            if first == held:
                other, sign = second, -1
            elif second == held:
                other, sign = first, 1
            else:
                continue
            if other in self._entities:
                total = np.sum([point.impulse for point in contact.points], axis=0)
                impulses[self._entities.index(other)] += sign * total
        return [impulse.astype(np.float32) / self._physics.timestep for impulse in impulses]


class PickCube:
    """PickCube-v1: take a cube to a point and hold still."""

    def __init__(self, env: Any) -> None:
        self._robot, self._tcp = env.agent.robot._objs[0], env.agent.tcp._objs[0]
        self._cube, self._goal = env.cube._objs[0], env.goal_site._objs[0]
        self._gripper = Gripper(env.agent)
        self._near = env.goal_thresh

    def read(self) -> Outcome:
        qpos, qvel = self._robot.qpos, self._robot.qvel
        tcp, cube, goal = self._tcp.entity_pose, self._cube.pose, self._goal.pose.p
        to_cube, to_goal, arm_speed = cube.p - tcp.p, goal - cube.p, qvel[:-2]
        goal_distance = _length(to_goal)
        grasped = self._gripper.holds(self._cube)
        placed = bool(goal_distance <= self._near)
        still = bool(np.abs(arm_speed).max() <= 0.2)
        observation = np.concatenate(
            (qpos, qvel, _FLAG[grasped], tcp.p, tcp.q, goal, cube.p, cube.q, to_cube, to_goal), dtype=np.float32
        )
        reward = _nearness(_length(to_cube)) + grasped * (1 + _nearness(goal_distance))
        reward += placed * _nearness(_length(arm_speed))
        success = placed and still
        info = {"success": success, "is_obj_placed": placed, "is_robot_static": still, "is_grasped": grasped}
        return observation, 5.0 if success else reward, info


class PushCube:
    """PushCube-v1: push a cube into a circle on the table."""

    def __init__(self, env: Any) -> None:
        self._robot, self._tcp = env.agent.robot._objs[0], env.agent.tcp._objs[0]
        self._cube, self._goal = env.obj._objs[0], env.goal_region._objs[0]
        self._radius, self._half_size = env.goal_radius, env.cube_half_size
        self._behind = np.array([-env.cube_half_size - 0.005, 0, 0], np.float32)

    def read(self) -> Outcome:
        tcp, cube, goal = self._tcp.entity_pose, self._cube.pose, self._goal.pose.p
        place, height = cube.p, cube.p[2]
        goal_distance = _length(place[:2] - goal[:2])
        push_distance = _length(place + self._behind - tcp.p)
        success = bool(goal_distance < self._radius and height < self._half_size + 5e-3)
        observation = np.concatenate(
            (self._robot.qpos, self._robot.qvel, tcp.p, tcp.q, goal, place, cube.q), dtype=np.float32
        )
        reward = _nearness(push_distance)
        if push_distance < 0.01:
            reward += _nearness(goal_distance) * (1 + _nearness(abs(height - self._half_size)))
        return observation, 4.0 if success else reward, {"success": success}


def _length(vector: Floats) -> np.float32:
    length: np.float32 = np.sqrt(vector.dot(vector))
    return length


def _nearness(distance: np.float32) -> float:
    """Return 1 at no distance, falling to 0."""
    return 1 - math.tanh(5 * distance)
