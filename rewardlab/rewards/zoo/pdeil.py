"""Imitation by probability densities: reward from Gaussians of the expert's and the policy's states."""

import dataclasses
import math
from typing import Annotated, ClassVar

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from rewardlab.rewards.base import register_reward_model
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transition_model import ExpertRewardModel
from rewardlab.rewards.zoo.transitions import Rows, feature_count, observation_features, on_device


class Gaussian(nn.Module):
    """A normal distribution fitted to rows, its covariance regularised by a ridge."""

    mean: Tensor
    cholesky: Tensor
    count: Tensor

    def __init__(self, size: int, ridge: float) -> None:
        super().__init__()
        self.ridge = ridge
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("cholesky", torch.eye(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def fit(self, rows: Tensor) -> None:
        centered = rows - rows.mean(0)
        covariance = centered.T @ centered / len(rows)
        covariance.diagonal().add_(self.ridge)
        self.mean.copy_(rows.mean(0))
        self.cholesky.copy_(torch.linalg.cholesky(covariance))
        self.count.fill_(len(rows))

    def squared_distance(self, rows: Tensor) -> Tensor:
        """Mahalanobis'."""
        whitened = torch.linalg.solve_triangular(self.cholesky, (rows - self.mean).T, upper=False)
        return whitened.square().sum(0)

    def forward(self, rows: Tensor) -> Tensor:
        """The log-density of each row."""
        log_volume = self.cholesky.diagonal().log().sum() + 0.5 * len(self.mean) * math.log(2 * math.pi)
        return -0.5 * self.squared_distance(rows) - log_volume


class DiscreteExpertPolicy(nn.Module):
    """pi(a | s) by Bayes' rule, from one Gaussian of the states in which each action was taken."""

    prior: Tensor

    def __init__(self, states: int, actions: int, ridge: float) -> None:
        super().__init__()
        self.states_of = nn.ModuleList(Gaussian(states, ridge) for _ in range(actions))
        self.register_buffer("prior", torch.full((actions,), 1 / actions, dtype=torch.float64))

    def fit(self, states: Tensor, actions: Tensor) -> None:
        for number, gaussian in enumerate(self.states_of):
            chosen = states[actions == number]
            # An action that the expert never took is a rare one in any of its states.
            gaussian.fit(chosen if len(chosen) else states)  # type: ignore[operator]
        counts = torch.bincount(actions, minlength=len(self.prior))
        self.prior.copy_((counts + 1) / (counts + 1).sum())

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        """log pi(a | s)."""
        joint = torch.stack([gaussian(states) for gaussian in self.states_of], dim=1) + self.prior.log()
        return joint.log_softmax(1).gather(1, actions[:, None]).squeeze(1)


class ContinuousExpertPolicy(nn.Module):
    """pi(a | s) relative to its peak, from one Gaussian of (s, a)."""

    def __init__(self, states: int, actions: int, ridge: float) -> None:
        super().__init__()
        self.state = Gaussian(states, ridge)
        self.both = Gaussian(states + actions, ridge)

    def fit(self, states: Tensor, actions: Tensor) -> None:
        self.state.fit(states)
        self.both.fit(torch.cat([states, actions], dim=1))

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        # Of a joint Gaussian, what is left of the distance after the state's part is the distance of the action from
        # its conditional mean.
        both = self.both.squared_distance(torch.cat([states, actions], dim=1))
        return -0.5 * (both - self.state.squared_distance(states)).clamp(min=0)


@register_reward_model("pdeil")
@dataclasses.dataclass(kw_only=True, eq=False)
class PDEILRewardModel(ExpertRewardModel):
    """Probability Density Estimation based Imitation Learning (Liu et al. 2021), discrete and continuous.

        r(s, a) = p_expert(s) * pi_expert(a | s) / (alpha * p_expert(s) + (1 - alpha) * p_policy(s))     in [0, 1/alpha]

    Use it for low-dimensional tasks whose expert keeps to one region. All densities are Gaussians: the expert's
    fitted by `load_expert_data`, the policy's by `train` (before that p_policy is 0). Images are taken as 4x4
    pictures. Deviations: pi_expert(a | s) of continuous actions is relative to its peak, so that the reward has a
    bound and a constant action a meaning; of discrete actions it is Bayes' rule over Gaussians (DI-engine: an SVM);
    covariances have a ridge.
    """

    begins_untrained: ClassVar[bool] = False  # the expert's data is all it needs

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.5
    ridge: PositiveFloat = 1e-4  # added to every variance, in the squared units of the observation

    def _build(self, task: Task) -> None:
        states = feature_count(task)
        self.expert_states, self.policy_states = Gaussian(states, self.ridge), Gaussian(states, self.ridge)
        kind = DiscreteExpertPolicy if task.discrete else ContinuousExpertPolicy
        self.expert_policy = kind(states, task.action_width, self.ridge)

    def _state_action(self, rows: Rows) -> tuple[Tensor, Tensor]:
        action = rows.columns["action"]
        states = observation_features(rows.columns, self.task)
        return states, action if self.task.discrete else action.double()

    def _learn_expert(self, rows: Rows) -> None:
        states, actions = self._state_action(rows)
        self.expert_states.fit(states)
        self.expert_policy.fit(states, actions)

    def train(self) -> None:
        """Fit the policy's density to all that was collected."""
        self.policy_states.fit(observation_features(on_device(self._collected(), self.device), self.task))
        self.updates += 1

    def _is_ready(self) -> bool:
        return bool(self.expert_states.count)

    def _score(self, rows: Rows) -> Tensor:
        states, actions = self._state_action(rows)
        expert = self.expert_states(states)
        mixture = expert + math.log(self.alpha)
        if self.policy_states.count and self.alpha < 1:
            mixture = torch.logaddexp(mixture, self.policy_states(states) + math.log(1 - self.alpha))
        return torch.exp(expert - mixture + self.expert_policy(states, actions)).float()
