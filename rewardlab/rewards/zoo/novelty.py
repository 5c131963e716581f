"""Rewards for what is new: their common scale, Random Network Distillation, curiosity, and Never Give Up."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.config.schema import AlgorithmConfig, RewardConfig
from rewardlab.errors import ConfigError
from rewardlab.models.encoders import ObservationNetwork, ObservationNorm, mlp
from rewardlab.models.running_stats import RunningMeanStd
from rewardlab.rewards.base import register_reward_model, with_rewards
from rewardlab.rewards.zoo.settings import LayerSizes
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transition_model import EpisodeRewardModel, TransitionRewardModel
from rewardlab.rewards.zoo.transitions import Columns, Rows, find, observation_of

# NGU: the constants of the paper's table 6.
_CLUSTER_DISTANCE = 0.008
_MAXIMUM_SIMILARITY = 8.0
_PSEUDO_COUNT = 0.001  # c
_KERNEL_EPSILON = 1e-3
_STEPS_TOGETHER = 1024
_SPARE_CANDIDATES = 6  # beyond k: the order of nearly equal distances depends on rounding


@dataclasses.dataclass(kw_only=True, eq=False)
class IntrinsicRewardModel(TransitionRewardModel):
    """Base of the novelty rewards: divides them by their running root mean square and adds them to the environment's.

    The statistics are over everything ever collected and change in `collect_data` alone, so a transition has one reward
    whatever batch it is in. (RND divides by the deviation of discounted intrinsic returns, which needs rows in time
    order; DI-engine scales by the extremes of each batch.)
    """

    intrinsic_reward_weight: float = 0.01
    # add: environment's + weight * i; assign: weight * i. Runs show the environment's reward to a model that is alone
    # with combine_mode replace; otherwise it comes in by combine_mode, and both mean weight * i.
    intrinsic_reward_type: Literal["add", "assign"] = "add"
    intrinsic_reward_norm: bool = True  # divide by the running root mean square
    hidden_size_list: LayerSizes = (64, 64, 128)

    def __post_init__(self) -> None:
        self.reward_statistics = RunningMeanStd()
        super().__post_init__()

    def check_run(self, reward: RewardConfig, algorithm: AlgorithmConfig) -> None:
        if self.intrinsic_reward_type == "add" and reward.combine_mode == "replace" and len(reward.models) > 1:
            raise ConfigError(
                f"reward.combine_mode: found replace beside intrinsic_reward_type: add of '{self.model_type}', one of "
                "several models; set combine_mode to add for the environment's reward, or intrinsic_reward_type to "
                "assign"
            )

    def _learn_statistics(self, rows: Rows) -> None:
        with torch.no_grad():
            self.reward_statistics.update(self._score_in_chunks(rows))

    def intrinsic(self, data: Any) -> Tensor:
        """The novelty of each transition, scaled but not weighted, in the shape of the batch."""
        with torch.no_grad():
            rows = self._read(data)
            return self._scaled(self._score_in_chunks(rows).reshape(rows.shape))

    def _scaled(self, novelty: Tensor) -> Tensor:
        if not self.intrinsic_reward_norm or self.reward_statistics.count == 0:
            return novelty
        square = self.reward_statistics.mean.float() ** 2 + self.reward_statistics.std**2
        return novelty / square.sqrt()

    def _with_rewards(self, data: Any, scores: Tensor) -> Any:
        reward = self.intrinsic_reward_weight * self._scaled(scores)
        said = find(data, "reward") if self.intrinsic_reward_type == "add" else None
        if said is not None:
            reward = reward + said.reshape(reward.shape).to(reward.device)
        return with_rewards(data, reward.float())


class DistillationNetwork(nn.Module):
    """How badly a trained network predicts a fixed random one from the observation `which`, and the action if asked."""

    def __init__(
        self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool, which: str, *, with_action: bool = False
    ) -> None:
        super().__init__()
        self.task, self.which, self.with_action = task, which, with_action
        self.norm = ObservationNorm(task.observation, vectors=obs_norm, pixels=obs_norm and not with_action)
        extra = task.action_width if with_action else 0
        self.target, self.predictor = (
            ObservationNetwork(task.observation, hidden_size_list, extra=extra) for _ in range(2)
        )
        self.target.requires_grad_(False)

    def update_norm(self, columns: Columns) -> None:
        self.norm.update(observation_of(columns, self.which))

    def forward(self, columns: Columns) -> Tensor:
        observation = self.norm(observation_of(columns, self.which))
        action = self.task.action_vectors(columns["action"]) if self.with_action else None
        with torch.no_grad():
            target = self.target(observation, action)
        return (self.predictor(observation, action) - target).square().mean(1)

    def learn(self, columns: Columns) -> Tensor:
        return self(columns).mean()


@register_reward_model("rnd")
@dataclasses.dataclass(kw_only=True, eq=False)
class RNDRewardModel(IntrinsicRewardModel):
    """Random Network Distillation (Burda et al. 2018): the more often a state was seen, the better its prediction.

        i(s, a, s') = || predictor(s') - target(s') ||^2 / features

    Use it to explore where the environment's reward is rare; it needs states and no actions. Observations are
    standardised by running statistics and clipped at 5 deviations. Deviations: predictor and target have the same
    layers (the paper's predictor has two more); the scale, see IntrinsicRewardModel. DI-engine judges s, not s'.
    """

    obs_norm: bool = True  # standardise observations by running statistics

    needed: ClassVar[tuple[str, ...]] = ("arrival",)

    def _build(self, task: Task) -> None:
        self.network = DistillationNetwork(task, self.hidden_size_list, self.obs_norm, "arrival")

    def _learn_statistics(self, rows: Rows) -> None:
        self.network.update_norm(rows.columns)
        super()._learn_statistics(rows)


class InverseDynamics(nn.Module):
    """Features of observations from which the action between two of them can be told: what the agent controls."""

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool) -> None:
        super().__init__()
        self.task = task
        self.norm = ObservationNorm(task.observation, vectors=obs_norm)
        self.features = ObservationNetwork(task.observation, hidden_size_list)
        self.size = hidden_size_list[-1]
        self.inverse = mlp([2 * self.size, self.size, task.action_width], orthogonal=True)

    def forward(self, columns: Columns, which: str) -> Tensor:
        """The features of "observation" or "next_observation"."""
        return self.features(self.norm(observation_of(columns, which)))

    def update_norm(self, columns: Columns) -> None:
        self.norm.update(observation_of(columns, "observation"))

    def predicted_action(self, before: Tensor, after: Tensor) -> Tensor:
        """Logits of the discrete actions, or the numbers of a continuous one."""
        return self.inverse(torch.cat([before, after], dim=1))

    def loss(self, before: Tensor, after: Tensor, action: Tensor) -> Tensor:
        predicted = self.predicted_action(before, after)
        if self.task.discrete:
            return functional.cross_entropy(predicted, action)
        return functional.mse_loss(predicted, action)

    def learn(self, columns: Columns) -> Tensor:
        return self.loss(self(columns, "observation"), self(columns, "next_observation"), columns["action"])


class ICMNetwork(nn.Module):
    """Inverse dynamics, and a forward model that predicts the next features."""

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool, forward_loss_weight: float) -> None:
        super().__init__()
        self.task = task
        self.dynamics = InverseDynamics(task, hidden_size_list, obs_norm)
        size = self.dynamics.size
        self.predictor = mlp([size + task.action_width, size, size], orthogonal=True)
        self.forward_loss_weight = forward_loss_weight

    def forward(self, columns: Columns) -> Tensor:
        before, after = (self.dynamics(columns, which) for which in ("observation", "next_observation"))
        return self._error(before, after, columns["action"])

    def _error(self, before: Tensor, after: Tensor, action: Tensor) -> Tensor:
        predicted = self.predictor(torch.cat([before, self.task.action_vectors(action)], dim=1))
        return 0.5 * (predicted - after).square().sum(1)

    def learn(self, columns: Columns) -> Tensor:
        before, after = (self.dynamics(columns, which) for which in ("observation", "next_observation"))
        forward = self._error(before, after, columns["action"]).mean()
        inverse = self.dynamics.loss(before, after, columns["action"])
        return (1 - self.forward_loss_weight) * inverse + self.forward_loss_weight * forward


@register_reward_model("icm")
@dataclasses.dataclass(kw_only=True, eq=False)
class ICMRewardModel(IntrinsicRewardModel):
    """Curiosity (Pathak et al. 2017), for discrete and continuous actions.

        i(s, a, s') = 1/2 || predictor(phi(s), a) - phi(s') ||^2
        loss        = (1 - beta) * L_inverse(a | phi(s), phi(s')) + beta * L_forward

    Use it instead of RND where much changes that the agent has no part in: phi keeps what depends on the action.
    L_inverse is the cross entropy of discrete actions or the squared error of continuous ones. The policy's own loss is
    not part of it. Deviation: the scale, see IntrinsicRewardModel.
    """

    obs_norm: bool = True  # standardise vectors by running statistics
    forward_loss_weight: Annotated[float, Field(ge=0, le=1)] = 0.2  # beta

    needed: ClassVar[tuple[str, ...]] = ("observation", "next_observation", "action")

    def _build(self, task: Task) -> None:
        self.network = ICMNetwork(task, self.hidden_size_list, self.obs_norm, self.forward_loss_weight)

    def _learn_statistics(self, rows: Rows) -> None:
        self.network.dynamics.update_norm(rows.columns)
        super()._learn_statistics(rows)


class NGUNetwork(nn.Module):
    """The embedding that episodes are remembered in, and RND for what is new over the whole training."""

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool) -> None:
        super().__init__()
        self.embedding = InverseDynamics(task, hidden_size_list, obs_norm)
        self.rnd = DistillationNetwork(task, hidden_size_list, obs_norm, "next_observation")

    def forward(self, columns: Columns) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings before and after the action, and the error of RND after it."""
        before, after = (self.embedding(columns, which) for which in ("observation", "next_observation"))
        return before, after, self.rnd(columns)

    def learn(self, columns: Columns) -> Tensor:
        return self.embedding.learn(columns) + self.rnd.learn(columns)


@register_reward_model("ngu")
@dataclasses.dataclass(kw_only=True, eq=False)
class NGURewardModel(EpisodeRewardModel, IntrinsicRewardModel):
    """Never Give Up (Badia et al. 2020): an episodic memory whose reward is raised by RND.

        K(x, y)    = eps / (max(|x - y|^2 / d_m^2 - xi, 0) + eps)     d_m^2: running mean over the k nearest
        r_episodic = 1 / (sqrt(sum of K over the k nearest in memory) + c), or 0 if that root exceeds s_max
        i          = r_episodic * clip(1 + (e - mean(e)) / std(e), 1, L)     e: the error of RND

    Use it where an episode should visit many states again and again over the whole training. Rewards belong to
    episodes: give `estimate` rows in time order with their ends (see `transitions.py`). An off-policy
    learner estimates what it collects and stores the reward; shuffled rows have no episode. The memory begins with the
    first observation of each episode in the batch and holds the last `memory_size` observations, in the features of
    the present network. Deviations: statistics change in `collect_data` only; one beta and discount instead of the
    paper's family of policies; memory of observations (the paper: of features as they were). (DI-engine splits this
    into two models.)
    """

    obs_norm: bool = True  # standardise observations by running statistics
    nearest_neighbors: PositiveInt = 10  # k
    memory_size: PositiveInt = 1000  # observations of an episode that a step is compared with, the latest ones
    max_life_long_factor: Annotated[float, Field(ge=1)] = 5.0  # L

    needed: ClassVar[tuple[str, ...]] = ("observation", "next_observation", "action")

    @property
    def longest_episode(self) -> int:  # type: ignore[override]
        return self.memory_size

    def _build(self, task: Task) -> None:
        self.network = NGUNetwork(task, self.hidden_size_list, self.obs_norm)
        self.distance_statistics = RunningMeanStd()
        self.error_statistics = RunningMeanStd()

    def _learn_statistics(self, rows: Rows) -> None:
        self.network.embedding.update_norm(rows.columns)
        self.network.rnd.update_norm(rows.columns)
        with torch.no_grad():
            before, after, error = self._embedded(rows)
            for episode in rows.episodes():
                distances = self._nearest(before[episode[:1]], after[episode])
                self.distance_statistics.update(distances[distances.isfinite()])
            self.error_statistics.update(error)
        super()._learn_statistics(rows)

    def _embedded(self, rows: Rows) -> tuple[Tensor, ...]:
        parts = [self.network(chunk.columns) for chunk in self._chunks(rows)]
        return tuple(torch.cat(part) for part in zip(*parts, strict=True))

    def _nearest(self, earlier: Tensor, after: Tensor) -> Tensor:
        """Squared distances of each embedding `after` to its k nearest in memory; infinite where there are fewer.

        The memory of the first one is `earlier`; each of the others has the one before it in memory too.
        """
        memory = torch.cat([earlier, after[:-1]])
        count = min(self.nearest_neighbors, len(memory))
        step = torch.arange(len(after), device=memory.device)
        nearest = []
        # Some steps at a time: all pairs of a long episode would not fit in memory.
        for now in torch.split(step, _STEPS_TOGETHER):
            newest = now + len(earlier) - 1  # place in memory of what came just before each step
            start = max(0, int(newest[0]) + 1 - self.memory_size)
            window = memory[start : int(newest[-1]) + 1]
            age = newest[:, None] - start - torch.arange(len(window), device=memory.device)
            found = _nearest_squared(after[now], window, (age >= 0) & (age < self.memory_size), count)
            nearest.append(functional.pad(found, (0, count - found.shape[1]), value=torch.inf))
        return torch.cat(nearest)

    def episodic(self, earlier: Tensor, after: Tensor) -> Tensor:
        """r_episodic along an episode, from the embeddings of its memory (at first one) and of what follows."""
        scale = self.distance_statistics.mean.float().clamp(min=1e-8) if self.distance_statistics.count > 0 else 1.0
        distances = (self._nearest(earlier, after) / scale - _CLUSTER_DISTANCE).clamp(min=0)
        similarity = (_KERNEL_EPSILON / (distances + _KERNEL_EPSILON)).sum(1).sqrt() + _PSEUDO_COUNT
        return torch.where(similarity > _MAXIMUM_SIMILARITY, 0.0, 1 / similarity)

    def _score_episodes(self, rows: Rows, carried: "list[Rows] | None") -> tuple[Tensor, "list[Rows]"]:
        """`carried` are the observations in memory of each environment's unfinished episode; none where it ended."""
        nothing = Rows({}, (0,))
        memory = [nothing] * rows.environments if carried is None else carried
        if not len(rows):
            return torch.zeros(0, device=self.device), memory
        before, after, error = self._embedded(rows)
        reward = torch.empty_like(error)
        following = [nothing] * rows.environments
        for episode, environment, first, unfinished in rows.episode_parts():
            remembered = memory[environment] if first else nothing
            earlier = self._embedded_memory(remembered) if len(remembered) else before[episode[:1]]
            reward[episode] = self.episodic(earlier, after[episode])
            if unfinished:
                following[environment] = self._remember(remembered, rows, episode)
        if self.error_statistics.count > 0:
            surprise = 1 + (error - self.error_statistics.mean.float()) / self.error_statistics.std
            reward = reward * surprise.clamp(1, self.max_life_long_factor)
        return reward, following

    def _embedded_memory(self, remembered: Rows) -> Tensor:
        return torch.cat([self.network.embedding(part.columns, "observation") for part in self._chunks(remembered)])

    def _remember(self, remembered: Rows, rows: Rows, episode: Tensor) -> Rows:
        """Return the memory after an episode's rows: its latest observations."""
        if not len(remembered):
            remembered = rows.observations("observation", episode[:1])
        arrived = rows.observations("next_observation", episode[-self.memory_size :])
        kept = remembered.part(max(0, len(remembered) + len(arrived) - self.memory_size), len(remembered))
        return Rows(
            {n: torch.cat([c, arrived.columns[n]]) for n, c in kept.columns.items()}, (len(kept) + len(arrived),)
        )


def _nearest_squared(points: Tensor, memory: Tensor, allowed: Tensor, count: int) -> Tensor:
    """Return the squared distances of each point to its nearest rows of `memory`, of those that `allowed` [P, M] marks.

    Matrix products in double precision find the candidates. Their distances are computed from differences, because
    products round away small distances, which count most here.
    """
    exact_points, exact_memory = points.double(), memory.double()
    squared = exact_memory.square().sum(1) - 2 * exact_points @ exact_memory.T  # up to |point|^2, which orders nothing
    squared.masked_fill_(~allowed, torch.inf)
    chosen = squared.topk(min(count + _SPARE_CANDIDATES, len(memory)), dim=1, largest=False)
    distance = torch.cdist(points[:, None], memory[chosen.indices], compute_mode="donot_use_mm_for_euclid_dist")
    found = distance[:, 0].square().masked_fill(chosen.values.isinf(), torch.inf)
    return found.topk(min(count, found.shape[1]), dim=1, largest=False).values
