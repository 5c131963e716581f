"""The worker that acts: the policy's weights, and what it did, until the rollout is fetched."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.data.episodes import Array
from rewardlab.models.policy_networks import ActorCritic
from rewardlab.observations import to_batch
from rewardlab.types import Batch
from rewardlab.workers.env import Arrival


class RolloutWorker:
    """Acts for one EnvWorker. Like there, randomness follows from (seed, iteration)."""

    def __init__(self, policy: nn.Module, action_space: spaces.Space[Any], *, seed: int) -> None:
        self.policy = policy
        self.action_space = action_space
        self.seed = seed
        self._critic = policy if isinstance(policy, ActorCritic) else None
        self._answers: list[TensorDict] = []
        self._next_values: list[Tensor] = []

    def ping(self) -> None:
        """Whether it lives."""

    def load_policy(self, weights: Mapping[str, Tensor]) -> None:
        self.policy.load_state_dict(weights)

    def begin(self, iteration: int, attempt: int = 0, *, at_random: bool = False) -> None:
        """Before the first action of an iteration. `at_random`: without the policy, as before it has learned."""
        words = np.random.SeedSequence([self.seed, iteration, attempt]).generate_state(2)
        self._generator = torch.Generator().manual_seed(int(words[0]))
        self._random = np.random.default_rng(int(words[1])) if at_random else None
        self._answers, self._next_values = [], []

    def act(self, arrival: Arrival) -> Array:
        """Actions [N] for where the last step led to."""
        answer = self._answer(arrival)
        if self._critic is not None and self._answers:
            self._next_values.append(self._following_value(arrival, answer["value"]))
        self._answers.append(answer)
        return np.asarray(answer["action"].numpy())

    def fetch(self, arrival: Arrival) -> Batch:
        """What was done since the last call, [T, N]; `arrival` is where the last action led to."""
        if self._critic is not None:
            with torch.no_grad():
                last = self._critic.value(to_batch(arrival.observation))
            self._next_values.append(self._following_value(arrival, last))
        batch: Batch = TensorDict.stack(self._answers)
        if self._critic is not None:
            batch["next_value"] = torch.stack(self._next_values)
        self._answers, self._next_values = [], []
        return batch

    def _answer(self, arrival: Arrival) -> TensorDict:
        observation = to_batch(arrival.observation)
        if self._random is not None:
            return TensorDict({"action": self._sampled(len(observation))}, batch_size=observation.batch_size)
        return self.policy.act(observation, self._generator)  # type: ignore[operator]

    @torch.no_grad()
    def _following_value(self, arrival: Arrival, value: Tensor) -> Tensor:
        """The value of what truly followed: of the last observation of an episode, not of the next one's first."""
        assert self._critic is not None
        if arrival.final_observation is None:
            return value
        following = value.clone()
        following[torch.from_numpy(arrival.ended)] = self._critic.value(to_batch(arrival.final_observation))
        return following

    def _sampled(self, count: int) -> Tensor:
        assert self._random is not None
        if isinstance(self.action_space, spaces.Discrete):
            return torch.from_numpy(self._random.integers(0, int(self.action_space.n), count))
        assert isinstance(self.action_space, spaces.Box)
        low, high = self.action_space.low, self.action_space.high
        return torch.from_numpy(self._random.uniform(low, high, (count, *low.shape)).astype(np.float32))
