"""A replay buffer: a ring of the newest `capacity` transitions."""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict

from rewardlab.data.frame_store import FrameStore
from rewardlab.errors import DataError
from rewardlab.types import Batch

FRAME = "frame"  # the column with the slots of rows in the frame store; -1 for a row without frames


class ReplayBuffer:
    """Stores flat transitions with the columns of the first `add` (observation, action, env_reward ...).

    Images of observations are stored as uint8, once in `observation` and once in `next_observation`: 100,000
    transitions with one camera at 64x64 take 2.5 GB. The memory is reserved at the first `add` and used as the buffer
    fills. Frames that a reward model may score again are in `frames`; they are freed with their rows.
    """

    def __init__(self, capacity: int, frames: FrameStore | None = None) -> None:
        self.capacity = capacity
        self.frames = FrameStore() if frames is None else frames
        self._rows: Batch | None = None
        self._size = 0
        self._next = 0  # index of the next row to write

    def __len__(self) -> int:
        return self._size

    def add(self, batch: Batch) -> None:
        """Append transitions [n]; the oldest are overwritten."""
        if batch.batch_dims != 1:
            raise DataError(f"transitions have batch size {list(batch.batch_size)}; expected a flat batch [n]")
        rows = self._allocate(batch)
        kept = batch[-self.capacity :]
        positions = (self._next + torch.arange(len(batch) - len(kept), len(batch))) % self.capacity
        if FRAME in batch.keys():  # noqa: SIM118 - a TensorDict's `in` is something else
            self.frames.free(batch[FRAME][: -self.capacity])
            self.frames.free(rows[FRAME][positions[positions < self._size]])
        rows[positions] = kept
        self._next = (self._next + len(batch)) % self.capacity
        self._size = min(self._size + len(batch), self.capacity)

    def add_rollout(self, rollout: Batch) -> None:
        """Append the transitions of a rollout [T, N]."""
        self.add(rollout.reshape(-1))

    def forget_unfinished(self) -> None:
        """Drop unfinished episodes, because all environments were reset; single transitions are not affected."""

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Return transitions [batch_size], sampled with replacement."""
        return self._filled[torch.randint(self._size, (batch_size,), generator=generator)]

    def relabel(self, function: Callable[[Batch], Batch], chunk: int = 4096) -> None:
        """Overwrite columns of all rows with the result of `function`, which is called with `chunk` rows at a time.

        All values are computed before the first is written: if the function fails, the buffer is unchanged.
        """
        rows = self._filled
        columns = TensorDict.cat([function(rows[start : start + chunk]) for start in range(0, self._size, chunk)])
        if len(columns) != len(rows) or not _columns(columns) <= _columns(rows):
            raise DataError(
                f"new values for {column_names(columns)} of {len(columns)} rows; the replay buffer has "
                f"{column_names(rows)} of {len(rows)}"
            )
        rows.update_(columns)

    def state_dict(self) -> dict[str, Any]:
        """Return the filled rows as plain tensors, which can be loaded without unpickling code."""
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
            raise DataError(
                f"the saved replay buffer holds {state['capacity']} rows, this one {self.capacity}; set replay_size "
                f"to {state['capacity']}"
            )
        self._rows, self._size, self._next = None, 0, 0
        if state["size"]:
            rows = TensorDict(state["rows"], batch_size=[state["size"]])
            if state.get("frames"):
                rows = rows.set(FRAME, self.frames.add(state["frames"], rows[FRAME] >= 0))
            ReplayBuffer.add(self, rows)  # the rows have all columns that the `add` of a subclass computes
        self._next = state["next"]

    @property
    def _filled(self) -> Batch:
        if self._rows is None or not self._size:
            raise DataError("the replay buffer is empty: add transitions first")
        return self._rows[: self._size]

    def _allocate(self, batch: Batch) -> Batch:
        if self._rows is None:
            self._rows = batch[:0].new_empty(torch.Size([self.capacity]))
        if _columns(self._rows) != _columns(batch):
            raise DataError(
                f"transitions have the columns {column_names(batch)}; the replay buffer has {column_names(self._rows)}"
            )
        return self._rows


def _columns(batch: Batch) -> set[Any]:
    return set(batch.keys(include_nested=True, leaves_only=True))


def column_names(batch: Batch) -> str:
    """Return the names of all columns for an error message."""
    return ", ".join(sorted(key if isinstance(key, str) else ".".join(key) for key in _columns(batch)))


def mixed_sample(
    replay: ReplayBuffer,
    demos: ReplayBuffer | None,
    batch_size: int,
    demo_fraction: float,
    sample: Callable[[ReplayBuffer, int], Batch],
) -> Batch:
    """Return a batch of which `demo_fraction` comes from the demonstrations, if there are any (RLPD: one half).

    `sample` samples transitions from a buffer. The batch has the columns that both buffers have.
    """
    from_demos = round(batch_size * demo_fraction) if demos is not None else 0
    if demos is None or not from_demos:
        return sample(replay, batch_size)
    parts = [sample(replay, batch_size - from_demos), sample(demos, from_demos)]
    shared = _columns(parts[0]) & _columns(parts[1])
    return TensorDict.cat([part.select(*shared) for part in parts])
