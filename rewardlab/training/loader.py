"""Reads batches of frames from disk; memory holds one batch at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from rewardlab.config import ExperimentConfig
from rewardlab.data.frames import FrameTable, Ints
from rewardlab.errors import DataError
from rewardlab.training.processes import Processes


@dataclass(frozen=True)
class FrameBatch:
    """Images by camera, uint8 [B, H, W, 3]; labels, float32 [B]; and their rows of the frame table."""

    images: dict[str, torch.Tensor]
    label: torch.Tensor
    rows: Ints


class StoredFrames(Dataset[FrameBatch]):
    """Reads rows of a frame table as one batch."""

    def __init__(self, table: FrameTable, cameras: Sequence[str]) -> None:
        self.table = table
        self.cameras = tuple(cameras)

    def __getitem__(self, rows: Ints) -> FrameBatch:
        images = {camera: self._pictures(camera, rows) for camera in self.cameras}
        return FrameBatch(images, torch.from_numpy(self.table.label[rows].astype(np.float32)), rows)

    def _pictures(self, camera: str, rows: Ints) -> torch.Tensor:
        episodes = [self.table.episodes[number] for number in self.table.episode[rows]]
        frames = [e.frame(camera, int(time)) for e, time in zip(episodes, self.table.time[rows], strict=True)]
        for episode, frame in zip(episodes, frames, strict=True):
            if frame.shape != frames[0].shape:
                raise DataError(
                    f"{camera} is {frames[0].shape} in {episodes[0].path} and {frame.shape} in {episode.path}"
                )
        return torch.from_numpy(np.stack(frames))

    def batches(self, rows: Sequence[Ints]) -> Iterator[FrameBatch]:
        """Yield one batch for each list of rows, in this order."""
        # Without worker processes: reading a batch takes 1-3 % of a training step (4-10 ms of 150-1000), and neither a
        # thread that reads ahead nor 1 or 2 workers were faster in the networks of benchmarks/training_speed.py.
        # With its own generator, the loader draws nothing from the global one.
        return iter(DataLoader(self, sampler=rows, batch_size=None, generator=torch.Generator()))


class FrameLoader:
    """Yields training batches: reshuffled every epoch, both classes equally often if `data.balanced`.

    The order depends on the seed and the epoch alone, so that a resumed run and one on several processes see the same
    global batches; each process reads its share of them.
    """

    def __init__(self, table: FrameTable, cameras: Sequence[str], cfg: ExperimentConfig, processes: Processes) -> None:
        self.table = table
        self.frames = StoredFrames(table, cameras)
        self.global_batch_size = cfg.actor.global_batch_size
        self.balanced = cfg.data.balanced
        self.seed = cfg.seed
        share = self.global_batch_size // processes.size
        self._share = slice(processes.rank * share, (processes.rank + 1) * share)

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return -(-len(self.table) // self.global_batch_size)

    def epoch(self, number: int) -> Iterator[FrameBatch]:
        order = self._order(np.random.default_rng([self.seed, number]))
        return self.frames.batches([rows[self._share] for rows in order.reshape(len(self), self.global_batch_size)])

    def _order(self, rng: np.random.Generator) -> Ints:
        """Return a whole number of batches of rows; the last batch is filled up with rows from the front."""
        wanted = len(self) * self.global_batch_size
        if not self.balanced:
            return np.resize(rng.permutation(len(self.table)), wanted)
        classes = [np.flatnonzero(self.table.label), np.flatnonzero(~self.table.label)]
        halves = [wanted // 2, wanted - wanted // 2]
        picked = [_repeated(rng, rows, n) for rows, n in zip(classes, halves, strict=True)]
        return rng.permutation(np.concatenate(picked))


def _repeated(rng: np.random.Generator, rows: Ints, wanted: int) -> Ints:
    """Draw `wanted` rows; no row is repeated before all have been drawn."""
    rounds = -(-wanted // len(rows))
    return np.concatenate([rng.permutation(rows) for _ in range(rounds)])[:wanted]


def batches_in_order(table: FrameTable, cameras: Sequence[str], batch_size: int) -> Iterator[FrameBatch]:
    """Yield every row once, in order: for validation."""
    starts = range(0, len(table), batch_size)
    rows = [np.arange(start, min(start + batch_size, len(table))) for start in starts]
    return StoredFrames(table, cameras).batches(rows)
