"""Soft actor-critic (Haarnoja et al. 2018), with what RLPD (Ball et al. 2023) adds for few data: many critics of which
a few give the target, layer norm, and more updates per step."""

import copy
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rewardlab.config.schema import OptimConfig, SACConfig
from rewardlab.devices import device_of
from rewardlab.models.critics import EnsembleCritics
from rewardlab.models.policy_networks import SquashedGaussianActor
from rewardlab.models.precision import Precision
from rewardlab.rl.learner import Learner, move_target, to_floats, vectors_of
from rewardlab.types import Batch


class SAC(Learner):
    """Learns from transitions [B] with observation, action, reward, next_observation, terminated.

    A time limit is not an end: only `terminated` stops bootstrapping. Actor and critics share one encoder, which the
    critics' loss trains.
    """

    saved = ("actor", "critics", "target_critics", "actor_optimizer", "critic_optimizer", "alpha_optimizer")
    checked = (*vectors_of("observation", "next_observation"), "action", "reward")

    def __init__(
        self,
        actor: SquashedGaussianActor,
        critics: EnsembleCritics,
        config: SACConfig,
        optim: OptimConfig,
        *,
        gamma: float,
        seed: int,
        precision: Precision = "fp32",
    ) -> None:
        if actor.encoder is not critics.encoder:
            raise ValueError("actor and critics must share one encoder: make_critics(actor, ...)")
        device = device_of(actor)
        super().__init__(config, optim, gamma=gamma, seed=seed, device=device, precision=precision)
        self.config = config
        self.actor = self.policy = actor
        self.critics = critics
        self.target_critics = copy.deepcopy(critics).requires_grad_(False)
        self.target_entropy = -float(actor.action_range.middle.numel())
        self.log_alpha = torch.tensor(math.log(config.init_alpha)).to(device).requires_grad_()
        self.actor_optimizer = self._make_optimizer(actor.head.parameters())
        self.critic_optimizer = self._make_optimizer(critics.parameters())
        self.alpha_optimizer = self._make_optimizer([self.log_alpha])

    def _learn(self, batch: Batch) -> dict[str, float]:
        """One step of the critics; after every `policy_delay` of them one of the actor and the temperature, and only
        then are there figures of these."""
        observation, next_observation = batch["observation"], batch["next_observation"]
        self.critics.encoder.update_statistics(observation)
        observation, next_observation = self._augmented(observation), self._augmented(next_observation)
        target = self.target(batch["reward"], batch["terminated"], next_observation)
        with self._autocast():
            features = self.critics.encoder(observation)
            q = self.critics(features, batch["action"]).float()
        # Summed over the critics: each learns as if it were alone, however many there are.
        critic_loss = functional.mse_loss(q, target.expand_as(q), reduction="none").mean(-1).sum()
        self._step(self.critic_optimizer, critic_loss)
        figures = {"critic_loss": critic_loss, "q_mean": q.mean()}
        self.updates += 1
        if self.updates % self.config.updates_per_actor_update == 0:
            figures |= self._improve_actor(features.detach())
        move_target(self.target_critics, self.critics, self.config.tau)
        values = to_floats(figures)
        return values | {"critic_loss": values["critic_loss"] / len(q)}

    @torch.no_grad()
    def target(self, reward: Tensor, terminated: Tensor, next_observation: Batch) -> Tensor:
        """What the critics should say [B]: r + gamma * (min Q' - alpha * log pi) of an action drawn for next.

        Without `backup_entropy`, the entropy term is left out.
        """
        with self._autocast():
            next_action, log_prob = self.actor.sample(self.actor.encoder(next_observation), self._generator)
            q = self.target_critics(self.target_critics.encoder(next_observation), next_action).float()
        subset = self.config.critic_subset
        if subset is not None:
            q = q[torch.randperm(len(q), generator=self._generator, device=self.device)[:subset]]
        following = q.amin(0)
        if self.config.backup_entropy:
            following = following - self.log_alpha.exp() * log_prob
        return reward + self.gamma * torch.where(terminated, 0.0, following)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "log_alpha": self.log_alpha.detach().cpu().clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        with torch.no_grad():
            self.log_alpha.copy_(state["log_alpha"])

    def _improve_actor(self, features: Tensor) -> dict[str, Tensor]:
        with self._autocast():
            action, log_prob = self.actor.sample(features, self._generator)
            q = self.critics(features, action).float()
        # With a random subset in the target no minimum is needed here: REDQ and RLPD take the mean.
        value = q.amin(0) if self.config.critic_subset is None else q.mean(0)
        actor_loss = (self.log_alpha.detach().exp() * log_prob - value).mean()
        self._step(self.actor_optimizer, actor_loss)
        entropy = -log_prob.detach().mean()
        alpha_loss = self.log_alpha * (entropy - self.target_entropy)
        self._step(self.alpha_optimizer, alpha_loss)
        return {"actor_loss": actor_loss, "entropy": entropy, "alpha": self.log_alpha.detach().exp()}
