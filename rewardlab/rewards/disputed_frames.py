"""Writes frames that a person should review while a policy trains on a learned reward."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewardlab.rewards.png_writer import PngWriter

FALSE_POSITIVE, FALSE_NEGATIVE, CLAIMED = "false_positive", "false_negative", "claimed"
PER_ITERATION = 2

Rows = npt.NDArray[np.int64]
Frames = Callable[[Rows], Any]  # returns images of one camera, [rows, H, W, 3] or [rows, 3, H, W]


class DisputedFrames:
    """Writes `<kind>/{iteration:06d}_{number}_prob{p:.4f}.png` from its own thread.

    The kinds are `false_positive` and `false_negative`, the most confident errors of an iteration, and if the true
    success is unknown `claimed`, random frames with predicted success. A directory keeps its newest `limit` files.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self._writer = PngWriter(f"disputed frames in {directory}")

    def add(
        self,
        iteration: int,
        probability: npt.NDArray[Any],
        predicted: npt.NDArray[np.bool_],
        success: npt.NDArray[np.bool_] | None,
        frames: Frames,
    ) -> None:
        """Choose frames of an iteration and queue them; `frames` is called for the chosen rows only."""
        if success is None:
            # The iteration is the seed, so that a resumed run chooses the same frames.
            order = np.random.default_rng(iteration).permutation(len(predicted))
            chosen = {CLAIMED: order[predicted[order]]}
        else:
            descending = np.argsort(-probability, kind="stable")
            ascending = descending[::-1]
            chosen = {
                FALSE_POSITIVE: descending[(predicted & ~success)[descending]],
                FALSE_NEGATIVE: ascending[(~predicted & success)[ascending]],
            }
        for kind, rows in chosen.items():
            rows = rows[: min(PER_ITERATION, self.limit)]
            images = frames(rows) if len(rows) else ()
            for number, (row, image) in enumerate(zip(rows, images, strict=True)):
                name = f"{iteration:06d}_{number}_prob{probability[row]:.4f}.png"
                self._writer.add(self.directory / kind / name, image, newest=self.limit)

    def flush(self) -> None:
        """Wait until everything queued is written."""
        self._writer.flush()
