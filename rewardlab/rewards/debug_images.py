"""Scored frames as PNG files, to look at what the classifier calls a success."""

import os
import re
from pathlib import Path

from torch import Tensor

from rewardlab.models.image_preprocessor import ImageArray
from rewardlab.rewards.png_writer import PngWriter

SUCCESS, FAIL = "resnet_success", "resnet_fail"
_NAME = re.compile(r"^(\d{6,})_prob[0-9.]+\.png$")


def debug_directory(debug_save_dir: str | None) -> Path | None:
    """Where debug images go: what the config says, else $DEBUG_IMAGE_SAVE_DIR, else nowhere."""
    chosen = debug_save_dir or os.environ.get("DEBUG_IMAGE_SAVE_DIR")
    return Path(chosen) if chosen else None


class DebugImageWriter:
    """Writes `resnet_success/` and `resnet_fail/{id:06d}_prob{p:.4f}.png` from a thread of its own.

    At most `limit` images a folder, counting those of earlier runs; frames that come faster than the disk takes them
    are dropped. Never raises into scoring: the first failure is a warning, and the last thing it writes.
    """

    def __init__(self, directory: str | Path, limit: int = 1000, backlog: int = 256) -> None:
        self.directory = Path(directory)
        self.limit = limit
        self._writer = PngWriter(f"debug images in {directory}", backlog)
        self._taken: dict[str, int] | None = None  # images a folder has or is about to have
        self._number = 0

    def add(self, images: ImageArray, probabilities: Tensor, threshold: float) -> None:
        """Queue the frames [B, ...] of one camera; returns at once."""
        if self._writer.broken:
            return
        try:
            taken = self._count_earlier()
        except OSError as error:
            return self._writer.give_up(error)
        for index, probability in enumerate(probabilities.tolist()):
            folder = SUCCESS if probability > threshold else FAIL
            name = f"{self._number:06d}_prob{probability:.4f}.png"
            if taken[folder] < self.limit and self._writer.add(self.directory / folder / name, images[index]):
                taken[folder] += 1
                self._number += 1

    def flush(self) -> None:
        """Wait until everything queued is written."""
        self._writer.flush()

    def _count_earlier(self) -> dict[str, int]:
        if self._taken is None:
            numbers = {folder: _numbers(self.directory / folder) for folder in (SUCCESS, FAIL)}
            self._taken = {folder: len(found) for folder, found in numbers.items()}
            self._number = max((number for found in numbers.values() for number in found), default=-1) + 1
        return self._taken


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(match.group(1)) for file in folder.iterdir() if (match := _NAME.match(file.name))]
