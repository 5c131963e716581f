"""A ring of transitions: the newest `capacity` of them, drawn from at random."""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rewardlab.errors import DataError
from rewardlab.types import Batch


class ReplayBuffer:
    """Flat transitions with whatever columns the first `add` has (observation, action, reward, env_reward ...).

    Pictures are kept as uint8, once in `observation` and once in `next_observation`: 100,000 transitions with one
    camera at 64x64 are 2.5 GB. The room is reserved at the first `add`, but the system hands it out as it fills.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._rows: Batch | None = None
        self._size = 0
        self._next = 0  # where the next row goes

    def __len__(self) -> int:
        return self._size

    def add(self, batch: Batch) -> None:
        """Append transitions [n]; the oldest make room."""
        self._append(batch)

    def _append(self, batch: Batch) -> None:
        if batch.batch_dims != 1:
            raise DataError(f"transitions have batch size {list(batch.batch_size)}; expected a flat batch [n]")
        rows = self._allocated(batch)
        kept = batch[-self.capacity :]
        places = (self._next + torch.arange(len(batch) - len(kept), len(batch))) % self.capacity
        rows[places] = kept
        self._next = (self._next + len(batch)) % self.capacity
        self._size = min(self._size + len(batch), self.capacity)

    def add_rollout(self, rollout: Batch) -> None:
        """Append the transitions of a rollout [T, N]."""
        self.add(rollout.reshape(-1))

    def forget_unfinished(self) -> None:
        """All environments have been started afresh. Single transitions do not mind."""

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Transitions [batch_size], drawn with replacement."""
        return self._filled[torch.randint(self._size, (batch_size,), generator=generator)]

    def relabel(self, function: Callable[[Batch], Tensor], chunk: int = 4096) -> None:
        """Replace the `reward` of every row by what `function` says of it; `env_reward` stays.

        All rewards are computed before one is written: a function that fails leaves the buffer as it was.
        """
        rows = self._filled
        rewards = [function(rows[start : start + chunk]) for start in range(0, self._size, chunk)]
        reward = torch.cat(rewards).to(rows["reward"].dtype)
        if reward.shape != rows["reward"].shape:
            raise DataError(f"new rewards have shape {list(reward.shape)}; expected {list(rows['reward'].shape)}")
        if not torch.isfinite(reward).all():
            raise DataError(f"the new reward of row {int((~torch.isfinite(reward)).nonzero()[0])} is not finite")
        rows["reward"].copy_(reward)

    def state_dict(self) -> dict[str, Any]:
        """Only what is filled, as plain tensors, so that a file of it needs no trust."""
        rows = self._filled.clone().to_dict() if self._size else {}
        return {"rows": rows, "size": self._size, "next": self._next, "capacity": self.capacity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["capacity"] != self.capacity:
            raise DataError(f"the saved replay buffer holds {state['capacity']} rows, this one {self.capacity}")
        self._rows, self._size, self._next = None, 0, 0
        if state["size"]:
            self._append(TensorDict(state["rows"], batch_size=[state["size"]]))
        self._next = state["next"]

    @property
    def _filled(self) -> Batch:
        if self._rows is None or not self._size:
            raise DataError("the replay buffer is empty: add transitions first")
        return self._rows[: self._size]

    def _allocated(self, batch: Batch) -> Batch:
        if self._rows is None:
            self._rows = batch[:0].new_empty(torch.Size([self.capacity]))
        if _columns(self._rows) != _columns(batch):
            raise DataError(
                f"transitions have the columns {', '.join(columns_of(batch))}; the replay buffer holds "
                f"{', '.join(columns_of(self._rows))}"
            )
        return self._rows


def _columns(batch: Batch) -> set[Any]:
    return set(batch.keys(include_nested=True, leaves_only=True))


def columns_of(batch: Batch) -> list[str]:
    return sorted(key if isinstance(key, str) else ".".join(key) for key in _columns(batch))


def mixed_sample(
    replay: ReplayBuffer,
    demos: ReplayBuffer | None,
    batch_size: int,
    demo_fraction: float,
    generator: torch.Generator,
) -> Batch:
    """A batch of which `demo_fraction` comes from demonstrations, where there are any (RLPD: one half).

    It has the columns that both buffers have.
    """
    from_demos = round(batch_size * demo_fraction) if demos is not None else 0
    if demos is None or not from_demos:
        return replay.sample(batch_size, generator)
    parts = [replay.sample(batch_size - from_demos, generator), demos.sample(from_demos, generator)]
    shared = _columns(parts[0]) & _columns(parts[1])
    return TensorDict.cat([part.select(*shared) for part in parts])
