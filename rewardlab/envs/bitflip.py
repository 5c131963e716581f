"""The smallest task with goals that exploration alone does not solve: flip bits until they are those of the goal."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rewardlab.envs.batched import BatchedEnv, Bools, Floats, Info
from rewardlab.errors import ConfigError

ID = "toy/BitFlip"


class BitFlipVectorEnv(BatchedEnv):
    """N rows of bits; an action flips one of them (Andrychowicz et al. 2017, section 3.1).

    The reward is 0 at the goal, where the episode ends, and -1 elsewhere. Starts and goals are drawn evenly and differ.
    """

    def __init__(
        self, num_envs: int = 1, *, bits: int = 15, max_episode_steps: int | None = None, action_repeat: int = 1
    ) -> None:
        if type(bits) is not int or bits < 1:
            raise ConfigError(f"option 'bits' of '{ID}': found {bits!r}, expected a positive whole number")
        row = spaces.Box(0.0, 1.0, (bits,), np.float32)
        observation_space = spaces.Dict(observation=row, achieved_goal=row, desired_goal=row)
        super().__init__(num_envs, observation_space, spaces.Discrete(bits))
        self.bits = bits
        self.max_episode_steps = max(bits // action_repeat, 1) if max_episode_steps is None else max_episode_steps
        self.action_repeat = action_repeat
        self._state = np.zeros((num_envs, bits), np.float32)
        self._goal = np.zeros((num_envs, bits), np.float32)
        self._steps = np.zeros(num_envs, np.int64)

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, Floats, Bools, Bools, Info]:
        chosen = self._checked(actions)
        reward = np.zeros(self.num_envs, np.float32)
        running = self._everyone
        for _ in range(self.action_repeat):
            self._state[running, chosen[running]] = 1 - self._state[running, chosen[running]]
            facts = self._facts()
            reward[running] += facts["success"][running] - np.float32(1)
            running = np.flatnonzero(~facts["success"])
        self._steps += 1
        terminated = facts["success"].copy()
        truncated = (self._steps >= self.max_episode_steps) & ~terminated
        return self._end_step(reward, terminated, truncated, facts)

    def _start(self, ids: NDArray[np.intp]) -> None:
        shape = (len(ids), self.bits)
        state = self.np_random.integers(0, 2, shape).astype(np.float32)
        differs = self.np_random.integers(0, 2, shape).astype(bool)
        while (same := ~differs.any(axis=1)).any():
            differs[same] = self.np_random.integers(0, 2, (int(same.sum()), self.bits)).astype(bool)
        self._state[ids] = state
        self._goal[ids] = np.where(differs, 1 - state, state)
        self._steps[ids] = 0

    def _observe(self, ids: NDArray[np.intp]) -> Any:
        parts = {"observation": self._state, "achieved_goal": self._state, "desired_goal": self._goal}
        return {name: part[ids] for name, part in parts.items()}  # copies: indexed by an array

    def _facts(self) -> Info:
        return {"success": (self._state == self._goal).all(axis=1)}

    def _checked(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        self._require_reset()
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(f"actions are {actions.dtype} {actions.shape}, expected integers {(self.num_envs,)}")
        if actions.min() < 0 or actions.max() >= self.bits:
            raise ValueError(f"actions are {actions.min()} to {actions.max()}, expected 0 to {self.bits - 1}")
        return actions


if ID not in gymnasium.registry:
    gymnasium.register(id=ID, vector_entry_point="rewardlab.envs.bitflip:BitFlipVectorEnv")
