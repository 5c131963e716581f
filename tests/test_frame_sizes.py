"""Frames of another size than the recorded ones: reduced where that is harmless, refused elsewhere."""

import numpy as np
import pytest
import torch

from rewardlab.errors import DataError
from rewardlab.frame_sizes import FrameSize, resize_frames, to_recorded_size


@pytest.mark.parametrize(
    ("recorded", "found", "problem"),
    [
        ((64, 64), (64, 64), None),
        ((64, 64), (128, 128), None),
        ((90, 160), (720, 1280), None),
        ((90, 160), (480, 853), None),  # 853.3: sides are whole numbers
        ((128, 128), (64, 64), "smaller"),
        ((64, 64), (128, 63), "smaller"),
        ((128, 128), (480, 640), "another aspect"),
        ((64, 64), (65, 64), "another aspect"),
    ],
)
def test_larger_frames_of_the_same_aspect_are_taken(
    recorded: tuple[int, int], found: tuple[int, int], problem: str | None
) -> None:
    size = FrameSize(*recorded)
    if problem is None:
        size.check(found, "wrist")
        return
    here, there = (f"{height}x{width}" for height, width in (found, recorded))
    with pytest.raises(DataError, match=rf"camera 'wrist' are {here}; .*recorded at {there}\. They .*{problem}"):
        size.check(found, "wrist")
    FrameSize(*recorded, resize="allow").check(found, "wrist")


def test_frames_and_pixels_are_resized_to_the_same_numbers() -> None:
    """An environment's frames are resized before they are sent to a reward worker, pictures in a file when scored."""
    frames = np.random.default_rng(0).integers(0, 256, (3, 48, 64, 3), np.uint8)
    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255
    size = FrameSize(30, 40)
    expected = to_recorded_size(pixels, size, "a").permute(0, 2, 3, 1)
    resized = resize_frames(frames, size, "a")
    assert resized.dtype == np.uint8
    assert torch.equal(torch.from_numpy(resized).float() / 255, expected)
    assert resize_frames(resized, size, "a") is resized
