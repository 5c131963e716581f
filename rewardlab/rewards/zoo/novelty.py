"""Rewards for what is new: their common scale, and Random Network Distillation."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rewardlab.config.schema import AlgorithmConfig, RewardConfig
from rewardlab.errors import ConfigError
from rewardlab.models.encoders import ObservationNetwork, ObservationNorm
from rewardlab.models.running_stats import RunningMeanStd
from rewardlab.rewards.base import register_reward_model, with_rewards
from rewardlab.rewards.zoo.settings import LayerSizes
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transition_model import TransitionRewardModel
from rewardlab.rewards.zoo.transitions import Columns, Rows, find, observation_of


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
            novelty = self._score_in_chunks(rows).reshape(rows.shape)
        if not self.intrinsic_reward_norm or self.reward_statistics.count == 0:
            return novelty
        square = self.reward_statistics.mean.float() ** 2 + self.reward_statistics.std**2
        return novelty / square.sqrt()

    def estimate(self, data: Any) -> Any:
        reward = self.intrinsic_reward_weight * self.intrinsic(data)
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
