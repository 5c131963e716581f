"""Preprocessing: one frame has one form whatever it came in, and anything doubtful is refused."""

import numpy as np
import pytest
import torch

from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_sizes import FrameSize, resize_frames
from rewardlab.models.image_preprocessor import IMAGENET_MEAN, IMAGENET_STD, ImagePreprocessor

SIZE = (3, 32, 40)


@pytest.fixture
def frames() -> torch.Tensor:
    return torch.randint(0, 256, (2, 32, 40, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_layout_and_dtype_do_not_matter(frames: torch.Tensor) -> None:
    prepare = ImagePreprocessor(("cam",), SIZE)
    expected = prepare(frames)
    chw = frames.permute(0, 3, 1, 2)
    for same in (
        frames.numpy(),
        chw,
        chw.contiguous(),
        chw.float() / 255,
        frames.numpy().astype(np.float32) / np.float32(255),
        frames.double() / 255,
        frames.numpy()[:, ::-1][:, ::-1],
    ):
        assert torch.equal(prepare({"cam": same}), expected)
    assert expected.shape == (2, 1, 3, 32, 40)


def test_numbers_by_hand(frames: torch.Tensor) -> None:
    value = float(frames[1, 5, 7, 2]) / 255
    assert ImagePreprocessor(("cam",), SIZE, normalize=False)(frames)[1, 0, 2, 5, 7] == pytest.approx(value)
    normal = (value - IMAGENET_MEAN[2]) / IMAGENET_STD[2]
    assert ImagePreprocessor(("cam",), SIZE)(frames)[1, 0, 2, 5, 7] == pytest.approx(normal, rel=1e-5)


def test_larger_frames_are_reduced_with_antialiasing() -> None:
    """A grid of single black and white pixels becomes grey; without antialiasing it would stay black and white."""
    grid = torch.zeros(1, 64, 80, 3, dtype=torch.uint8)
    grid[:, ::2, ::2] = 255
    grid[:, 1::2, 1::2] = 255
    small = ImagePreprocessor(("cam",), SIZE, normalize=False)(grid)
    assert (small - 0.5).abs().max() < 0.1


def test_frames_larger_than_the_recorded_ones_become_like_them(frames: torch.Tensor) -> None:
    """Recorded at 16x20 and trained at 32x40, that is enlarged: a sharper frame is not what the network knows."""
    prepare = ImagePreprocessor(("cam",), SIZE, frame_sizes={"cam": (16, 20)})
    recorded = torch.from_numpy(resize_frames(frames.numpy(), FrameSize(16, 20), "cam"))
    assert torch.equal(prepare(frames), prepare(recorded))
    assert not torch.equal(prepare(frames), ImagePreprocessor(("cam",), SIZE)(frames))


@pytest.mark.parametrize("size", [(16, 20), (31, 39), (48, 48)])
def test_smaller_frames_and_other_aspects_are_refused(size: tuple[int, int]) -> None:
    images = torch.zeros(1, *size, 3, dtype=torch.uint8)
    with pytest.raises(DataError, match=r"camera 'cam' are .*32x40.*reward\.model\.resize=allow"):
        ImagePreprocessor(("cam",), SIZE)(images)
    assert ImagePreprocessor(("cam",), SIZE, resize="allow")(images).shape == (1, 1, *SIZE)


def test_cameras_come_in_the_order_of_the_keys(frames: torch.Tensor) -> None:
    both = {"a": frames, "b": 255 - frames, "unused": torch.zeros(1)}
    ab = ImagePreprocessor(("a", "b"), SIZE)(both)
    assert torch.equal(ab.flip(1), ImagePreprocessor(("b", "a"), SIZE)(both))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 32, 40, 4, dtype=torch.uint8), r"\[2, 32, 40, 4\].*3 colour channels"),
        (torch.zeros(2, 1, 32, 40), "3 colour channels"),
        (torch.zeros(32, 40, 3), r"\[32, 40, 3\].*\[B, H, W, 3\]"),
        (torch.zeros(2, 3, 40, 3), "cannot be told"),
        (torch.full((2, 32, 40, 3), 1.5), r"to 1\.5; expected \[0, 1\]"),
        (torch.full((2, 32, 40, 3), -0.5), r"-0\.5"),
        (torch.full((2, 32, 40, 3), float("nan")), "nan"),
        (torch.zeros(2, 32, 40, 3, dtype=torch.int64), "torch.int64.*uint8"),
        (np.zeros((2, 32, 40, 3), dtype=bool), "bool.*uint8"),
        (torch.zeros(2, 0, 40, 3, dtype=torch.uint8), "no pixels"),
        ([[1]], "list"),
        ({"wrist": torch.zeros(2, 32, 40, 3)}, "'cam'; found: wrist"),
    ],
)
def test_anything_else_is_refused_with_what_was_found(images: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ImagePreprocessor(("cam",), SIZE)(images)  # type: ignore[arg-type]


def test_several_cameras(frames: torch.Tensor) -> None:
    prepare = ImagePreprocessor(("a", "b"), SIZE)
    with pytest.raises(DataError, match="2 cameras"):
        prepare(frames)
    with pytest.raises(DataError, match=r"'a': 2, 'b': 1"):
        prepare({"a": frames, "b": frames[:1]})


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="image_size"):
        ImagePreprocessor(("a",), (1, 32, 32))
    with pytest.raises(ConfigError, match="image_keys"):
        ImagePreprocessor(("a", "a"), SIZE)
    with pytest.raises(ConfigError, match=r"resize.*alow.*allow"):
        ImagePreprocessor(("a",), SIZE, resize="alow")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"frame_sizes: found b: \[8, 8\]"):
        ImagePreprocessor(("a",), SIZE, frame_sizes={"b": (8, 8)})
