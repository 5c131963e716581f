"""Writes scored frames as PNG files, to see which frames the classifier predicts to be successes."""

import os
import re
from pathlib import Path

from torch import Tensor

from rewardlab.models.image_preprocessor import ImageArray
from rewardlab.rewards.png_writer import PngWriter

SUCCESS, FAIL = "resnet_success", "resnet_fail"
_NAME = re.compile(r"^(\d{6,})_prob[0-9.]+\.png$")


def debug_directory(debug_save_dir: str | None) -> Path | None:
    """Return the directory of debug images: that of the config, else $DEBUG_IMAGE_SAVE_DIR, else None."""
    chosen = debug_save_dir or os.environ.get("DEBUG_IMAGE_SAVE_DIR")
    return Path(chosen) if chosen else None


class DebugImageWriter:
    """Writes scored frames to `resnet_success/` and `resnet_fail/{id:06d}_prob{p:.4f}.png` from its own thread.

    A directory gets at most `limit` images, including those of earlier runs; frames that come faster than the disk can
    write them are dropped. Never raises an error: after the first failure it warns and stops.

    Ids go on after those that are in the directory. Where several workers share the frames of a run, each frame has a
    `position` in the run, and its id is that position after `first_id`: no two frames have the same one.
    """

    first_id = 0

    def __init__(self, directory: str | Path, limit: int = 1000, backlog: int = 256) -> None:
        self.directory = Path(directory)
        self.limit = limit
        self._writer = PngWriter(f"debug images in {directory}", backlog)
        self._counts: dict[str, int] | None = None  # images in each directory, including queued ones
        self._number = 0

    def add(self, images: ImageArray, probabilities: Tensor, threshold: float, position: int | None = None) -> None:
        """Queue the frames [B, ...] of one camera without waiting; `position` is that of the first of them."""
        if self._writer.broken:
            return
        try:
            counts = self._count_files()
        except OSError as error:
            return self._writer.give_up(error)
        for index, probability in enumerate(probabilities.tolist()):
            folder = SUCCESS if probability > threshold else FAIL
            number = self._number if position is None else self.first_id + position + index
            name = f"{number:06d}_prob{probability:.4f}.png"
            if counts[folder] < self.limit and self._writer.add(self.directory / folder / name, images[index]):
                counts[folder] += 1
                self._number += 1

    def next_id(self) -> int:
        """Return the first id that is not in the directory yet, nor any after it."""
        try:
            self._count_files()
        except OSError as error:
            self._writer.give_up(error)
        return self._number

    def flush(self) -> None:
        """Wait until everything queued is written."""
        self._writer.flush()

    def _count_files(self) -> dict[str, int]:
        if self._counts is None:
            numbers = {folder: _numbers(self.directory / folder) for folder in (SUCCESS, FAIL)}
            self._counts = {folder: len(found) for folder, found in numbers.items()}
            self._number = max((number for found in numbers.values() for number in found), default=-1) + 1
        return self._counts


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(match.group(1)) for file in folder.iterdir() if (match := _NAME.match(file.name))]
