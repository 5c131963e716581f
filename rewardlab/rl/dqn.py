"""Deep Q-learning (Mnih et al. 2015) with the double-Q target (van Hasselt et al. 2016)."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.config.schema import DQNConfig, OptimConfig
from rewardlab.models.learning_rate import RunSchedule
from rewardlab.models.policy_networks import EpsilonGreedyQ
from rewardlab.rl.learner import Key, make_optimizer, move_target, require_finite, shifted, vectors_of
from rewardlab.types import Batch

_CHECKED: tuple[Key, ...] = (*vectors_of("observation", "next_observation"), "reward")


class DQN:
    """Learns from transitions [B] with observation, action (int64), reward, next_observation, terminated."""

    def __init__(
        self, network: EpsilonGreedyQ, config: DQNConfig, optim: OptimConfig, *, gamma: float, seed: int
    ) -> None:
        self.network = network
        self.target_network = copy.deepcopy(network).requires_grad_(False)
        self.config = config
        self.optim = optim
        self.gamma = gamma
        self.optimizer = make_optimizer(network.parameters(), optim)
        self.schedule = RunSchedule(self.optimizer, optim.schedule)
        self.updates = 0
        self._generator = torch.Generator().manual_seed(seed)
        network.epsilon.fill_(config.epsilon_start)

    @property
    def policy(self) -> EpsilonGreedyQ:
        return self.network

    def set_progress(self, env_steps: int, total_env_steps: int) -> None:
        fall = min(1.0, env_steps / self.config.epsilon_steps)
        epsilon = self.config.epsilon_start + fall * (self.config.epsilon_end - self.config.epsilon_start)
        self.network.epsilon.fill_(epsilon)
        self.schedule.set_progress(env_steps / total_env_steps)

    def learn(self, batch: Batch) -> dict[str, float]:
        """One step; every `target_update_interval` of them the target network follows."""
        require_finite(batch, *_CHECKED)
        observation, next_observation = batch["observation"], batch["next_observation"]
        self.network.encoder.update_statistics(observation)
        if self.config.image_shift:
            observation = shifted(observation, self._generator)
            next_observation = shifted(next_observation, self._generator)
        target = self.target(batch["reward"], batch["terminated"], next_observation)
        q = self.network(observation).gather(-1, batch["action"][:, None]).squeeze(-1)
        loss = functional.smooth_l1_loss(q, target)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.optim.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.optim.max_grad_norm)
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.config.target_update_interval == 0:
            move_target(self.target_network, self.network, self.config.tau)
        return {"loss": loss.item(), "q_mean": q.detach().mean().item(), "epsilon": self.network.epsilon.item()}

    @torch.no_grad()
    def target(self, reward: Tensor, terminated: Tensor, next_observation: Batch) -> Tensor:
        """r + gamma * Q'(s', argmax Q(s', .)) [B]: the network picks the action, the target network values it."""
        best = self.network(next_observation).argmax(-1, keepdim=True)
        following = self.target_network(next_observation).gather(-1, best).squeeze(-1)
        return reward + self.gamma * torch.where(terminated, 0.0, following)

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "target_network": self.target_network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.target_network.load_state_dict(state["target_network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]
        self._generator.set_state(state["generator"])
