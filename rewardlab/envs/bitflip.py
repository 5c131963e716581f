"""The smallest task with goals that exploration alone does not solve: flip bits until they are those of the goal."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rewardlab.errors import ConfigError

ID = "toy/BitFlip"

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Observation = dict[str, Floats]
Info = dict[str, Any]


class BitFlipVectorEnv(VectorEnv[Observation, NDArray[np.int64], np.ndarray]):
    """N rows of bits; an action flips one of them (Andrychowicz et al. 2017, section 3.1).

    The reward is 0 at the goal, where the episode ends, and -1 elsewhere. Starts and goals are drawn evenly and differ.
    As in the other built-in task, episodes that end are reset within the same step: the returned observation is the
    next episode's first, the true last one is in `infos["final_obs"]` and its facts in `infos["final_info"]`.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, num_envs: int = 1, *, bits: int = 15, max_episode_steps: int | None = None) -> None:
        if type(bits) is not int or bits < 1:
            raise ConfigError(f"option 'bits' of '{ID}': found {bits!r}, expected a positive whole number")
        self.num_envs = num_envs
        self.bits = bits
        self.max_episode_steps = bits if max_episode_steps is None else max_episode_steps
        row = spaces.Box(0.0, 1.0, (bits,), np.float32)
        self.single_observation_space = spaces.Dict(observation=row, achieved_goal=row, desired_goal=row)
        self.single_action_space = spaces.Discrete(bits)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._everyone = np.arange(num_envs)
        self._state = np.zeros((num_envs, bits), np.float32)
        self._goal = np.zeros((num_envs, bits), np.float32)
        self._steps = np.zeros(num_envs, np.int64)
        self._begun = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Start over, everywhere or where `options["reset_mask"]` says. One generator serves the whole batch."""
        if seed is not None:
            self._np_random = np.random.default_rng(seed)  # type: ignore[arg-type]
            self._np_random_seed = seed if isinstance(seed, int) else -1
        mask = (options or {}).get("reset_mask") if self._begun else None
        self._start(self._everyone if mask is None else np.flatnonzero(mask))
        self._begun = True
        return self._observe(), _everywhere(success=self._reached())

    def step(self, actions: NDArray[np.int64]) -> tuple[Observation, Floats, Bools, Bools, Info]:
        chosen = self._checked(actions)
        self._state[self._everyone, chosen] = 1 - self._state[self._everyone, chosen]
        self._steps += 1
        terminated = self._reached()
        truncated = (self._steps >= self.max_episode_steps) & ~terminated
        ended = terminated | truncated
        reward = terminated.astype(np.float32) - 1
        infos = _everywhere(success=terminated.copy())
        if ended.any():
            infos |= self._last_of(np.flatnonzero(ended), infos)
            self._start(np.flatnonzero(ended))
            infos |= _everywhere(success=self._reached())
        return self._observe(), reward, terminated, truncated, infos

    def _reached(self) -> Bools:
        reached: Bools = (self._state == self._goal).all(axis=1)
        return reached

    def _start(self, ids: NDArray[np.intp]) -> None:
        shape = (len(ids), self.bits)
        state = self.np_random.integers(0, 2, shape).astype(np.float32)
        differs = self.np_random.integers(0, 2, shape).astype(bool)
        while (same := ~differs.any(axis=1)).any():
            differs[same] = self.np_random.integers(0, 2, (int(same.sum()), self.bits)).astype(bool)
        self._state[ids] = state
        self._goal[ids] = np.where(differs, 1 - state, state)
        self._steps[ids] = 0

    def _last_of(self, ids: NDArray[np.intp], infos: Info) -> Info:
        """What is true of episodes that just ended, before they are reset."""
        seen = self._observe()
        final_obs = np.full(self.num_envs, None, object)
        for i in ids:
            final_obs[i] = {key: value[i] for key, value in seen.items()}
        ended = np.zeros(self.num_envs, bool)
        ended[ids] = True
        final_info = {"success": infos["success"], "_success": ended}
        return {"final_obs": final_obs, "_final_obs": ended, "final_info": final_info, "_final_info": ended}

    def _observe(self) -> Observation:
        """Copies: what was handed out does not change in later steps."""
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }

    def _checked(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self._begun:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(f"actions are {actions.dtype} {actions.shape}, expected integers {(self.num_envs,)}")
        if actions.min() < 0 or actions.max() >= self.bits:
            raise ValueError(f"actions are {actions.min()} to {actions.max()}, expected 0 to {self.bits - 1}")
        return actions


def _everywhere(**values: NDArray[Any]) -> Info:
    """Infos true of every environment, with the masks that Gymnasium puts beside them."""
    return values | {f"_{key}": np.ones(len(value), bool) for key, value in values.items()}


if ID not in gymnasium.registry:
    gymnasium.register(id=ID, vector_entry_point="rewardlab.envs.bitflip:BitFlipVectorEnv")
