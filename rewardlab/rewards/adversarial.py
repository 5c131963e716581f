"""Rewards learned against the policy, from what tells the expert's transitions from the policy's."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.errors import ConfigError, DataError
from rewardlab.models.observation_network import ObservationNetwork, ObservationNorm
from rewardlab.registry import unknown_name
from rewardlab.rewards.base import register_reward_model
from rewardlab.rewards.task import Task
from rewardlab.rewards.transition_model import ExpertRewardModel, random_batches
from rewardlab.rewards.transitions import Columns, Rows, observation_of

_FORMS = ("centered", "logit", "neg_log")
_LARGEST = 10.0  # a discriminator that is certain must not drown everything else
_BASELINE_ROWS = 4096


class StateActionNetwork(nn.Module):
    """A number for each (observation, action); vectors are standardised as the expert's are."""

    baseline: Tensor

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool, *, last_bias: bool = True) -> None:
        super().__init__()
        self.task = task
        self.norm = ObservationNorm(task.observation, vectors=obs_norm)
        self.network = ObservationNetwork(
            task.observation, hidden_size_list, outputs=1, extra=task.action_width, last_bias=last_bias
        )
        # What the policy's transitions get on average.
        self.register_buffer("baseline", torch.zeros(()))

    def forward(self, columns: Columns) -> Tensor:
        observation = self.norm(observation_of(columns, "observation"))
        return self.network(observation, self.task.action_vectors(columns["action"])).squeeze(1)

    @abstractmethod
    def learn(self, expert: Columns, policy: Columns) -> Tensor: ...


@dataclasses.dataclass(kw_only=True, eq=False)
class AdversarialRewardModel(ExpertRewardModel):
    """Base of the models whose every update sees a batch of the expert and one of the policy."""

    hidden_size_list: Sequence[int] = (64, 64)
    obs_norm: bool = True  # standardise vectors by the expert's mean and deviation

    @property
    @abstractmethod
    def network(self) -> StateActionNetwork: ...

    def _learn_expert(self, rows: Rows) -> None:
        self.network.norm.update(observation_of(rows.columns, "observation"))

    def _losses(self) -> Iterator[Tensor]:
        batches = zip(self._batches(self.expert.columns), self._batches(self._collected()), strict=True)
        for expert, policy in batches:
            yield self.network.learn(expert, policy)

    def train(self) -> None:
        """Make `update_per_collect` updates, each on as many random rows of the expert as of the policy."""
        super().train()
        with torch.no_grad():
            (policy,) = random_batches(self._collected(), 1, _BASELINE_ROWS, self._generator)
            (expert,) = random_batches(self.expert.columns, 1, _BASELINE_ROWS, self._generator)
            policy_value, expert_value = (self._mean_value(columns) for columns in (policy, expert))
        self.network.baseline.copy_(policy_value)
        self.log("policy_value", policy_value)
        self.log("expert_value", expert_value)

    def _mean_value(self, columns: Columns) -> Tensor:
        rows = Rows(self._on_device(columns), (len(columns["action"]),))
        values = torch.cat([self.network(chunk.columns) for chunk in self._chunks(rows)])
        return values.clamp(-_LARGEST, _LARGEST).mean()

    def _check_ready(self) -> None:
        if not self.updates:
            raise DataError(
                f"reward model '{self.model_type}' has not been trained: call load_expert_data, collect_data, train"
            )


class Discriminator(StateActionNetwork):
    """The logit of "this is the expert's": of (s, a), or shaped by a potential of s and s'."""

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool, shaping: float | None) -> None:
        super().__init__(task, hidden_size_list, obs_norm)
        self.discount = shaping
        self.potential = None if shaping is None else ObservationNetwork(task.observation, hidden_size_list, outputs=1)

    def forward(self, columns: Columns) -> Tensor:
        logit = super().forward(columns)
        if self.potential is None or self.discount is None:
            return logit
        before, after = (
            self.potential(self.norm(observation_of(columns, which))).squeeze(1)
            for which in ("observation", "next_observation")
        )
        if "terminated" in columns:
            after = after * ~columns["terminated"]
        return logit + self.discount * after - before

    def learn(self, expert: Columns, policy: Columns) -> Tensor:
        theirs, ours = self(expert), self(policy)
        return functional.softplus(-theirs).mean() + functional.softplus(ours).mean()


