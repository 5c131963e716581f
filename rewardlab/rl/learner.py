"""What every RL algorithm offers to a training loop, and the words they share. None knows where a reward came from."""

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.config.schema import OptimConfig
from rewardlab.errors import DataError
from rewardlab.models.encoders import VECTORS
from rewardlab.models.image_shift import random_shift
from rewardlab.models.policy_networks import PolicyNetwork
from rewardlab.types import Batch

Key: TypeAlias = str | tuple[str, ...]  # of a column of a batch


class Learner(Protocol):
    """A run resumed from `state_dict` goes on exactly as one that was never interrupted."""

    @property
    def policy(self) -> PolicyNetwork: ...

    updates: int  # optimizer steps so far

    def learn(self, batch: Batch) -> dict[str, float]:
        """PPO: all epochs over a rollout [T, N]. SAC, DQN: one step on transitions [B]. Gives figures to log."""
        ...

    def set_progress(self, env_steps: int, total_env_steps: int) -> None:
        """How far the run is, before acting and learning: for schedules of exploration and of learning rates."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def make_optimizer(parameters: Iterable[nn.Parameter], optim: OptimConfig, eps: float = 1e-8) -> torch.optim.AdamW:
    # Fused: one call for all tensors; for networks as small as these a third of an update otherwise.
    return torch.optim.AdamW(parameters, lr=optim.lr, weight_decay=optim.weight_decay, eps=eps, fused=True)


@torch.no_grad()
def move_target(target: nn.Module, source: nn.Module, tau: float) -> None:
    """target <- (1 - tau) * target + tau * source; running statistics are copied."""
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)
    for old, new in zip(target.buffers(), source.buffers(), strict=True):
        old.copy_(new)


def shifted(observation: TensorDict, generator: torch.Generator) -> TensorDict:
    """The observation with its pictures [B, H, W, 3] shifted at random; without pictures, itself."""
    if "images" not in observation.keys():  # noqa: SIM118 - a TensorDict's `in` is something else
        return observation
    images = {camera: random_shift(pictures, generator) for camera, pictures in observation["images"].items()}
    return TensorDict({**observation, "images": images}, batch_size=observation.batch_size)


def vectors_of(*observations: str) -> tuple[Key, ...]:
    """The keys of all numbers that policies and critics see in these observations, for `require_finite`."""
    return tuple((observation, name) for observation in observations for name in VECTORS)


def require_finite(batch: Batch, *keys: Key) -> None:
    """Refuse a batch with a NaN or an infinity in one of `keys`; absent keys and whole numbers are fine."""
    for key in keys:
        values = batch.get(key)
        if not isinstance(values, Tensor) or torch.isfinite(values).all():
            continue
        name = key if isinstance(key, str) else ".".join(key)
        place = (~torch.isfinite(values)).nonzero()[0].tolist()
        where = f"step {place[0]} of environment {place[1]}" if batch.batch_dims == 2 else f"row {place[0]}"
        raise DataError(
            f"{name} is {values[tuple(place)].item()} in {where} of the batch; expected finite numbers. "
            "Nothing was learned from it"
        )
