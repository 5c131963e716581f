"""Reads batches of frames from disk; memory holds one batch at a time."""

from collections.abc import Iterator, Sequence

import numpy as np

from rewardlab.config import ExperimentConfig
from rewardlab.data.frames import FrameTable, Ints
from rewardlab.data.stored_frames import FrameBatch, StoredFrames
from rewardlab.training.processes import Processes


class FrameLoader:
    """Yields training batches, reshuffled every epoch.

    `data.fail_success_ratio` is the number of failure frames per success frame in them; without it, both classes come
    equally often if `data.balanced`, else as often as in the data. Frames of a class that has too few are repeated.

    The order depends on the seed and the epoch alone, so that a resumed run and one on several processes see the same
    global batches; each process reads its share of them.
    """

    def __init__(self, table: FrameTable, cameras: Sequence[str], cfg: ExperimentConfig, processes: Processes) -> None:
        self.table = table
        self.frames = StoredFrames(table, cameras)
        self.global_batch_size = cfg.actor.global_batch_size
        self.fail_success_ratio = cfg.data.fail_success_ratio or (1.0 if cfg.data.balanced else None)
        self.seed = cfg.seed
        share = self.global_batch_size // processes.size
        self._share = slice(processes.rank * share, (processes.rank + 1) * share)

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return -(-len(self.table) // self.global_batch_size)

    def epoch(self, number: int, begin: int = 0) -> Iterator[FrameBatch]:
        """Yield the batches of an epoch, from the one with the number `begin` on."""
        order = self._order(np.random.default_rng([self.seed, number]))
        batches = order.reshape(len(self), self.global_batch_size)[begin:]
        return self.frames.batches([rows[self._share] for rows in batches])

    def _order(self, rng: np.random.Generator) -> Ints:
        """Return a whole number of batches of rows; the last batch is filled up with rows from the front."""
        wanted = len(self) * self.global_batch_size
        if self.fail_success_ratio is None:
            return np.resize(rng.permutation(len(self.table)), wanted)
        classes = [np.flatnonzero(self.table.label), np.flatnonzero(~self.table.label)]
        successes = min(max(1, int(wanted / (1 + self.fail_success_ratio))), wanted - 1)
        counts = [successes, wanted - successes]
        picked = [_repeated(rng, rows, n) for rows, n in zip(classes, counts, strict=True)]
        return rng.permutation(np.concatenate(picked))


def _repeated(rng: np.random.Generator, rows: Ints, wanted: int) -> Ints:
    """Draw `wanted` rows; no row is repeated before all have been drawn."""
    rounds = -(-wanted // len(rows))
    return np.concatenate([rng.permutation(rows) for _ in range(rounds)])[:wanted]
