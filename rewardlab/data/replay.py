"""A replay buffer: a ring of the newest `capacity` transitions."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data.frame_store import FrameStore
from rewardlab.data.packed_batch import FRAME, PackedBatch, image_columns, pack, packed, with_images
from rewardlab.errors import DataError
from rewardlab.types import Batch

_STATE_VERSION = 2  # of `state_dict`; 1, without a number, had images in its rows


class ReplayBuffer:
    """Stores flat transitions with the columns of the first `add` (observation, action, env_reward ...).

    Pictures are in `frames`, each of them once: the rows refer to them. A transition with one camera at 64x64 takes
    12.5 kB, and each episode one picture more, its last. Memory is used as the buffer fills.
    """

    def __init__(self, capacity: int, frames: FrameStore | None = None) -> None:
        self.capacity = capacity
        self.frames = FrameStore() if frames is None else frames
        self.frames.expected += capacity + capacity // 32  # a picture per row, and the last ones of episodes
        self._rows: Batch | None = None
        self._size = 0
        self._next = 0  # index of the next row to write

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Return the size of the memory that is reserved for rows and for all pictures in `frames`."""
        return self.frames.nbytes + (0 if self._rows is None else self._rows.bytes())

    def add(self, batch: Batch | PackedBatch) -> None:
        """Append transitions [n]; the oldest are overwritten."""
        batch = packed(batch)
        if batch.rows.batch_dims != 1:
            raise DataError(f"transitions have batch size {list(batch.rows.batch_size)}; expected a flat batch [n]")
        self._check_columns(batch.rows)
        self.frames.check(batch)
        # First, so that the new pictures can take the places of the old.
        positions = self._make_room(len(batch.rows))
        self._write(self.frames.add(PackedBatch(batch.rows[-self.capacity :], batch.frames)), positions)

    def add_rollout(self, rollout: Batch | PackedBatch) -> None:
        """Append the transitions of a rollout [T, N]."""
        rollout = packed(rollout)
        self.add(PackedBatch(rollout.rows.reshape(-1), rollout.frames))

    def forget_unfinished(self) -> None:
        """Drop unfinished episodes, because all environments were reset; single transitions are not affected."""

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Return transitions [batch_size], sampled with replacement."""
        return self._with_images(self._filled[torch.randint(self._size, (batch_size,), generator=generator)])

    def relabel(self, function: Callable[[Batch], Batch], chunk: int = 4096, *, images: bool = True) -> None:
        """Overwrite columns of all rows with the result of `function`, which is called with `chunk` rows at a time.

        All values are computed before the first is written: if the function fails, the buffer is unchanged. Without
        `images`, the rows have no images but the numbers of them, which is faster.
        """
        rows = self._filled
        parts = [rows[start : start + chunk] for start in range(0, self._size, chunk)]
        columns = TensorDict.cat([function(self._with_images(part) if images else part) for part in parts])
        if len(columns) != len(rows) or not _columns(columns) <= _columns(rows):
            raise DataError(
                f"new values for {column_names(columns)} of {len(columns)} rows; the replay buffer has "
                f"{column_names(rows)} of {len(rows)}"
            )
        rows.update_(columns)

    def state_dict(self) -> dict[str, Any]:
        """Return the filled rows and their pictures as plain tensors, which can be loaded without unpickling code."""
        saved = self.frames.pack(self._filled) if self._size else None
        return {
            "version": _STATE_VERSION,
            "rows": {} if saved is None else saved.rows.to_dict(),
            "frames": {} if saved is None else saved.frames,
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
        saved = _saved_rows(state) if state["size"] else None
        if saved is not None:
            self.frames.check(saved)
        if self._rows is not None:
            self.frames.release(self._rows[: self._size])
        self._rows, self._size, self._next = None, 0, 0
        if saved is not None:
            ReplayBuffer.add(self, saved)  # the rows have all columns that the `add` of a subclass computes
        self._next = state["next"]

    @property
    def _filled(self) -> Batch:
        if self._rows is None or not self._size:
            raise DataError("the replay buffer is empty: add transitions first")
        return self._rows[: self._size]

    def _with_images(self, rows: Batch) -> Batch:
        return with_images(rows, self.frames.pictures)

    def _check_columns(self, rows: Batch) -> None:
        if self._rows is not None and _columns(self._rows) != _columns(rows):
            raise DataError(
                f"transitions have the columns {column_names(rows)}; the replay buffer has {column_names(self._rows)}"
            )

    def _make_room(self, count: int) -> Tensor:
        """Release the oldest rows; return the positions of `count` new ones, of which the last `capacity` are kept."""
        positions = (self._next + torch.arange(max(0, count - self.capacity), count)) % self.capacity
        if self._rows is not None:
            self.frames.release(self._rows[positions[positions < self._size]])
        self._next = (self._next + count) % self.capacity
        return positions

    def _write(self, rows: Batch, positions: Tensor) -> None:
        """Write rows whose pictures are in `frames`."""
        if self._rows is None:
            self._rows = rows[:0].new_empty(torch.Size([self.capacity]))
        self._rows[positions] = rows
        self._size = min(self._size + len(rows), self.capacity)


def _saved_rows(state: dict[str, Any]) -> PackedBatch:
    """Return the rows of a `state_dict` of any version."""
    rows, frames = TensorDict(state["rows"], batch_size=[state["size"]]), state.get("frames") or {}
    if state.get("version", 1) == 1:
        slots = rows.get(FRAME, None)
        return pack(rows) if slots is None else pack(rows.exclude(FRAME), frames, slots >= 0)
    missing = sorted({column[-1] for column in image_columns(rows)} - set(frames))
    if missing:
        raise DataError(f"the saved replay buffer has no pictures of {', '.join(missing)}: the file is damaged")
    return PackedBatch(rows, frames)


def _columns(batch: Batch) -> set[Any]:
    return set(batch.keys(include_nested=True, leaves_only=True))


def column_names(batch: Batch) -> str:
    """Return the names of all columns for an error message."""
    return ", ".join(sorted(key if isinstance(key, str) else ".".join(key) for key in _columns(batch)))


def mixed_sample(
    replay: ReplayBuffer,
    demos: Sequence[ReplayBuffer],
    batch_size: int,
    demo_fraction: float,
    sample: Callable[[ReplayBuffer, int], Batch],
    generator: torch.Generator,
) -> Batch:
    """Return a batch of which `demo_fraction` comes from the demonstrations, if there are any (RLPD: one half).

    `sample` samples transitions from a buffer; several buffers of demonstrations are sampled as if they were one. The
    batch has the columns that all buffers have.
    """
    from_demos = round(batch_size * demo_fraction) if demos else 0
    if not from_demos:
        return sample(replay, batch_size)
    counts = [from_demos]
    if len(demos) > 1:
        sizes = torch.tensor([float(len(buffer)) for buffer in demos])
        drawn = torch.multinomial(sizes, from_demos, replacement=True, generator=generator)
        counts = torch.bincount(drawn, minlength=len(demos)).tolist()
    counts = [batch_size - from_demos, *counts]
    parts = [sample(buffer, count) for buffer, count in zip([replay, *demos], counts, strict=True) if count]
    shared = set.intersection(*map(_columns, parts))
    return TensorDict.cat([part.select(*shared) for part in parts])
