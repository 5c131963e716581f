"""Reads the frames of a frame table from disk in batches; only one batch is in memory at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from rewardlab.data.frames import FrameTable, Ints
from rewardlab.errors import DataError


@dataclass(frozen=True)
class FrameBatch:
    """A batch of frames: images by camera, uint8 [B, H, W, 3]; labels, float32 [B]; rows of the frame table."""

    images: dict[str, torch.Tensor]
    label: torch.Tensor
    rows: Ints


class StoredFrames(Dataset[FrameBatch]):
    """A torch Dataset that reads a list of rows of a frame table as one batch."""

    def __init__(self, table: FrameTable, cameras: Sequence[str]) -> None:
        self.table = table
        self.cameras = tuple(cameras)

    def __getitem__(self, rows: Ints) -> FrameBatch:
        images = {camera: self._read_images(camera, rows) for camera in self.cameras}
        return FrameBatch(images, torch.from_numpy(self.table.label[rows].astype(np.float32)), rows)

    def _read_images(self, camera: str, rows: Ints) -> torch.Tensor:
        episodes = [self.table.episodes[number] for number in self.table.episode[rows]]
        frames = [e.frame(camera, int(time)) for e, time in zip(episodes, self.table.time[rows], strict=True)]
        for episode, frame in zip(episodes, frames, strict=True):
            if frame.shape != frames[0].shape:
                raise DataError(
                    f"{camera} is {frames[0].shape} in {episodes[0].path} and {frame.shape} in {episode.path}; "
                    "expected the same size in all episodes"
                )
        return torch.from_numpy(np.stack(frames))

    def batches(self, rows: Sequence[Ints]) -> Iterator[FrameBatch]:
        """Yield one batch for each list of rows, in this order."""
        # Without worker processes: reading a batch takes 1-3 % of a training step (4-10 ms of 150-1000), and neither a
        # thread that reads ahead nor 1 or 2 workers were faster in the networks of benchmarks/training_speed.py.
        # With its own generator, the loader draws nothing from the global one.
        return iter(DataLoader(self, sampler=rows, batch_size=None, generator=torch.Generator()))


def batches_in_order(table: FrameTable, cameras: Sequence[str], batch_size: int) -> Iterator[FrameBatch]:
    """Yield every row once, in order: for validation."""
    starts = range(0, len(table), batch_size)
    rows = [np.arange(start, min(start + batch_size, len(table))) for start in starts]
    return StoredFrames(table, cameras).batches(rows)


def validation_logits(
    score: Callable[[dict[str, torch.Tensor]], torch.Tensor], table: FrameTable, cameras: Sequence[str]
) -> npt.NDArray[np.float64]:
    """Return the logit of every frame of the table, in order."""
    return np.concatenate([score(batch.images).cpu().numpy() for batch in batches_in_order(table, cameras, 256)])
