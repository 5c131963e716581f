"""The Intrinsic Curiosity Module: reward for what the agent's own actions cause and it did not foresee."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.models.encoders import ObservationNetwork, ObservationNorm, mlp
from rewardlab.rewards.base import register_reward_model
from rewardlab.rewards.zoo.novelty import IntrinsicRewardModel
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transitions import Columns, Rows, observation_of


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
