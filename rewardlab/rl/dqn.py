"""Deep Q-learning (Mnih et al. 2015) with the double-Q target (van Hasselt et al. 2016)."""

import copy

import torch
from torch import Tensor
from torch.nn import functional

from rewardlab.config.schema import DQNConfig, OptimConfig
from rewardlab.models.policy_networks import EpsilonGreedyQ
from rewardlab.rl.learner import Key, Learner, move_target, require_finite, vectors_of
from rewardlab.types import Batch

_CHECKED: tuple[Key, ...] = (*vectors_of("observation", "next_observation"), "reward")


class DQN(Learner):
    """Learns from transitions [B] with observation, action (int64), reward, next_observation, terminated."""

    saved = ("network", "target_network", "optimizer")

    def __init__(
        self, network: EpsilonGreedyQ, config: DQNConfig, optim: OptimConfig, *, gamma: float, seed: int
    ) -> None:
        super().__init__(config, optim, gamma=gamma, seed=seed)
        self.config = config
        self.network = self.policy = network
        self.target_network = copy.deepcopy(network).requires_grad_(False)
        self.optimizer = self._make_optimizer(network.parameters())
        network.epsilon.fill_(config.epsilon_start)

    def set_progress(self, env_steps: int, total_env_steps: int) -> None:
        super().set_progress(env_steps, total_env_steps)
        fall = min(1.0, env_steps / self.config.epsilon_steps)
        epsilon = self.config.epsilon_start + fall * (self.config.epsilon_end - self.config.epsilon_start)
        self.network.epsilon.fill_(epsilon)

    def learn(self, batch: Batch) -> dict[str, float]:
        """One step; every `target_update_interval` of them the target network follows."""
        require_finite(batch, *_CHECKED)
        observation, next_observation = batch["observation"], batch["next_observation"]
        self.network.encoder.update_statistics(observation)
        observation, next_observation = self._augmented(observation), self._augmented(next_observation)
        target = self.target(batch["reward"], batch["terminated"], next_observation)
        q = self.network(observation).gather(-1, batch["action"][:, None]).squeeze(-1)
        loss = functional.smooth_l1_loss(q, target)
        self._step(self.optimizer, loss)
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
