"""Proximal policy optimisation (Schulman et al. 2017), with the details of Huang et al. 2022 that matter."""

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.config.schema import OptimConfig, PPOConfig
from rewardlab.devices import device_of
from rewardlab.models.policy_networks import ActorCritic
from rewardlab.models.precision import Precision
from rewardlab.models.running_stats import CLIP, RunningMeanStd
from rewardlab.rl.learner import Learner, require_finite, to_floats, vectors_of
from rewardlab.types import Batch

_ADAM_EPS = 1e-5


@torch.no_grad()
def gae(
    reward_TN: Tensor,
    value_TN: Tensor,
    next_value_TN: Tensor,
    terminated_TN: Tensor,
    truncated_TN: Tensor,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al. 2016): return advantages and returns.

    `next_value` is the value of the state that truly followed. Termination means that nothing follows: its `next_value`
    is not read. Truncation means that the episode would have gone on: its `next_value` is bootstrapped from, but
    advantages do not flow back from the next episode.
    """
    following_TN = torch.where(terminated_TN, 0.0, next_value_TN)
    delta_TN = reward_TN + gamma * following_TN - value_TN
    decay_TN = gamma * lam * (~(terminated_TN | truncated_TN)).to(delta_TN.dtype)
    advantage_TN = torch.empty_like(delta_TN)
    advantage_N = torch.zeros_like(delta_TN[0])
    for t in reversed(range(len(delta_TN))):
        advantage_N = torch.addcmul(delta_TN[t], decay_TN[t], advantage_N, out=advantage_TN[t])
    return advantage_TN, advantage_TN + value_TN


class PPO(Learner):
    """Learns from rollouts [T, N] with observation, action, log_prob, value, next_value, reward, terminated, truncated.

    `next_value` is the value of the state that truly followed: of the final observation where an episode was truncated,
    anything where it terminated. `reward` is read as it is: whoever combines rewards does so before.
    """

    saved = ("network", "optimizer", "reward_scale")
    checked = (*vectors_of("observation"), "action", "log_prob", "value", "reward")

    def __init__(
        self,
        network: ActorCritic,
        config: PPOConfig,
        optim: OptimConfig,
        *,
        gamma: float,
        batch_size: int,
        seed: int,
        precision: Precision = "fp32",
    ) -> None:
        device = device_of(network)
        super().__init__(config, optim, gamma=gamma, seed=seed, device=device, precision=precision)
        self.config = config
        self.network = self.policy = network
        self.batch_size = batch_size
        self.optimizer = self._make_optimizer(network.parameters(), _ADAM_EPS)
        self.reward_scale = RewardScale(gamma).to(device) if config.normalize_reward else None

    def learn(self, batch: Batch) -> dict[str, float]:
        """All epochs over one rollout. Only then do the statistics of the observations move, because the
        log-probabilities in the rollout hold for the old ones."""
        followed = batch["next_value"].masked_fill(batch["terminated"], 0.0)
        require_finite(TensorDict({"next_value": followed}, batch_size=batch.batch_size), "next_value")
        return super().learn(batch)

    def _learn(self, batch: Batch) -> dict[str, float]:
        samples, figures = self._samples(batch)
        updates: list[dict[str, float]] = []
        for _ in range(self.config.update_epochs):
            order = torch.randperm(len(samples), generator=self._generator, device=self.device)
            # Parts of nearly equal size: a short last one would have a noisy gradient and no deviation of advantages.
            parts = order.tensor_split(-(-len(samples) // self.batch_size))
            updates += [self._update(samples[part]) for part in parts]
            if self.config.target_kl is not None and updates[-1]["approx_kl"] > self.config.target_kl:
                break
        self.network.encoder.update_statistics(batch["observation"])
        return {name: sum(update[name] for update in updates) / len(updates) for name in updates[0]} | figures

    def _samples(self, rollout: Batch) -> tuple[TensorDict, dict[str, float]]:
        """The rollout as one flat list with advantages and returns."""
        reward_TN, value_TN = rollout["reward"], rollout["value"]
        terminated_TN, truncated_TN = rollout["terminated"], rollout["truncated"]
        if self.reward_scale is not None:
            reward_TN = self.reward_scale(reward_TN, terminated_TN | truncated_TN)
        values, ends = (value_TN, rollout["next_value"]), (terminated_TN, truncated_TN)
        advantage_TN, return_TN = gae(reward_TN, *values, *ends, self.gamma, self.config.gae_lambda)
        columns = rollout.select("observation", "action", "log_prob", "value")
        columns = columns.set("advantage", advantage_TN).set("return", return_TN)
        unexplained = (return_TN - value_TN).var(unbiased=False) / return_TN.var(unbiased=False).clamp(min=1e-8)
        return columns.reshape(-1), {"explained_variance": float(1 - unexplained)}

    def _update(self, sample: TensorDict) -> dict[str, float]:
        observation = self._augmented(sample["observation"])
        with self._autocast():
            log_prob, entropy, value = self.network.evaluate(observation, sample["action"])
        log_ratio = log_prob.float() - sample["log_prob"]
        policy_loss = self._policy_loss(log_ratio.exp(), sample["advantage"])
        value_loss = self._value_loss(value.float(), sample["value"], sample["return"])
        mean_entropy = entropy.float().mean()
        loss = policy_loss + self.config.value_coef * value_loss - self.config.entropy_coef * mean_entropy

        self._step(self.optimizer, loss)
        self.updates += 1
        with torch.no_grad():
            # The estimator k3 of http://joschu.net/blog/kl-approx.html: never negative, little variance.
            kl = (log_ratio.exp() - 1 - log_ratio).mean()
            clipped = (log_ratio.exp() - 1).abs() > self.config.clip_ratio
        return to_floats(
            {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": mean_entropy,
                "approx_kl": kl,
                "clip_fraction": clipped.float().mean(),
            }
        )

    def _policy_loss(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        if len(advantage) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = ratio.clamp(1 - self.config.clip_ratio, 1 + self.config.clip_ratio)
        return -torch.min(advantage * ratio, advantage * clipped).mean()

    def _value_loss(self, value: Tensor, old_value: Tensor, target: Tensor) -> Tensor:
        reach = self.config.value_clip
        if reach is not None:
            value = old_value + (value - old_value).clamp(-reach, reach)
        return functional.mse_loss(value, target)


class RewardScale(nn.Module):
    """Divides rewards by the running deviation of the discounted return, so that values are about 1 in size whatever
    the reward's own scale. No mean is taken off: that would change which policy is best."""

    discounted_N: Tensor

    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma
        self.returns = RunningMeanStd()
        self.register_buffer("discounted_N", torch.zeros(0))

    @torch.no_grad()
    def forward(self, reward_TN: Tensor, done_TN: Tensor) -> Tensor:
        if self.discounted_N.shape != reward_TN[0].shape:
            self.discounted_N = torch.zeros_like(reward_TN[0])
        discounted_TN = torch.empty_like(reward_TN)
        for t, (reward_N, done_N) in enumerate(zip(reward_TN, done_TN, strict=True)):
            discounted_TN[t] = self.gamma * self.discounted_N + reward_N
            self.discounted_N = discounted_TN[t] * ~done_N
        self.returns.update(discounted_TN)
        return (reward_TN / self.returns.std).clamp(-CLIP, CLIP)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # The number of environments is known only from a rollout, or from a run that is being resumed.
        saved = state_dict[prefix + "discounted_N"]
        self.discounted_N = torch.zeros_like(saved, device=self.discounted_N.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)
