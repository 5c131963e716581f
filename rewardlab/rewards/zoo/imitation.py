"""Imitation without a discriminator: Random Expert Distillation, PWIL and PDEIL, all fitted to the expert at once."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from rewardlab.rewards.base import register_reward_model
from rewardlab.rewards.zoo.coupling import Floats, couple
from rewardlab.rewards.zoo.novelty import DistillationNetwork
from rewardlab.rewards.zoo.settings import LayerSizes
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transition_model import EpisodeRewardModel, ExpertRewardModel, FittedOnceRewardModel
from rewardlab.rewards.zoo.transitions import Columns, Rows, feature_count, observation_features, on_device

_EXPERT_REWARD = 0.9  # of RED, for the expert's mean error


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


class ExpertAtoms(nn.Module):
    """The expert's (s, a), standardised, each with the mass 1 / their number."""

    rows: Tensor
    mean: Tensor
    std: Tensor
    horizon: Tensor

    def __init__(self, size: int, count: int = 0) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(count, size, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("std", torch.ones(size, dtype=torch.float64))
        self.register_buffer("horizon", torch.ones((), dtype=torch.int64))

    @classmethod
    def fitted(cls, features: Tensor, horizon: int) -> "ExpertAtoms":
        atoms = cls(features.shape[1])
        deviation = features.std(0, correction=0)
        atoms.mean = features.mean(0)
        # A constant number (an action that is always 1) must not make every other value infinitely far.
        atoms.std = torch.where(deviation > 1e-6, deviation, 1.0)
        atoms.rows = (features - atoms.mean) / atoms.std
        atoms.horizon.fill_(horizon)
        return atoms

    def whole_mass(self, episodes: int) -> Floats:
        """Return the mass [E, A] of each atom at the beginning of episodes."""
        return np.full((episodes, len(self.rows)), 1 / len(self.rows))

    def forward(self, features: Tensor, mass: Floats) -> Tensor:
        """Return the cost of each step [T, F] of an episode; see `couple`."""
        points = ((features - self.mean) / self.std).cpu().numpy()
        cost = couple(points, self.rows.cpu().numpy(), 1 / int(self.horizon), mass)
        return torch.from_numpy(cost).to(features.device)


@register_reward_model("pwil")
@dataclasses.dataclass(kw_only=True, eq=False)
class PWILRewardModel(EpisodeRewardModel, FittedOnceRewardModel):
    """Primal Wasserstein Imitation Learning (Dadashi et al. 2021): a greedy coupling with the expert, no training.

        c_t = sum over the nearest atoms of mass * distance, until the mass 1 / T of the step is used up
        r_t = alpha * exp(-beta * T / sqrt(F) * c_t)     F: numbers in (s, a), T: horizon

    Use it with few demonstrations of tasks of about one length. Atoms are the expert's (s, a); an atom that a step
    has used up is gone for the rest of the episode, and a step after the last atom gets 0. Distances are between
    standardised values. Rewards belong to episodes: give `estimate` whole episodes in time order with their ends (see
    `transitions.py`); the coupling starts anew at the first row of each. It runs inside `estimate`, so
    estimating again gives the same; `estimate_next` carries what is left of the atoms to the next rollout. Images are
    compared as 4x4 pictures. Deviations: none known; DI-engine's distance looks an atom up by identity and keeps the
    coupling from call to call.
    """

    begins_untrained: ClassVar[bool] = False  # the expert's data is all it needs

    reward_scale: float = 5.0  # alpha
    bandwidth: float = 5.0  # beta
    horizon: PositiveInt | None = None  # T, the task's longest episode; null = the expert's longest

    def _build(self, task: Task) -> None:
        self._size = feature_count(task) + task.action_width
        self.atoms = ExpertAtoms(self._size)

    def _features(self, columns: Columns) -> Tensor:
        action = self.task.action_vectors(columns["action"])
        return torch.cat([observation_features(columns, self.task), action.double()], dim=1)

    def _learn_expert(self, rows: Rows) -> None:
        horizon = self.horizon or max(len(episode) for episode in rows.episodes())
        self.atoms = ExpertAtoms.fitted(self._features(rows.columns), horizon).to(self.device)

    def train(self) -> None:
        """Check that there is expert data: `load_expert_data` has done all else."""
        self._check_ready()

    def _is_ready(self) -> bool:
        return len(self.atoms.rows) > 0

    def _score_episodes(self, rows: Rows, carried: "Floats | None") -> tuple[Tensor, Floats]:
        """`carried` is the mass [N, A] that is left of the atoms in each environment."""
        left = self.atoms.whole_mass(rows.environments)
        if not len(rows):
            return torch.zeros(0, device=self.device), left if carried is None else carried
        features = self._features(rows.columns)
        cost = torch.zeros(len(rows), dtype=torch.float64, device=self.device)
        for episode, environment, first, unfinished in rows.episode_parts():
            mass = self.atoms.whole_mass(1)[0] if carried is None or not first else carried[environment].copy()
            cost[episode] = self.atoms(features[episode], mass)
            if unfinished:
                left[environment] = mass
        scaled = self.bandwidth * float(self.atoms.horizon) / self._size**0.5 * cost
        return self.reward_scale * torch.exp(-scaled).float(), left

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if "atoms.rows" in state and self._task is not None:
            self.atoms = ExpertAtoms(self._size, len(state["atoms.rows"])).to(self.device)
        super().load_state_dict(state)


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
