"""How good a policy is when it does its best: a number of episodes, always the same ones."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from rewardlab.config.schema import EnvConfig
from rewardlab.data.episodes import Array
from rewardlab.devices import device_of, seeded_generator, to_device
from rewardlab.envs import make_vec_env
from rewardlab.envs.actions import within_bounds
from rewardlab.envs.checked import MOST_STEPS
from rewardlab.envs.step_results import following_success, says_success, success_of, unreported
from rewardlab.errors import DataError, ProcessDied
from rewardlab.observations import as_observation, has_tensors, to_batch, to_numpy

ATTEMPTS = 3  # number of times that an evaluation is made at most, if processes that step environments die


class Evaluation:
    """Episodes that follow from the seed. The environment's own reward and success, never a model's.

    At most `env.num_envs` copies share the `episodes`; by default each has one. How many each has is fixed before: the
    first episodes to end would be short ones, and their figures not those of all.
    """

    def __init__(self, env: EnvConfig, *, seed: int, episodes: int | None = None) -> None:
        self.name = env.id
        self.episodes = env.num_envs if episodes is None else episodes
        self.env = make_vec_env(replace(env, num_envs=min(env.num_envs, self.episodes)))
        self.seed = seed
        self.unreported = ""  # after a run in which no success was reported: words that say what was looked for
        self._warned = False

    def run(self, policy: nn.Module) -> dict[str, float]:
        """Return the means of `return` and `length` and, where the environment reports success, the shares of episodes
        with `success_once` and `success_at_end`; with `success_at_reset` if any begin so, which a warning says once."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                figures = self._run(policy)
            except ProcessDied as error:
                if attempt == ATTEMPTS:
                    raise
                warnings.warn(f"{error}; the evaluation begins again", RuntimeWarning, stacklevel=2)
            else:
                self._warn_about_resets(figures.get("success_at_reset", 0.0))
                return figures
        raise AssertionError("unreachable")

    def _warn_about_resets(self, share: float) -> None:
        if share and not self._warned:
            self._warned = True
            warnings.warn(
                f"'{self.name}': {share:.1%} of the {self.episodes} evaluated episodes are a success at their reset "
                "already: any policy has these, so that the figures tell less about this one",
                stacklevel=3,
            )

    def _run(self, policy: nn.Module) -> dict[str, float]:
        counted = CountedEpisodes(self.env.num_envs, self.episodes, self.name)
        obs, infos = self.env.reset(seed=self.seed)
        counted.begin(infos)
        device = device_of(policy)
        generator = seeded_generator(self.seed, device)
        while counted.running.any():
            seen = as_observation(obs, keep_tensors=True)
            answer = policy.act(to_device(to_batch(seen), device), generator, explore=False)  # type: ignore[operator]
            action = answer["action"] if has_tensors(seen) else answer["action"].cpu().numpy()
            obs, reward, *ends, infos = self.env.step(within_bounds(action, self.env.single_action_space))
            terminated, truncated = map(to_numpy, ends)
            counted.add(to_numpy(reward), terminated | truncated, infos)
        self.unreported = "" if counted.says_success else unreported(infos)
        return counted.means()


class CountedEpisodes:
    """Counts the first episodes of each copy, up to its share; the first copies have one more where they differ."""

    def __init__(self, num_envs: int, episodes: int, name: str) -> None:
        self._name = name
        self._left = np.full(num_envs, episodes // num_envs) + (np.arange(num_envs) < episodes % num_envs)
        self._return, self._length, self._once = np.zeros(num_envs), np.zeros(num_envs), np.zeros(num_envs, bool)
        self._at_reset = np.zeros(num_envs, bool)  # where a reset says so
        self.says_success = False
        self._ended: list[tuple[Array, ...]] = []  # of some episodes: what `means` returns

    @property
    def running(self) -> Array:
        """Which copies have episodes left, bool [N]; the others are stepped, not counted."""
        return self._left > 0

    def begin(self, infos: Mapping[str, Any], fresh: Array | None = None) -> None:
        """Take what is said of the first frames of episodes, in all environments or where they are `fresh`."""
        success = success_of(infos, len(self._left), self._locate)
        self._at_reset = success if fresh is None else np.where(fresh, success, self._at_reset)

    def add(self, reward: Array, done: Array, infos: Mapping[str, Any]) -> None:
        """Count a step of all copies."""
        success = following_success(infos, done, self._locate)
        self.says_success |= says_success(infos)
        self._return += reward
        self._length += 1
        self._once |= success
        ended = done & self.running
        columns = (self._return, self._length, self._once, success, self._at_reset)
        self._ended.append(tuple(column[ended] for column in columns))
        self._left -= ended
        self._return[done], self._length[done], self._once[done] = 0, 0, False
        self.begin(infos, done)
        if (self._length[self.running] >= MOST_STEPS).any():
            raise DataError(
                f"an episode of '{self._name}' did not end in {MOST_STEPS:,} steps: set env.eval.max_episode_steps"
            )

    def means(self) -> dict[str, float]:
        """Return the means of all counted episodes."""
        columns = [np.concatenate(column) for column in zip(*self._ended, strict=True)]
        names = ("return", "length", "success_once", "success_at_end", "success_at_reset")
        known = names[: (5 if columns[4].any() else 4) if self.says_success else 2]
        return {name: float(column.mean()) for name, column in zip(known, columns, strict=False)}

    def _locate(self, row: int) -> str:
        return f"'{self._name}', environment {row}, step {int(self._length[row]) + 1} of its episode"
