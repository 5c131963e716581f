"""Frames that a person should look at while a policy trains on a learned reward."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewardlab.rewards.png_writer import PngWriter

FALSE_POSITIVE, FALSE_NEGATIVE, CLAIMED = "false_positive", "false_negative", "claimed"
PER_ITERATION = 2

Rows = npt.NDArray[np.int64]
Frames = Callable[[Rows], Any]  # the pictures of these rows, [rows, H, W, 3] or [rows, 3, H, W], of one camera


class DisputedFrames:
    """Writes `<kind>/{iteration:06d}_{place}_prob{p:.4f}.png` from a thread of its own.

    Kinds are `false_positive` and `false_negative`, the surest errors of an iteration; where nobody knows the truth,
    `claimed`, successes drawn at random. Each folder keeps its newest `limit` files: what the policy exploits now.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self._writer = PngWriter(f"disputed frames in {directory}")

    def add(
        self,
        iteration: int,
        probability: npt.NDArray[Any],
        verdict: npt.NDArray[np.bool_],
        success: npt.NDArray[np.bool_] | None,
        frames: Frames,
    ) -> None:
        """Choose frames of an iteration and queue them; only those are asked for."""
        if success is None:
            # Drawn by the number of the iteration, so that a resumed run draws the same.
            order = np.random.default_rng(iteration).permutation(len(verdict))
            chosen = {CLAIMED: order[verdict[order]]}
        else:
            surest = np.argsort(-probability, kind="stable")
            least = surest[::-1]
            chosen = {
                FALSE_POSITIVE: surest[(verdict & ~success)[surest]],
                FALSE_NEGATIVE: least[(~verdict & success)[least]],
            }
        for kind, rows in chosen.items():
            rows = rows[: min(PER_ITERATION, self.limit)]
            images = frames(rows) if len(rows) else ()
            for place, (row, image) in enumerate(zip(rows, images, strict=True)):
                name = f"{iteration:06d}_{place}_prob{probability[row]:.4f}.png"
                self._writer.add(self.directory / kind / name, image, newest=self.limit)

    def flush(self) -> None:
        """Wait until everything queued is written."""
        self._writer.flush()
