"""Batches of frames from disk, read ahead by a thread. Memory holds a few batches, whatever the size of the data."""

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rewardlab.data.frames import FrameTable, Ints
from rewardlab.errors import DataError

READ_AHEAD = 3  # batches


@dataclass(frozen=True)
class FrameBatch:
    """Pictures by camera, uint8 [B, H, W, 3]; labels, float32 [B]; and which rows of the table these are."""

    images: dict[str, torch.Tensor]
    label: torch.Tensor
    rows: Ints


class FrameLoader:
    """Training batches: a new order every epoch, both classes equally often if `balanced`.

    The order depends on the seed and the epoch alone, so that a resumed run and one on several processes see the same
    global batches; process `rank` of `world_size` reads its share of each.
    """

    def __init__(
        self,
        table: FrameTable,
        cameras: Sequence[str],
        *,
        global_batch_size: int,
        balanced: bool,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.table = table
        self.cameras = tuple(cameras)
        self.global_batch_size = global_batch_size
        self.balanced = balanced
        self.seed = seed
        share = global_batch_size // world_size
        self._share = slice(rank * share, (rank + 1) * share)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return -(-len(self.table) // self.global_batch_size)

    def epoch(self, number: int) -> Iterator[FrameBatch]:
        order = self._order(np.random.default_rng([self.seed, number]))
        batches = [rows[self._share] for rows in order.reshape(len(self), self.global_batch_size)]
        return read_ahead(self.table, self.cameras, batches)

    def _order(self, rng: np.random.Generator) -> Ints:
        """A whole number of batches of rows; what is missing in the last one is taken from the front."""
        wanted = len(self) * self.global_batch_size
        if not self.balanced:
            return np.resize(rng.permutation(len(self.table)), wanted)
        classes = [np.flatnonzero(self.table.label), np.flatnonzero(~self.table.label)]
        halves = [wanted // 2, wanted - wanted // 2]
        picked = [_repeated(rng, rows, n) for rows, n in zip(classes, halves, strict=True)]
        return rng.permutation(np.concatenate(picked))


def _repeated(rng: np.random.Generator, rows: Ints, wanted: int) -> Ints:
    """`wanted` of the rows; none is taken again before all were taken."""
    rounds = -(-wanted // len(rows))
    return np.concatenate([rng.permutation(rows) for _ in range(rounds)])[:wanted]


def in_order(table: FrameTable, cameras: Sequence[str], batch_size: int) -> Iterator[FrameBatch]:
    """Every row once, in order: for validation."""
    starts = range(0, len(table), batch_size)
    return read_ahead(table, cameras, [np.arange(s, min(s + batch_size, len(table))) for s in starts])


def read_ahead(table: FrameTable, cameras: Sequence[str], batches: Sequence[Ints]) -> Iterator[FrameBatch]:
    """Read the batches of rows in a thread, a few ahead of whoever uses them."""
    ready: queue.Queue[FrameBatch | BaseException | None] = queue.Queue(READ_AHEAD)
    stop = threading.Event()

    def put(item: FrameBatch | BaseException | None) -> None:
        while not stop.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def read() -> None:
        try:
            for rows in batches:
                if stop.is_set():
                    return
                put(read_batch(table, cameras, rows))
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=read, name="frame-reader", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()


def read_batch(table: FrameTable, cameras: Sequence[str], rows: Ints) -> FrameBatch:
    images = {}
    for camera in cameras:
        frames = [table.episodes[table.episode[k]].frame(camera, int(table.time[k])) for k in rows]
        odd = next((i for i, frame in enumerate(frames) if frame.shape != frames[0].shape), None)
        if odd is not None:
            first, other = table.episodes[table.episode[rows[0]]].path, table.episodes[table.episode[rows[odd]]].path
            raise DataError(f"{camera} is {frames[0].shape} in {first} and {frames[odd].shape} in {other}")
        images[camera] = torch.from_numpy(np.stack(frames))
    return FrameBatch(images, torch.from_numpy(table.label[rows].astype(np.float32)), rows)
