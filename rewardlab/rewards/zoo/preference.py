"""Rewards from rankings: of two trajectories, the better one must get more. Rollouts that rank themselves by noise."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from pydantic import PositiveInt
from tensordict import TensorDict
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.errors import ConfigError, DataError
from rewardlab.models.encoders import ObservationNetwork, ObservationNorm, Parts
from rewardlab.observations import copy_observation, final_rows, to_numpy
from rewardlab.rewards.base import register_reward_model
from rewardlab.rewards.zoo.experts import errors_named, expert_trajectories, source_name
from rewardlab.rewards.zoo.settings import LayerSizes
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transition_model import FittedOnceRewardModel
from rewardlab.rewards.zoo.transitions import Columns, Rows, observation_of, on_device, read_rows

Policy: TypeAlias = Callable[[Any], Any]  # a batch of observations to a batch of actions
Env: TypeAlias = VectorEnv[Any, Any, Any]


def in_order(batches: Sequence[Any]) -> list[TensorDict]:
    """The trajectories of batches that get better from one to the next, such as those of a policy's checkpoints."""
    ranked = []
    for rank, batch in enumerate(batches):
        for trajectory in expert_trajectories(batch):
            ranked.append(trajectory.clone(recurse=False).set("rank", torch.full((len(trajectory),), float(rank))))
    return ranked


class PreferenceNetwork(nn.Module):
    """The reward of a state. Snippets are compared by the sums of their rewards."""

    zero: Tensor
    scale: Tensor

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool) -> None:
        super().__init__()
        self.norm = ObservationNorm(task.observation, vectors=obs_norm)
        self.network = ObservationNetwork(task.observation, hidden_size_list, outputs=1, last_bias=False)
        self.register_buffer("zero", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, observation: Parts) -> Tensor:
        return self.network(self.norm(observation)).squeeze(1)

    def learn(self, observation: Parts, snippet: Tensor, pairs: int) -> Tensor:
        """Row k is of the snippet `snippet[k]`; snippets 2i and 2i+1 are a pair, of which the second is better."""
        rewards = self(observation)
        sums = torch.zeros(2 * pairs, device=rewards.device).index_add(0, snippet, rewards)
        second = torch.ones(pairs, dtype=torch.int64, device=rewards.device)
        return functional.cross_entropy(sums.view(pairs, 2), second)


