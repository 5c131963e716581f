"""Pictures for TensorBoard: frames side by side, such as those that the audit disputes."""

import io
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from rewardlab.data.images import read_image
from rewardlab.errors import DataError
from rewardlab.rewards.disputed_frames import CLAIMED, FALSE_NEGATIVE, FALSE_POSITIVE

Picture = npt.NDArray[np.uint8]

SHOWN = 8  # frames side by side
HEIGHT = 128  # pixels of a frame at least, as a whole multiple


def disputed_pictures(directory: Path) -> dict[str, Picture]:
    """Return the newest disputed frames of each kind, side by side, by name; `directory` is the audit's."""
    found: dict[str, Picture] = {}
    for kind in (FALSE_POSITIVE, FALSE_NEGATIVE, CLAIMED):
        for folder in sorted(directory.rglob(kind)):
            frames = _read(sorted(folder.glob("*.png"), reverse=True)[:SHOWN])
            if frames:
                found["/".join(("audit", *folder.relative_to(directory).parts))] = side_by_side(frames)
    return found


def side_by_side(frames: Sequence[Picture]) -> Picture:
    """Return frames in a row, as high as the first and enlarged if they are small."""
    height = frames[0].shape[0]
    times = max(1, HEIGHT // height)
    rows = [_as_high(frame, height).repeat(times, axis=0).repeat(times, axis=1) for frame in frames]
    return np.concatenate(rows, axis=1)


def plot_picture(png: bytes) -> Picture:
    """Return the pixels of a plot."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def _as_high(frame: Picture, height: int) -> Picture:
    if frame.shape[0] == height:
        return frame
    width = max(1, round(frame.shape[1] * height / frame.shape[0]))
    return np.asarray(cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _read(files: Sequence[Path]) -> list[Picture]:
    """Read pictures; one that is being replaced is left out."""
    frames = []
    for file in files:
        try:
            frames.append(read_image(file))
        except DataError:
            continue
    return frames
