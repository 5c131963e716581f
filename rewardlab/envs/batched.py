"""What the built-in vector environments share: N copies stepped as one batch, and reset where an episode ended."""

from abc import abstractmethod
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

Info = dict[str, Any]
Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]


class BatchedEnv(VectorEnv[Any, Any, np.ndarray]):
    """Handles seeding, spaces and resets; a subclass says how episodes start, what is observed and what infos contain.

    Unless told otherwise, episodes that end are reset within the same step: the returned observation is the next
    episode's first, the true last one is in `infos["final_obs"]` and its facts in `infos["final_info"]`. Facts about a
    frame, such as `success`, always go with the observation beside them, rewards with the step just made.
    """

    def __init__(
        self,
        num_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        self.metadata = {**self.metadata, "autoreset_mode": autoreset_mode}
        self.num_envs = num_envs
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self._everyone = np.arange(num_envs)
        self._just_ended = np.zeros(num_envs, bool)
        self._autoreset = autoreset_mode == AutoresetMode.SAME_STEP
        self._begun = False

    @abstractmethod
    def _start(self, ids: NDArray[np.intp]) -> None:
        """Begin new episodes in these environments."""

    @abstractmethod
    def _observe(self, ids: NDArray[np.intp]) -> Any:
        """Return what these environments show now, in new arrays."""

    @abstractmethod
    def _facts(self) -> Info:
        """Return what is true of every environment now, in new arrays; `success` is among it."""

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        """Start over, everywhere or where `options["reset_mask"]` says. One generator serves the whole batch."""
        if seed is not None:
            self._np_random = np.random.default_rng(seed)  # type: ignore[arg-type]
            self._np_random_seed = seed if isinstance(seed, int) else -1
        mask = (options or {}).get("reset_mask") if self._begun else None
        self._start(self._everyone if mask is None else np.flatnonzero(mask))
        self._begun = True
        self._just_ended = np.zeros(self.num_envs, bool)  # a new array: the old one was handed out in infos
        return self._observe(self._everyone), _everywhere(self._facts())

    def _require_reset(self) -> None:
        if not self._begun:
            raise gymnasium.error.ResetNeeded("call reset() before step() or render_cameras()")

    def _end_step(
        self, reward: Floats, terminated: Bools, truncated: Bools, facts: Info
    ) -> tuple[Any, Floats, Bools, Bools, Info]:
        """Return what `step` does, after resetting where an episode ended; `facts` are of the frames just reached."""
        self._just_ended = ended = terminated | truncated
        infos = _everywhere(facts)
        if self._autoreset and ended.any():
            ids = np.flatnonzero(ended)
            final_obs = np.full(self.num_envs, None, object)
            for i, row in zip(ids, iterate(self.observation_space, self._observe(ids)), strict=True):
                final_obs[i] = row
            final_info = {**facts, "success_at_end": facts["success"]}
            final_info |= {f"_{key}": ended for key in final_info}
            self._start(ids)
            infos |= _everywhere(self._facts())
            infos |= {"final_obs": final_obs, "_final_obs": ended, "final_info": final_info, "_final_info": ended}
        return self._observe(self._everyone), reward, terminated, truncated, infos


def _everywhere(facts: Info) -> Info:
    """Return infos that hold for every environment, with the masks that Gymnasium puts beside them."""
    return facts | {f"_{key}": np.ones(len(value), bool) for key, value in facts.items()}