@register_reward_model("trex")
@dataclasses.dataclass(kw_only=True, eq=False)
class TREXRewardModel(FittedOnceRewardModel):
    """Trajectory-ranked Reward EXtrapolation (Brown et al. 2019): better than the best demonstration.

        P(i < j) = exp(sum_j r(s)) / (exp(sum_i r(s)) + exp(sum_j r(s)))     sums over snippets of equal length

    Use it when demonstrations can be ranked but none is optimal. `load_expert_data` takes trajectories, ranked by a
    column `rank` (`in_order` makes it from the order of checkpoints) or by their returns; `load_preferences` takes
    pairs that someone has compared. The first `train` fits; later ones do nothing until there is new data.
    Preferences of equal lengths say nothing about the level of r, so zero is what the worst quarter of the
    trajectories gets on average, and the deviation over all of them is one. Deviation: in the paper's Atari games the
    better snippet starts later than the worse one; here starts are drawn freely.
    """

    # A list = directories of episodes that get better from one to the next, as those of a policy's checkpoints do.
    expert_data_path: str | Sequence[str] | None = None  # type: ignore[assignment]
    hidden_size_list: LayerSizes = (64, 64)
    obs_norm: bool = True  # standardise vectors by the statistics of all trajectories
    batch_size: PositiveInt = 64  # pairs of snippets in an update
    update_per_collect: PositiveInt = 300  # in the one call of `train` that fits
    min_snippet_length: int = 10  # steps; shorter trajectories are taken whole
    max_snippet_length: int = 50

    needed: ClassVar[tuple[str, ...]] = ("arrival",)
    ranked_by: ClassVar[str] = "reward"  # column of trajectories that have no `rank`

    def __post_init__(self) -> None:
        if not 1 <= self.min_snippet_length <= self.max_snippet_length:
            raise ConfigError(
                f"min_snippet_length: found {self.min_snippet_length}, expected 1 to max_snippet_length, which is "
                f"{self.max_snippet_length}"
            )
        super().__post_init__()

    def _build(self, task: Task) -> None:
        self.network = PreferenceNetwork(task, self.hidden_size_list, self.obs_norm)

    def _ranks(self, trajectories: Sequence[TensorDict]) -> Tensor:
        if all("rank" in trajectory for trajectory in trajectories):
            return torch.stack([trajectory["rank"][0].double().reshape(()) for trajectory in trajectories])
        if not all(self.ranked_by in trajectory for trajectory in trajectories):
            raise DataError(
                f"some trajectories have neither a 'rank' nor a '{self.ranked_by}', which {self.model_type} ranks by; "
                "give directories from the worst to the best (drex: of falling data.collection.random_actions), or see "
                "in_order and collect_noise_rollouts"
            )
        return torch.stack([self._rank(trajectory[self.ranked_by].double()) for trajectory in trajectories])

    def _rank(self, column: Tensor) -> Tensor:
        return column.sum()

    def load_expert_data(self, data: Any) -> None:
        """Take ranked trajectories; every pair of different rank becomes a preference."""
        several = isinstance(data, (list, tuple)) and len(data) > 0 and all(isinstance(item, str) for item in data)
        trajectories = in_order(data) if several else expert_trajectories(data)
        with errors_named(source_name(data)):
            ranks = self._ranks(trajectories)
        pairs = (ranks[:, None] < ranks[None, :]).nonzero()
        if not len(pairs):
            raise DataError(
                f"{source_name(data)}: {len(trajectories)} trajectories, all of rank {float(ranks[0]):g}; expected at "
                "least two of different rank"
            )
        self._take_expert(source_name(data), trajectories, pairs)

    def load_preferences(self, trajectories: Any, pairs: Sequence[tuple[int, int]]) -> None:
        """Take trajectories and comparisons of them: (number of the worse, number of the better)."""
        found = expert_trajectories(trajectories)
        numbers = torch.as_tensor(pairs, dtype=torch.int64)
        if numbers.ndim != 2 or numbers.shape[1] != 2 or not len(numbers):
            raise DataError(f"preferences have shape {list(numbers.shape)}; expected [n, 2]: (worse, better)")
        if not 0 <= int(numbers.min()) <= int(numbers.max()) < len(found):
            raise DataError(
                f"preferences name the trajectories {int(numbers.min())} to {int(numbers.max())} of {len(found)}"
            )
        self._take_expert(source_name(trajectories), found, numbers)

    def _read_expert(self, name: str, trajectories: list[TensorDict], pairs: Tensor) -> None:  # type: ignore[override]
        with errors_named(name):
            parts = [read_rows(trajectory, self.task, self.needed).columns for trajectory in trajectories]
        columns: Columns = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        self._lengths = torch.tensor([len(trajectory) for trajectory in trajectories])
        self._expert = Rows(columns, (int(self._lengths.sum()),))
        self._pairs = pairs
        self.network.norm.update(observation_of(on_device(columns, self.device), "arrival"))
        self.updates = 0

    def _losses(self) -> Iterator[Tensor]:
        columns = self.expert.columns
        for _ in range(self.update_per_collect):
            rows, snippet, pairs = self._snippets()
            batch = on_device({name: column[rows] for name, column in columns.items()}, self.device)
            yield self.network.learn(observation_of(batch, "arrival"), snippet.to(self.device), pairs)

    def _snippets(self) -> tuple[Tensor, Tensor, int]:
        """Random snippets of random pairs: the rows in all of them, the snippet of each row, the number of pairs."""
        chosen = torch.randint(len(self._pairs), (self.batch_size,), generator=self._generator)
        trajectory = self._pairs[chosen]
        drawn = torch.randint(
            self.min_snippet_length, self.max_snippet_length + 1, (self.batch_size,), generator=self._generator
        )
        available = self._lengths[trajectory]
        length = torch.minimum(drawn, available.amin(1))[:, None].expand(-1, 2)
        late = torch.rand(trajectory.shape, generator=self._generator)
        start = (self._lengths.cumsum(0) - self._lengths)[trajectory] + (late * (available - length + 1)).long()
        step = torch.arange(int(length.max()))
        inside = step < length.reshape(-1, 1)
        rows = (start.reshape(-1, 1) + step)[inside]
        snippet = torch.arange(2 * self.batch_size).repeat_interleave(length.reshape(-1))
        return rows, snippet, self.batch_size

    @torch.no_grad()
    def _finish_fit(self) -> None:
        self.network.zero.zero_()
        self.network.scale.fill_(1)
        rewards = self._score_in_chunks(self.expert.to(self.device))
        losses, wins = (torch.bincount(column, minlength=len(self._lengths)) for column in self._pairs.T)
        worst = (wins - losses).argsort()[: max(1, len(wins) // 4)]
        means = torch.stack([part.mean() for part in torch.split(rewards.cpu(), self._lengths.tolist())])
        self.network.zero.copy_(means[worst].mean())
        self.network.scale.copy_(rewards.std(correction=0).clamp(min=1e-6))

    def _score(self, rows: Rows) -> Tensor:
        raw = self.network(observation_of(rows.columns, "arrival"))
        return (raw - self.network.zero) / self.network.scale


@register_reward_model("drex")
@dataclasses.dataclass(kw_only=True, eq=False)
class DREXRewardModel(TREXRewardModel):
    """Disturbance-based Reward EXtrapolation (Brown et al. 2019b): T-REX with rankings made by noise.

    The more random actions are mixed into a policy's, the worse it does: `collect_noise_rollouts` collects such
    trajectories, each with its `noise_level` in a column, and less noise ranks higher. From the command line:
    `rewardlab collect ... data.collection.random_actions=0.5`, a directory a level, named from noisy to clean. Use it
    when there are demonstrations (or a policy cloned from them) but nobody ranked anything. Cloning the policy is left
    to the user.
    """

    ranked_by: ClassVar[str] = "noise_level"

    def _rank(self, column: Tensor) -> Tensor:
        return -column[0].reshape(())


def collect_noise_rollouts(
    policy: Policy,
    env: Env,
    noise_levels: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    episodes_per_level: int = 5,
    seed: int = 0,
) -> list[TensorDict]:
    """Whole episodes with their `noise_level`: the chance that a step's action is drawn from the action space.

    `policy` maps a batch of observations to a batch of actions. Every environment gives the same number of episodes
    at each level, because the first ones to end would be the short ones; so there may be a few more than asked for.
    """
    if env.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
        raise ConfigError("noise rollouts need a vector environment that resets in the same step, as make_vec_env's do")
    if not len(noise_levels) or not all(0 <= level <= 1 for level in noise_levels):
        raise ConfigError(f"noise_levels: found {list(noise_levels)}, expected probabilities")
    rng = np.random.default_rng(seed)
    env.action_space.seed(seed)
    quota = -(-episodes_per_level // env.num_envs)
    found: list[TensorDict] = []
    for number, level in enumerate(noise_levels):
        rollout = _roll(policy, env, level, quota, rng, seed + number)
        rollout["noise_level"] = torch.full(rollout.batch_size, float(level))
        found += _whole_episodes(rollout, quota)
    return found


def _roll(policy: Policy, env: Env, level: float, quota: int, rng: np.random.Generator, seed: int) -> TensorDict:
    """[T, N] until every environment has ended `quota` episodes."""
    observation, _ = env.reset(seed=seed)
    ended = np.zeros(env.num_envs, int)
    steps = []
    while ended.min() < quota:
        action = np.array(to_numpy(policy(observation)))
        noisy = rng.random(env.num_envs) < level
        action[noisy] = to_numpy(env.action_space.sample())[noisy]
        before = copy_observation(observation)
        observation, reward, terminated, truncated, infos = env.step(action)
        done = to_numpy(terminated) | to_numpy(truncated)
        after = copy_observation(observation)
        if done.any():
            rows = np.flatnonzero(done)
            after[torch.from_numpy(rows)] = copy_observation(final_rows(infos["final_obs"], rows))
        columns = {
            "observation": before,
            "next_observation": after,
            "action": torch.from_numpy(action),
            "reward": torch.as_tensor(to_numpy(reward), dtype=torch.float32),
            "terminated": torch.as_tensor(to_numpy(terminated), dtype=torch.bool),
            "truncated": torch.as_tensor(to_numpy(truncated), dtype=torch.bool),
        }
        steps.append(TensorDict(columns, batch_size=[env.num_envs]))
        ended += done
    return TensorDict.stack(steps)


def _whole_episodes(rollout: TensorDict, quota: int) -> list[TensorDict]:
    """Return the first `quota` episodes of each environment."""
    flat, shape = rollout.flatten(), tuple(rollout.batch_size)
    episodes = Rows({name: flat[name] for name in ("terminated", "truncated")}, shape).episodes()
    of_environments = itertools.groupby(episodes, key=lambda rows: int(rows[0]) % shape[1])
    return [flat[rows] for _, mine in of_environments for rows in itertools.islice(mine, quota)]
