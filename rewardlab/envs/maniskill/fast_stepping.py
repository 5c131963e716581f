"""Steps a ManiSkill task on the CPU at a fraction of the cost, through the same states.

Most of a step of ManiSkill goes into small torch operations around physics. Here actions become drive targets in NumPy,
poses are read with few operations, and some tasks have their observation and reward in NumPy too (`task_formulas`); for
all others their own functions are called. Physics is ManiSkill's, and receives the same bits.
"""

from typing import Any

import numpy as np

from rewardlab.envs.maniskill.drive_targets import Floats, part_controls
from rewardlab.envs.maniskill.task_formulas import Gripper, Outcome, find_formulas

FORMULA_REWARDS = ("dense", "normalized_dense", "sparse")


class FastStepper:
    """Steps one environment. It may be reset, and stepped by its own `step`, in between."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._robot: Any = None

    @staticmethod
    def supports(env: Any) -> bool:
        """Whether an environment steps one scene with one robot on the CPU and observes its state as a flat vector."""
        from mani_skill.agents.base_agent import BaseAgent

        return (
            env.num_envs == 1
            and not env.gpu_sim_enabled
            and isinstance(env.agent, BaseAgent)
            and env.obs_mode == "state"
        )

    def step(self, action: Floats) -> Outcome:
        """Return the observation [D], the reward and the info after an action; NaN in it is an error."""
        env = self._env
        if env.agent is not self._robot:  # a reset can build a new scene
            self._prepare()
        action = np.asarray(action, np.float32)
        if np.isnan(action).any():
            raise ValueError(f"the action has NaN in it: {action}")
        for part, control in self._controls:
            control.set_action(action[part])
        self._move()
        env._elapsed_steps += 1
        return self._read_by_formulas() if self._formulas is not None else self._read_by_task(action)

    def _prepare(self) -> None:
        env = self._env
        self._robot = env.agent
        self._controls = part_controls(env.agent)
        self._formulas = find_formulas(env) if env.reward_mode in FORMULA_REWARDS else None
        if self._formulas is None:
            read_cheaply(env)

    def _move(self) -> None:
        env = self._env
        env._before_control_step()
        for _ in range(env._sim_steps_per_control):
            env.agent.before_simulation_step()
            env._before_simulation_step()
            env.scene.step()
            env._after_simulation_step()
        env._after_control_step()

    def _read_by_formulas(self) -> Outcome:
        observation, reward, info = self._formulas.read()
        if self._env.reward_mode == "sparse":
            reward = float(info["success"])
        elif self._env.reward_mode == "normalized_dense":
            reward /= self._formulas.best_reward
        return observation, reward, info

    def _read_by_task(self, action: Floats) -> Outcome:
        import torch

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
            parts.append(np.ravel(value))

    add(observation)
    return np.concatenate(parts, dtype=np.float32)


def read_cheaply(env: Any) -> None:
    """Let the objects of an environment return the same poses and grasps as before with fewer operations."""
    import torch
    from mani_skill.agents.robots import Panda

    for actor in env.scene.actors.values():
        _replace_pose(actor, lambda self: self._objs[0].pose)
    for articulation in env.scene.articulations.values():
        for link in articulation.links:
            _replace_pose(link, lambda self: self._objs[0].entity_pose)
    if type(env.agent).is_grasping is Panda.is_grasping:
        gripper = Gripper(env.agent)
        env.agent.is_grasping = lambda object, *args, **kwargs: torch.tensor(
            [gripper.holds(object._bodies[0].entity, *args, **kwargs)]
        )


def _replace_pose(body: Any, read: Any) -> None:
    """Give a body a class of its own kind whose `pose` is read by `read`."""
    import torch
    from mani_skill.utils.structs import Pose

    def pose(self: Any) -> Any:
        found = read(self)
        return Pose(torch.from_numpy(np.concatenate((found.p, found.q))[None]))

    kind = type(body)
    body.__class__ = type(kind.__name__, (kind,), {"pose": property(pose, kind.pose.fset)})
