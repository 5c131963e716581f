"""Rewards learned against the policy, from what tells the expert's transitions from the policy's."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.models.encoders import ObservationNetwork, ObservationNorm
from rewardlab.rewards.base import register_reward_model
from rewardlab.rewards.zoo.settings import LayerSizes
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transition_model import ExpertRewardModel, random_batches
from rewardlab.rewards.zoo.transitions import Columns, Rows, observation_of

_LARGEST = 10.0  # a discriminator that is certain must not drown everything else
_JUDGED_ROWS = 4096
_REFERENCES = 8  # continuous actions that an action is compared with


class StateActionNetwork(nn.Module):
    """A number for each (observation, action); vectors are standardised as the expert's are.

    Discrete actions are outputs, so that one pass values all of them; continuous ones are inputs.
    """

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool, *, last_bias: bool = True) -> None:
        super().__init__()
        self.task = task
        self.norm = ObservationNorm(task.observation, vectors=obs_norm)
        outputs, extra = (task.action_width, 0) if task.discrete else (1, task.action_width)
        self.network = ObservationNetwork(
            task.observation, hidden_size_list, outputs=outputs, extra=extra, last_bias=last_bias
        )

    def forward(self, columns: Columns) -> Tensor:
        observation = self.norm(observation_of(columns, "observation"))
        if self.task.discrete:
            return _taken(self.network(observation), columns)
        return self.network(observation, columns["action"]).squeeze(1)


def _taken(values: Tensor, columns: Columns) -> Tensor:
    """Of the values [B, actions], those of the actions that were taken."""
    return values.gather(1, columns["action"][:, None]).squeeze(1)


@dataclasses.dataclass(kw_only=True, eq=False)
class AdversarialRewardModel(ExpertRewardModel):
    """Base of the models whose every update sees a batch of the expert and one of the policy."""

    hidden_size_list: LayerSizes = (64, 64)
    obs_norm: bool = True  # standardise vectors by the expert's mean and deviation

    @property
    @abstractmethod
    def network(self) -> Any:
        """A StateActionNetwork with `learn(expert, policy)`, a loss, and `refer_to(policy, values)`.

        The latter takes what rewards are relative to from rows of the policy and the network's answers for them.
        """

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
            policy, policy_values = self._judged(self._collected())
            _, expert_values = self._judged(self.expert.columns)
            self.network.refer_to(policy, policy_values)
        self.log("policy_value", policy_values.mean())
        self.log("expert_value", expert_values.mean())

    def _judged(self, columns: Columns) -> tuple[Columns, Tensor]:
        """Random rows, and the network's answers for them."""
        (chosen,) = random_batches(columns, 1, _JUDGED_ROWS, self._generator)
        rows = Rows(chosen, (len(chosen["action"]),)).to(self.device)
        values = torch.cat([self.network(chunk.columns) for chunk in self._chunks(rows)])
        return rows.columns, values.clamp(-_LARGEST, _LARGEST)


class Discriminator(StateActionNetwork):
    """The logit of "this is the expert's": of (s, a), or shaped by a potential of s and s'."""

    reference: Tensor

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool, shaping: float | None) -> None:
        super().__init__(task, hidden_size_list, obs_norm)
        self.discount = shaping
        self.potential = None if shaping is None else ObservationNetwork(task.observation, hidden_size_list, outputs=1)
        self.register_buffer("reference", torch.zeros(0 if task.discrete else _REFERENCES, task.action_width))

    def refer_to(self, policy: Columns, values: Tensor) -> None:
        if not self.task.discrete:
            rows = torch.arange(_REFERENCES) * len(values) // _REFERENCES  # of rows in random order
            self.reference.copy_(policy["action"][rows])

    def advantage(self, columns: Columns) -> Tensor:
        """The logit of the action taken, over the mean of all discrete actions, or of some others, in its state."""
        observation = self.norm(observation_of(columns, "observation"))
        if self.task.discrete:
            logits = self.network(observation).clamp(-_LARGEST, _LARGEST)
            return _taken(logits, columns) - logits.mean(1)
        seen = self.network.features(observation)
        others = torch.stack([self._logit(seen, action.expand(len(seen), -1)) for action in self.reference])
        return self._logit(seen, columns["action"]) - others.mean(0)

    def _logit(self, seen: Tensor, action: Tensor) -> Tensor:
        return self.network.from_features(seen, action).squeeze(1).clamp(-_LARGEST, _LARGEST)

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
        centered = f(s, a) - mean of f(s, .)     logit = f = log D - log(1 - D)     neg_log = -log(1 - D)

    Use it with an on-policy learner and a few expert episodes. `neg_log` (the common form, and DI-engine's) is
    positive, so a long episode wins whatever the agent does in it: on CartPole even if every action of the expert is
    flipped. `logit` is negative while the policy is bad, so that ending early wins. `centered` (ours) compares the
    action with others in the same state (all discrete ones, or some of the policy's continuous ones): being alive or
    somewhere pays nothing, only acting like the expert does. `airl_shaping` adds the potential of AIRL (Fu et al. 2018)
    to the discriminator, f = g(s, a) + discount * h(s') - h(s), with h = 0 after the end; it cancels in `centered`,
    which leaves g. The policy's log-probability is not subtracted, since it is not known for the expert's actions.
    """

    reward_form: Literal["centered", "logit", "neg_log"] = "centered"
    airl_shaping: bool = False
    discount: float = 0.99  # of airl_shaping

    def _build(self, task: Task) -> None:
        shaping = self.discount if self.airl_shaping else None
        self.discriminator = Discriminator(task, self.hidden_size_list, self.obs_norm, shaping)

    @property
    def network(self) -> Discriminator:
        return self.discriminator

    @property
    def needed(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("observation", "action", "next_observation") if self.airl_shaping else ("observation", "action")

    @property
    def optional(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("terminated",) if self.airl_shaping else ()

    def _score(self, rows: Rows) -> Tensor:
        if self.reward_form == "centered":
            return self.network.advantage(rows.columns)
        logit = self.network(rows.columns).clamp(-_LARGEST, _LARGEST)
        return logit if self.reward_form == "logit" else functional.softplus(logit)


class CostNetwork(StateActionNetwork):
    """Minus the cost of a transition."""

    baseline: Tensor

    def __init__(self, task: Task, hidden_size_list: Sequence[int], obs_norm: bool) -> None:
        super().__init__(task, hidden_size_list, obs_norm, last_bias=False)
        self.register_buffer("baseline", torch.zeros(()))

    def refer_to(self, policy: Columns, values: Tensor) -> None:
        self.baseline.copy_(values.mean())

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
        self.cost = CostNetwork(task, self.hidden_size_list, self.obs_norm)

    @property
    def network(self) -> CostNetwork:
        return self.cost

    def _make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)

    def _score(self, rows: Rows) -> Tensor:
        return self.network(rows.columns).clamp(-_LARGEST, _LARGEST) - self.network.baseline
