"""Random Expert Distillation: reward for staying where the expert was."""

import dataclasses
import math
from collections.abc import Sequence

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from rewardlab.rewards.base import register_reward_model
from rewardlab.rewards.zoo.novelty import DistillationNetwork
from rewardlab.rewards.zoo.settings import LayerSizes
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transition_model import FittedOnceRewardModel
from rewardlab.rewards.zoo.transitions import Rows

_EXPERT_REWARD = 0.9


class REDNetwork(DistillationNetwork):
    """Distillation of the expert's (s, a), with the scale that errors are judged by."""

    sigma: Tensor

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool) -> None:
        super().__init__(task, hidden_size_list, obs_norm, "observation", with_action=True)
        self.register_buffer("sigma", torch.ones(()))


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
        self.network.update_norm(rows.columns)
        self.updates = 0

    @torch.no_grad()
    def _finish_fit(self) -> None:
        errors = torch.cat([self.network(chunk.columns) for chunk in self._chunks(self.expert.to(self.device))])
        sigma = self.sigma or -math.log(_EXPERT_REWARD) / max(float(errors.mean()), 1e-12)
        self.network.sigma.fill_(sigma)
        self.log("sigma", sigma)

    def _score(self, rows: Rows) -> Tensor:
        return torch.exp(-self.network.sigma * self.network(rows.columns))
