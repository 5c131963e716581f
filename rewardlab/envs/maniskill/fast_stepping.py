"""Steps a ManiSkill task on the CPU at a fraction of the cost, through the same states.

Most of a step of ManiSkill goes into small torch operations around physics. Here actions become drive targets in NumPy,
poses are read with few operations, and some tasks have their observation and reward in NumPy too (`task_formulas`); of
all others the own functions are called. Physics is ManiSkill's and receives the same bits.
"""

import functools
import logging
from typing import Any

import numpy as np
import torch

from rewardlab.envs.maniskill.drive_targets import part_controls
from rewardlab.envs.maniskill.rotations import Floats
from rewardlab.envs.maniskill.task_formulas import Gripper, Outcome, TaskFormulas, find_formulas

TOLERANCE = 1e-5  # of float32 numbers that were added up in another order


class FastStepper:
    """Steps one environment. In between it may be reset, and stepped by its own `step`."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._controller: Any = None

    @staticmethod
    def supports(env: Any) -> bool:
        """Whether an environment steps one scene with one robot on the CPU, and observes its state as a vector."""
        one_robot = env.agent is not None and not hasattr(env.agent, "agents")
        return env.num_envs == 1 and not env.gpu_sim_enabled and one_robot and env.obs_mode == "state"

    def step(self, action: Floats) -> Outcome:
        """Return the observation [D], the reward and the info after an action."""
        env = self._env
        if env.agent.controller is not self._controller:  # a new control mode, or a reset that built a new scene
            self._prepare()
        if np.isnan(action).any():
            raise ValueError(f"the action has NaN in it: {action}")
        for part, control in self._controls:
            control.set_action(action[part])
        self._move()
        env._elapsed_steps += 1
        return self._formulas.read() if self._formulas is not None else self._read_by_task(action)

    def _prepare(self) -> None:
        env = self._env
        self._controller = env.agent.controller
        self._controls = part_controls(env.agent)
        patch_pose_reads(env)
        formulas = find_formulas(env)
        self._formulas = formulas if formulas is not None and self._agree(formulas) else None

    def _agree(self, formulas: TaskFormulas) -> bool:
        """Whether formulas say the same of the present state as the installed version of the task."""
        found, expected = formulas.read(), self._read_by_task(np.zeros(self._env.single_action_space.shape, np.float32))
        agree = (
            found[0].shape == expected[0].shape
            and np.allclose(found[0], expected[0], atol=TOLERANCE)
            and abs(found[1] - expected[1]) < TOLERANCE
            and all(value == bool(expected[2][name]) for name, value in found[2].items())
        )
        if not agree:
            logging.getLogger(__name__).warning(
                "%s is not the version whose formulas are here in NumPy: its own functions are used, at twice the cost",
                type(self._env).__name__,
            )
        return agree

    def _move(self) -> None:
        env = self._env
        env._before_control_step()
        for _ in range(env._sim_steps_per_control):
            env.agent.before_simulation_step()
            env._before_simulation_step()
            env.scene.step()
            env._after_simulation_step()
        env._after_control_step()

    def _read_by_task(self, action: Floats) -> Outcome:
        env = self._env
        info = env.get_info()
        observation = env.get_obs(info, unflattened=True)
        reward = env.get_reward(obs=observation, action=torch.from_numpy(action)[None], info=info)
        return flatten(observation), float(reward), info


def flatten(observation: Any) -> Floats:
    """Return a nested observation of one environment as one vector, in ManiSkill's order."""
    parts: list[Any] = []

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for part in value.values():
                add(part)
        else:
            parts.append(np.asarray(value).ravel())

    add(observation)
    return np.concatenate(parts, dtype=np.float32)


def patch_pose_reads(env: Any) -> None:
    """Make actors, links and `is_grasping` of an environment read SAPIEN directly instead of through torch."""
    from mani_skill.agents.robots import Panda

    for actor in env.scene.actors.values():
        actor.__class__ = _with_cheap_pose(actor.__class__, "pose")
    for articulation in env.scene.articulations.values():
        for link in articulation.links:
            link.__class__ = _with_cheap_pose(link.__class__, "entity_pose")
    if getattr(type(env.agent), "is_grasping", None) is Panda.is_grasping:
        gripper = Gripper(env.agent)
        env.agent.is_grasping = lambda object, min_force=0.5, max_angle=85: torch.tensor(
            [gripper.holds(object._bodies[0].entity, min_force, max_angle)]
        )


@functools.cache
def _with_cheap_pose(kind: Any, attribute: str) -> Any:
    """Return a class like `kind` whose `pose` is that attribute of its only SAPIEN object."""
    from mani_skill.utils.structs import Pose

    if hasattr(kind, "has_cheap_pose"):
        return kind

    def pose(self: Any) -> Any:
        found = getattr(self._objs[0], attribute)
        return Pose(torch.from_numpy(np.concatenate((found.p, found.q))[None]))

    return type(kind.__name__, (kind,), {"pose": property(pose, kind.pose.fset), "has_cheap_pose": True})
