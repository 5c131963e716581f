"""Shared by the RL algorithms: optimizers and their schedules, checks of a batch, and the state of a resumed run."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.config.schema import DQNConfig, OptimConfig, PPOConfig, SACConfig
from rewardlab.devices import on_cpu, restore_generator, seeded_generator, to_device
from rewardlab.errors import DataError
from rewardlab.models.encoders import VECTORS
from rewardlab.models.image_shift import random_shift
from rewardlab.models.learning_rate import RunSchedule
from rewardlab.models.precision import Precision, compute_dtype
from rewardlab.types import Batch

Config: TypeAlias = PPOConfig | SACConfig | DQNConfig
Key: TypeAlias = str | tuple[str, ...]  # of a column of a batch


class Learner(ABC):
    """Base of the RL algorithms. A run resumed from `state_dict` goes on exactly as one that was never interrupted.

    It learns on the device of the networks that it is given. With `precision` bf16, forward passes use bfloat16 where
    that is safe (torch.autocast); weights, optimizers and losses stay in float32.
    """

    saved: ClassVar[tuple[str, ...]]  # attributes with a `state_dict` that a resumed run needs; None is allowed
    checked: ClassVar[tuple[Key, ...]]  # columns of a batch that must be finite
    policy: Any  # the network that acts (`rewardlab.models.policy_networks`)

    def __init__(
        self,
        config: Config,
        optim: OptimConfig,
        *,
        gamma: float,
        seed: int,
        device: torch.device,
        precision: Precision = "fp32",
    ) -> None:
        self.device = device
        self._dtype = compute_dtype(precision, device)
        self.image_shift = config.image_shift
        self.optim = optim
        self.gamma = gamma
        self.updates = 0  # optimizer steps so far
        self._schedules: list[RunSchedule] = []
        self._generator = seeded_generator(seed, device)

    def learn(self, batch: Batch) -> dict[str, float]:
        """PPO: all epochs over a rollout [T, N]. SAC, DQN: one step on transitions [B]. Gives figures to log."""
        require_finite(batch, *self.checked)
        return self._learn(to_device(batch, self.device))

    @abstractmethod
    def _learn(self, batch: Batch) -> dict[str, float]:
        """Learn from a batch on the device of the networks."""

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16)

    def set_progress(self, env_steps: int, total_env_steps: int) -> None:
        """Set schedules of exploration and of learning rates for this point of the run, before acting and learning."""
        for schedule in self._schedules:
            schedule.set_progress(env_steps / total_env_steps)

    def state_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in self.saved}
        states = {name: None if part is None else part.state_dict() for name, part in parts.items()}
        return {**on_cpu(states), "updates": self.updates, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.saved:
            if getattr(self, name) is not None:
                getattr(self, name).load_state_dict(state[name])
        self.updates = state["updates"]
        restore_generator(self._generator, state["generator"])

    def _make_optimizer(self, parameters: Iterable[Tensor], eps: float = 1e-8) -> torch.optim.Optimizer:
        # Fused: one call for all tensors; for networks as small as these a third of an update otherwise.
        decay = self.optim.weight_decay
        optimizer = torch.optim.AdamW(parameters, lr=self.optim.lr, weight_decay=decay, eps=eps, fused=True)
        self._schedules.append(RunSchedule(optimizer, self.optim.schedule))
        return optimizer

    def _step(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        optimizer.zero_grad(set_to_none=True)
        # Only towards these: SAC's actor loss passes through the critics and must not leave gradients there.
        loss.backward(inputs=parameters)  # type: ignore[no-untyped-call]
        if self.optim.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.optim.max_grad_norm)
        optimizer.step()

    def _augmented(self, observation: TensorDict) -> TensorDict:
        """With `image_shift`, return the observation with its pictures [B, H, W, 3] shifted at random."""
        if not self.image_shift or "images" not in observation.keys():  # noqa: SIM118 - a TensorDict's `in` is another
            return observation
        cameras = observation["images"].items()
        images = {camera: random_shift(pictures, self._generator) for camera, pictures in cameras}
        return TensorDict({**observation, "images": images}, batch_size=observation.batch_size)


@torch.no_grad()
def move_target(target: nn.Module, source: nn.Module, tau: float) -> None:
    """target <- (1 - tau) * target + tau * source; running statistics are copied."""
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)
    for old, new in zip(target.buffers(), source.buffers(), strict=True):
        old.copy_(new)


def to_floats(figures: dict[str, Tensor]) -> dict[str, float]:
    """Return numbers of one device as Python floats, all in one transfer."""
    values = torch.stack([figure.detach().float() for figure in figures.values()]).tolist()
    return dict(zip(figures, values, strict=True))


def vectors_of(*observations: str) -> tuple[Key, ...]:
    """Return the keys of all numbers that policies and critics see in these observations, for `require_finite`."""
    return tuple((observation, name) for observation in observations for name in VECTORS)


def require_finite(batch: Batch, *keys: Key) -> None:
    """Refuse a batch with a NaN or an infinity in one of `keys`; absent keys and whole numbers are fine."""
    for key in keys:
        values = batch.get(key)
        if not isinstance(values, Tensor) or torch.isfinite(values).all():
            continue
        name = key if isinstance(key, str) else ".".join(key)
        place = (~torch.isfinite(values)).nonzero()[0].tolist()
        where = f"step {place[0] + 1} of environment {place[1]}" if batch.batch_dims == 2 else f"row {place[0]}"
        raise DataError(
            f"{name} is {values[tuple(place)].item()} in {where} of the batch; expected finite numbers. "
            "Nothing was learned from it"
        )
