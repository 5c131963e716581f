"""A ring of transitions: the newest `capacity` of them, drawn from at random."""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict

from rewardlab.data.frame_store import FrameStore
from rewardlab.errors import DataError
from rewardlab.types import Batch

FRAME = "frame"  # the column with the slots of rows in the frame store; -1 for a row without frames


class ReplayBuffer:
    """Flat transitions with whatever columns the first `add` has (observation, action, env_reward ...).

    Pictures of observations are kept as uint8, once in `observation` and once in `next_observation`: 100,000
    transitions with one camera at 64x64 are 2.5 GB. The memory is reserved at the first `add`, but the system hands it
    out as it fills. Frames that a reward model may be asked about again are in `frames`, and leave it with their rows.
    """

    def __init__(self, capacity: int, frames: FrameStore | None = None) -> None:
        self.capacity = capacity
        self.frames = FrameStore() if frames is None else frames
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
        if FRAME in batch.keys():  # noqa: SIM118 - a TensorDict's `in` is something else
            self.frames.free(batch[FRAME][: -self.capacity])
            self.frames.free(rows[FRAME][places[places < self._size]])
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

    def relabel(self, function: Callable[[Batch], Batch], chunk: int = 4096) -> None:
        """Overwrite columns of every row by those that `function` gives for it.

        All of them are computed before one is written: a function that fails leaves the buffer as it was.
        """
        rows = self._filled
        columns = TensorDict.cat([function(rows[start : start + chunk]) for start in range(0, self._size, chunk)])
        if len(columns) != len(rows) or not _columns(columns) <= _columns(rows):
            raise DataError(
                f"new values for {', '.join(columns_of(columns))} of {len(columns)} rows; the replay buffer has "
                f"{', '.join(columns_of(rows))} of {len(rows)}"
            )
        rows.update_(columns)

    def state_dict(self) -> dict[str, Any]:
        """Only what is filled, as plain tensors, so that a file of it needs no trust."""
        rows = self._filled.clone() if self._size else None
        slots = None if rows is None else rows.get(FRAME, None)
        return {
            "rows": {} if rows is None else rows.to_dict(),
            "frames": {} if slots is None else self.frames[slots[slots >= 0]],
            "size": self._size,
            "next": self._next,
            "capacity": self.capacity,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["capacity"] != self.capacity:
            raise DataError(f"the saved replay buffer holds {state['capacity']} rows, this one {self.capacity}")
        self._rows, self._size, self._next = None, 0, 0
        if state["size"]:
            rows = TensorDict(state["rows"], batch_size=[state["size"]])
            if state.get("frames"):
                rows = rows.set(FRAME, self.frames.add(state["frames"], rows[FRAME] >= 0))
            self._append(rows)
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
    sample: Callable[[ReplayBuffer, int], Batch],
) -> Batch:
    """A batch of which `demo_fraction` comes from demonstrations, where there are any (RLPD: one half).

    `sample` draws transitions from a buffer. The batch has the columns that both buffers have.
    """
    from_demos = round(batch_size * demo_fraction) if demos is not None else 0
    if demos is None or not from_demos:
        return sample(replay, batch_size)
    parts = [sample(replay, batch_size - from_demos), sample(demos, from_demos)]
    shared = _columns(parts[0]) & _columns(parts[1])
    return TensorDict.cat([part.select(*shared) for part in parts])
