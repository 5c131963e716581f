"""Random Expert Distillation: reward for staying where the expert was."""

import dataclasses
import math
from collections.abc import Sequence

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from rewardlab.models.encoders import ObservationNetwork, ObservationNorm
from rewardlab.rewards.base import register_reward_model
from rewardlab.rewards.zoo.settings import LayerSizes
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transition_model import FittedOnceRewardModel
from rewardlab.rewards.zoo.transitions import Columns, Rows, observation_of

_EXPERT_REWARD = 0.9


class REDNetwork(nn.Module):
    """How badly a network trained on the expert's (s, a) predicts a fixed random one."""

    sigma: Tensor

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool) -> None:
        super().__init__()
        self.task = task
        self.norm = ObservationNorm(task.observation, vectors=obs_norm)
        self.target, self.predictor = (
            ObservationNetwork(task.observation, hidden_size_list, extra=task.action_width) for _ in range(2)
        )
        self.target.requires_grad_(False)
        self.register_buffer("sigma", torch.ones(()))

    def forward(self, columns: Columns) -> Tensor:
        observation = self.norm(observation_of(columns, "observation"))
        action = self.task.action_vectors(columns["action"])
        with torch.no_grad():
            target = self.target(observation, action)
        return (self.predictor(observation, action) - target).square().mean(1)

    def learn(self, columns: Columns) -> Tensor:
        return self(columns).mean()


@register_reward_model("red")
@dataclasses.dataclass(kw_only=True, eq=False)
class REDRewardModel(FittedOnceRewardModel):
    """Random Expert Distillation (Wang et al. 2019): the support of the expert, estimated once.

        r(s, a) = exp(-sigma * || predictor(s, a) - target(s, a) ||^2)     in (0, 1]

    Use it where adversarial training is unstable: the first `train` fits it to the expert, later ones do nothing, and
    the reward stands still. sigma is chosen such that the expert's mean error gets 0.9 (the paper: the expert's are
    mostly close to 1; DI-engine: a fixed 0.5). The median would not do: an expert spends most of its time where it is
    predicted best, and what led there would get nothing. Mind that the reward is positive: where failing ends an
    episode, survival alone earns a little.
    """

    hidden_size_list: LayerSizes = (64, 64, 64)
    obs_norm: bool = True  # standardise vectors by the expert's mean and deviation
    update_per_collect: PositiveInt = 1000  # in the one call of `train` that fits
    sigma: PositiveFloat | None = None  # null = from the expert's data

    def _build(self, task: Task) -> None:
        self.network = REDNetwork(task, self.hidden_size_list, self.obs_norm)

    def _learn_expert(self, rows: Rows) -> None:
        self.network.norm.update(observation_of(rows.columns, "observation"))
        self.updates = 0

    @torch.no_grad()
    def _finish_fit(self) -> None:
        errors = torch.cat([self.network(chunk.columns) for chunk in self._chunks(self.expert.to(self.device))])
        sigma = self.sigma or -math.log(_EXPERT_REWARD) / max(float(errors.mean()), 1e-12)
        self.network.sigma.fill_(sigma)
        self.log("sigma", sigma)

    def _score(self, rows: Rows) -> Tensor:
        return torch.exp(-self.network.sigma * self.network(rows.columns))
