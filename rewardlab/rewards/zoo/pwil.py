"""Primal Wasserstein Imitation Learning: reward for using up the expert's transitions cheaply."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from rewardlab.rewards.base import LooksAt, register_reward_model
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transition_model import FittedOnceRewardModel
from rewardlab.rewards.zoo.transitions import Columns, Rows, feature_count, observation_features

_SPENT = 1e-12  # mass that is rounding
_DISTANCES = 4_000_000  # held at once


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

    def forward(self, features_ETF: Tensor, running_ET: Tensor) -> Tensor:
        """The cost of each step of episodes side by side; infinite once an episode has used up all atoms."""
        points = (features_ETF - self.mean) / self.std
        episodes, steps, _ = points.shape
        mass = torch.full((episodes, len(self.rows)), 1 / len(self.rows), dtype=torch.float64, device=points.device)
        cost = torch.zeros(episodes, steps, dtype=torch.float64, device=points.device)
        # One product for many steps is far faster than one each, but all of them may not fit in memory.
        together = max(1, _DISTANCES // mass.numel())
        for t in range(steps):
            if t % together == 0:
                distance = torch.cdist(points[:, t : t + together], self.rows)
            cost[:, t] = self._take(distance[:, t % together], mass, running_ET[:, t])
        return cost

    def _take(self, distance: Tensor, mass: Tensor, running: Tensor) -> Tensor:
        """Move 1 / horizon of each running episode to its nearest atoms with mass left, and take it from `mass`."""
        owed = running / self.horizon.double()
        cost = torch.zeros_like(owed)
        # Rarely more than one round: on average a step takes atoms / horizon, and the last of them in part.
        nearest = min(distance.shape[1], 2 * distance.shape[1] // int(self.horizon) + 4)
        while (owed > _SPENT).any():
            free, atom = distance.masked_fill(mass <= _SPENT, torch.inf).topk(nearest, dim=1, largest=False)
            held = mass.gather(1, atom).masked_fill(free.isinf(), 0)
            taken = torch.minimum(held, (owed[:, None] - held.cumsum(1) + held).clamp(min=0))
            cost += torch.where(taken > 0, taken * free, 0).sum(1)
            mass.scatter_add_(1, atom, -taken)
            owed -= taken.sum(1)
            broke = (owed > _SPENT) & (mass <= _SPENT).all(1)
            cost[broke] = torch.inf
            owed[broke] = 0
        return cost


@register_reward_model("pwil")
@dataclasses.dataclass(kw_only=True, eq=False)
class PWILRewardModel(FittedOnceRewardModel):
    """Primal Wasserstein Imitation Learning (Dadashi et al. 2021): a greedy coupling with the expert, no training.

        c_t = sum over the nearest atoms of mass * distance, until the mass 1 / T of the step is used up
        r_t = alpha * exp(-beta * T / sqrt(F) * c_t)     F: numbers in (s, a), T: horizon

    Use it with few demonstrations of tasks of about one length. Atoms are the expert's (s, a); an atom that a step
    has used up is gone for the rest of the episode, and a step after the last atom gets 0. Distances are between
    standardised values. Rewards belong to episodes: give `estimate` whole episodes in time order with their ends (see
    `transitions.py`); the coupling starts anew at the first row of each. It runs inside `estimate`, so
    estimating again gives the same. Images are compared as 4x4 pictures. Deviations: none known; DI-engine's distance
    looks an atom up by identity and keeps the coupling from call to call.
    """

    begins_untrained: ClassVar[bool] = False  # the expert's data is all it needs

    reward_scale: float = 5.0  # alpha
    bandwidth: float = 5.0  # beta
    horizon: PositiveInt | None = None  # T, the task's longest episode; null = the expert's longest

    optional: ClassVar[tuple[str, ...]] = ("terminated", "truncated")
    looks_at: ClassVar[LooksAt] = "episodes"

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

    def _score(self, rows: Rows) -> Tensor:
        reward = torch.zeros(len(rows), device=self.device)
        if not len(rows):
            return reward
        features = self._features(rows.columns)
        episodes = rows.episodes()
        padded = pad_sequence([features[episode] for episode in episodes], batch_first=True)
        running = pad_sequence([torch.ones(len(e), device=self.device) for e in episodes], batch_first=True)
        cost = self.atoms(padded, running.double())
        scaled = self.bandwidth * float(self.atoms.horizon) / self._size**0.5 * cost
        gained = self.reward_scale * torch.exp(-scaled).float()
        reward[torch.cat(episodes)] = gained[running.bool()]
        return reward

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if "atoms.rows" in state and self._task is not None:
            self.atoms = ExpertAtoms(self._size, len(state["atoms.rows"])).to(self.device)
        super().load_state_dict(state)
