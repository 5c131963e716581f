"""Never Give Up: reward for what is new in this episode, more so if it is new at all."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from rewardlab.models.running_stats import RunningMeanStd
from rewardlab.rewards.base import LooksAt, register_reward_model
from rewardlab.rewards.zoo.icm import InverseDynamics
from rewardlab.rewards.zoo.novelty import DistillationNetwork, IntrinsicRewardModel
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transitions import Columns, Rows

# The constants of the paper's table 6.
_CLUSTER_DISTANCE = 0.008
_MAXIMUM_SIMILARITY = 8.0
_PSEUDO_COUNT = 0.001  # c
_KERNEL_EPSILON = 1e-3
_STEPS_TOGETHER = 1024


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
class NGURewardModel(IntrinsicRewardModel):
    """Never Give Up (Badia et al. 2020): an episodic memory whose reward is raised by RND.

        K(x, y)    = eps / (max(|x - y|^2 / d_m^2 - xi, 0) + eps)     d_m^2: running mean over the k nearest
        r_episodic = 1 / (sqrt(sum of K over the k nearest in memory) + c), or 0 if that root exceeds s_max
        i          = r_episodic * clip(1 + (e - mean(e)) / std(e), 1, L)     e: the error of RND

    Use it where an episode should visit many states again and again over the whole training. Rewards belong to
    episodes: give `estimate` rows in time order with their ends (see `transitions.py`). An off-policy
    learner estimates what it collects and stores the reward; shuffled rows have no episode. The memory begins with the
    first observation of each episode in the batch. Deviations: statistics change in `collect_data` only; one beta and
    discount instead of the paper's family of policies. (DI-engine splits this into two models.)
    """

    obs_norm: bool = True  # standardise observations by running statistics
    nearest_neighbors: PositiveInt = 10  # k
    max_life_long_factor: Annotated[float, Field(ge=1)] = 5.0  # L

    needed: ClassVar[tuple[str, ...]] = ("observation", "next_observation", "action")
    optional: ClassVar[tuple[str, ...]] = ("terminated", "truncated")
    looks_at: ClassVar[LooksAt] = "episodes"

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

    def _nearest(self, first: Tensor, after: Tensor) -> Tensor:
        """Squared distances of each embedding to its k nearest earlier ones; infinite where there are fewer."""
        memory = torch.cat([first, after[:-1]])
        count = min(self.nearest_neighbors, len(memory))
        step = torch.arange(len(memory), device=memory.device)
        nearest = []
        # Some steps at a time: all pairs of a long episode would not fit in memory.
        for now in torch.split(step, _STEPS_TOGETHER):
            # Not by matrix products: those round away small distances, which count most here.
            distance = torch.cdist(after[now], memory, compute_mode="donot_use_mm_for_euclid_dist")
            squared = distance.square().masked_fill(step > now[:, None], torch.inf)
            nearest.append(squared.topk(count, dim=1, largest=False).values)
        return torch.cat(nearest)

    def episodic(self, first: Tensor, after: Tensor) -> Tensor:
        """r_episodic along one episode, from the embeddings of its first observation and of what followed."""
        scale = self.distance_statistics.mean.float().clamp(min=1e-8) if self.distance_statistics.count > 0 else 1.0
        distances = (self._nearest(first, after) / scale - _CLUSTER_DISTANCE).clamp(min=0)
        similarity = (_KERNEL_EPSILON / (distances + _KERNEL_EPSILON)).sum(1).sqrt() + _PSEUDO_COUNT
        return torch.where(similarity > _MAXIMUM_SIMILARITY, 0.0, 1 / similarity)

    def _score(self, rows: Rows) -> Tensor:
        if not len(rows):
            return torch.zeros(0)
        before, after, error = self._embedded(rows)
        reward = torch.empty_like(error)
        for episode in rows.episodes():
            reward[episode] = self.episodic(before[episode[:1]], after[episode])
        if self.error_statistics.count > 0:
            surprise = 1 + (error - self.error_statistics.mean.float()) / self.error_statistics.std
            reward = reward * surprise.clamp(1, self.max_life_long_factor)
        return reward
