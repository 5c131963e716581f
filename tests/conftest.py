"""Episodes that are learned in seconds: a red square is success, a blue one is not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rewardlab.data import Episode, EpisodeWriter

ToyWriter = Callable[..., Path]


@pytest.fixture(scope="session")
def write_toy_episodes() -> ToyWriter:
    """Writes `count` episodes to a directory; every other one shows success, in its last third."""

    def write(
        directory: Path,
        format: str = "safetensors",
        *,
        count: int = 8,
        length: int = 9,
        size: int = 32,
        cameras: tuple[str, ...] = ("base_camera",),
    ) -> Path:
        rng = np.random.default_rng(count)
        writer = EpisodeWriter(directory, format, durable=False)
        for number in range(count):
            labels = (np.arange(length) >= length - length // 3) & (number % 2 == 0)
            columns = {"success": labels}
            for camera in cameras:
                frames = rng.integers(0, 60, (length, size, size, 3), dtype=np.uint8)
                for frame, label in zip(frames, labels, strict=True):
                    row, column = rng.integers(0, size - size // 3, 2)
                    frame[row : row + size // 3, column : column + size // 3, 0 if label else 2] = 230
                columns[f"observation.images.{camera}"] = frames
            writer.write(Episode.from_columns(columns, task="toy"))
        return directory

    return write
