"""Converts images (HWC or CHW, uint8 or float in [0, 1], NumPy, torch, file) to uint8 HWC, as stored, and back."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from rewardlab.data.atomic import replace_file
from rewardlab.errors import ConfigError, DataError
from rewardlab.input_files import open_file
from rewardlab.limits import check_pixels, excerpt
from rewardlab.observations import has_colors_last, to_numpy

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
# The only decoders that a file gets to, whatever its name: Pillow has forty more, some of which start other programs.
# Not by `Image.open`: it has a limit of its own on the number of pixels, which a variable cannot raise.
_DECODERS = {b"\x89PNG\r\n\x1a\n": PngImageFile, b"\xff\xd8\xff": JpegImageFile}
_DEEP_MODES = ("I", "F")  # more than 8 bits a channel, which Pillow would cut off at 255 without a word


def to_uint8_hwc(images: Any, name: str) -> npt.NDArray[np.uint8]:
    """Return images [..., H, W, 3] or [..., 3, H, W] as uint8 [..., H, W, 3]; `name` is what an error calls them."""
    array = to_numpy(images)
    if not has_colors_last(array, name):
        array = np.moveaxis(array, -3, -1)
    if array.dtype != np.uint8:
        array = np.rint(np.clip(array, 0.0, 1.0) * 255.0).astype(np.uint8)
    return np.ascontiguousarray(array)


def to_float_chw(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return uint8 [..., H, W, 3] as float32 [..., 3, H, W] in [0, 1]; `to_uint8_hwc` gives back the same bytes."""
    return np.ascontiguousarray(np.moveaxis(images, -1, -3), dtype=np.float32) / np.float32(255.0)


def write_png(path: Path, pixels: npt.NDArray[np.uint8]) -> Path:
    """Write a picture [H, W, 3], which appears whole; an earlier one is replaced."""
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "png")
    return replace_file(path, encoded.getvalue(), durable=False)


def read_image(path: Path) -> npt.NDArray[np.uint8]:
    """Read a picture file as uint8 [H, W, 3]: grey becomes RGB, transparency is dropped."""
    with _opened(path) as picture:
        return np.asarray(picture.convert("RGB"))


def picture_size(path: Path) -> tuple[int, int]:
    """Return height and width of a picture file that `read_image` will read, from its header alone."""
    with _opened(path) as picture:
        return picture.height, picture.width


def decode_image(content: bytes, name: object) -> npt.NDArray[np.uint8]:
    """Return the picture in the bytes of a file as `read_image` does; `name` is what an error calls it."""
    with _checked(io.BytesIO(content), name) as picture:
        return np.asarray(picture.convert("RGB"))


@contextmanager
def _opened(path: Path) -> Iterator[ImageFile]:
    """Open a picture, whose pixels are not yet decoded, and name the file in errors."""
    try:
        file = open_file(path)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except OSError as error:
        raise DataError(f"{path} is damaged or not a picture ({excerpt(error)})") from error
    with file, _checked(file, path) as picture:
        yield picture


@contextmanager
def _checked(file: BinaryIO, name: object) -> Iterator[ImageFile]:
    try:
        with _open_picture(file) as picture:
            check_pixels(picture.height, picture.width, name)
            if picture.mode.startswith(_DEEP_MODES):
                raise DataError(f"{name} has more than 8 bits a channel; save it with 8 first")
            yield picture
    except (ConfigError, DataError):
        raise
    except Exception as error:  # Pillow meets damaged files with nearly anything
        raise DataError(f"{name} is damaged or not a picture ({excerpt(error)})") from error


def _open_picture(file: BinaryIO) -> ImageFile:
    beginning = file.read(8)
    file.seek(0)
    for magic, decoder in _DECODERS.items():
        if beginning.startswith(magic):
            return decoder(file)
    raise ValueError("expected PNG or JPEG")