@register_reward_model("gail")
@dataclasses.dataclass(kw_only=True, eq=False)
class GAILRewardModel(AdversarialRewardModel):
    """Generative Adversarial Imitation Learning (Ho & Ermon 2016), for vectors, images and both.

        D(s, a)  = sigmoid(f(s, a)), the probability that a transition is the expert's
        loss     = -E_expert[log D] - E_policy[log(1 - D)]
        centered = f - E_policy[f]   logit = f = log D - log(1 - D)   neg_log = -log(1 - D)

    Use it with an on-policy learner and a few expert episodes. `neg_log` (the common form, and DI-engine's) is
    positive, so a long episode wins whatever the agent does in it; `logit` may be negative throughout, so that a
    short one wins. `centered` is zero on average for the policy of the moment: only being more like the expert than
    usual pays. `airl_shaping` adds the potential of AIRL (Fu et al. 2018), f = g(s, a) + discount * h(s') - h(s),
    with h = 0 after the end; the policy's log-probability is not subtracted, since it is not known for the expert's
    actions.
    """

    reward_form: Literal["centered", "logit", "neg_log"] = "centered"
    airl_shaping: bool = False
    discount: float = 0.99  # of airl_shaping

    optional: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.reward_form not in _FORMS:
            raise ConfigError(unknown_name("reward_form", str(self.reward_form), _FORMS))
        super().__post_init__()

    def _build(self, task: Task) -> None:
        shaping = self.discount if self.airl_shaping else None
        self.discriminator = Discriminator(task, self.hidden_size_list, self.obs_norm, shaping)

    @property
    def network(self) -> Discriminator:
        return self.discriminator

    def _columns_needed(self) -> tuple[str, ...]:
        return (*self.needed, "next_observation") if self.airl_shaping else self.needed

    def _columns_used(self) -> tuple[str, ...]:
        return ("terminated",) if self.airl_shaping else ()

    def _score(self, rows: Rows) -> Tensor:
        logit = self.network(rows.columns).clamp(-_LARGEST, _LARGEST)
        if self.reward_form == "neg_log":
            return functional.softplus(logit)
        return logit if self.reward_form == "logit" else logit - self.network.baseline


class CostNetwork(StateActionNetwork):
    """Minus the cost of a transition."""

    def learn(self, expert: Columns, policy: Columns) -> Tensor:
        """Maximum entropy: the expert's rewards against the log of the partition function, by importance sampling."""
        theirs, ours = self(expert), self(policy)
        weighted = torch.cat([ours - policy["log_prob"] if "log_prob" in policy else ours, theirs])
        return -theirs.mean() + weighted.logsumexp(0) - math.log(len(weighted))


@register_reward_model("guided_cost")
@dataclasses.dataclass(kw_only=True, eq=False)
class GuidedCostRewardModel(AdversarialRewardModel):
    """Guided Cost Learning (Finn et al. 2016): a maximum-entropy reward, its partition function from the policy.

        loss = -E_expert[r] + log mean_j(exp(r_j) / q_j)     j over the policy's and the expert's rows of a batch

    Use it like GAIL when a reward is wanted that outlives the policy it was trained with. q is the policy's
    probability of its action, exp(`log_prob`) where the batch has it, else 1; the expert's is unknown and taken as 1.
    The loss does not fix the level of r: the policy's average of the moment is zero. Deviations: transitions instead
    of whole trajectories, as in DI-engine; weight decay in place of the paper's two regularisers of time series.
    """

    weight_decay: float = 1e-3

    optional: ClassVar[tuple[str, ...]] = ("log_prob",)

    def _build(self, task: Task) -> None:
        self.cost = CostNetwork(task, self.hidden_size_list, self.obs_norm, last_bias=False)

    @property
    def network(self) -> CostNetwork:
        return self.cost

    def _make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)

    def _score(self, rows: Rows) -> Tensor:
        return self.network(rows.columns).clamp(-_LARGEST, _LARGEST) - self.network.baseline
