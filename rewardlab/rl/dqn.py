"""Deep Q-learning (Mnih et al. 2015) with the double-Q target (van Hasselt et al. 2016)."""

import copy

import torch
from torch import Tensor
from torch.nn import functional

from rewardlab.config.schema import DQNConfig, OptimConfig
from rewardlab.devices import device_of
from rewardlab.models.policy_networks import EpsilonGreedyQ
from rewardlab.models.precision import Precision
from rewardlab.rl.learner import Learner, move_target, to_floats, vectors_of
from rewardlab.types import Batch


class DQN(Learner):
    """Learns from transitions [B] with observation, action (int64), reward, next_observation, terminated."""

    saved = ("network", "target_network", "optimizer")
    checked = (*vectors_of("observation", "next_observation"), "reward")

    def __init__(
        self,
        network: EpsilonGreedyQ,
        config: DQNConfig,
        optim: OptimConfig,
        *,
        gamma: float,
        seed: int,
        precision: Precision = "fp32",
    ) -> None:
        device = device_of(network)
        super().__init__(config, optim, gamma=gamma, seed=seed, device=device, precision=precision)
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

    def _learn(self, batch: Batch) -> dict[str, float]:
        """One step; every `target_update_interval` of them the target network follows."""
        observation, next_observation = batch["observation"], batch["next_observation"]
        self.network.encoder.update_statistics(observation)
        observation, next_observation = self._augmented(observation), self._augmented(next_observation)
        target = self.target(batch["reward"], batch["terminated"], next_observation)
        with self._autocast():
            q = self.network(observation).float().gather(-1, batch["action"][:, None]).squeeze(-1)
        loss = functional.smooth_l1_loss(q, target)
        self._step(self.optimizer, loss)
        self.updates += 1
        if self.updates % self.config.target_update_interval == 0:
            move_target(self.target_network, self.network, self.config.tau)
        return to_floats({"loss": loss, "q_mean": q.mean(), "epsilon": self.network.epsilon})

    @torch.no_grad()
    def target(self, reward: Tensor, terminated: Tensor, next_observation: Batch) -> Tensor:
        """r + gamma * Q'(s', argmax Q(s', .)) [B]: the network picks the action, the target network values it."""
        with self._autocast():
            best = self.network(next_observation).argmax(-1, keepdim=True)
            following = self.target_network(next_observation).float().gather(-1, best).squeeze(-1)
        return reward + self.gamma * torch.where(terminated, 0.0, following)
