"""Images as others hand them over (HWC or CHW, uint8 or float in [0, 1], NumPy, torch, file) to uint8 HWC, and back."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from rewardlab.data.episodes import Array
from rewardlab.errors import DataError

# Renderers and resizers overshoot 1 by rounding; anything further out is another scale (0-255, -1..1) and is refused.
_TOLERANCE = 1e-3

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
_DEEP_MODES = ("I", "F")  # more than 8 bits a channel, which Pillow would cut off at 255 without a word


def to_numpy(values: Any) -> Array:
    """A NumPy array of a tensor on any device, an array or plain numbers."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def to_uint8_hwc(images: Any, name: str) -> npt.NDArray[np.uint8]:
    """Images of shape [..., H, W, 3] or [..., 3, H, W] as uint8 [..., H, W, 3]."""
    array = to_numpy(images)
    if array.ndim < 3 or 3 not in (array.shape[-1], array.shape[-3]):
        raise DataError(f"image '{name}' has shape {list(array.shape)}; expected [..., H, W, 3] or [..., 3, H, W]")
    if array.shape[-1] != 3:
        array = np.moveaxis(array, -3, -1)
    if array.dtype.kind == "f":
        array = _from_unit_floats(array, name)
    elif array.dtype != np.uint8:
        raise DataError(f"image '{name}' has dtype {array.dtype}; expected uint8, or floats in [0, 1]")
    return np.ascontiguousarray(array)


def _from_unit_floats(array: Array, name: str) -> Array:
    low, high = float(array.min(initial=0.0)), float(array.max(initial=0.0))
    # Written so that NaN fails it too.
    if not (low >= -_TOLERANCE and high <= 1.0 + _TOLERANCE):
        raise DataError(f"float image '{name}' has values from {low:g} to {high:g}; expected [0, 1] (or uint8)")
    return np.rint(np.clip(array, 0.0, 1.0) * 255.0).astype(np.uint8)


def to_float_chw(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """uint8 [..., H, W, 3] as float32 [..., 3, H, W] in [0, 1]; `to_uint8_hwc` gives back the same bytes."""
    return np.ascontiguousarray(np.moveaxis(images, -1, -3), dtype=np.float32) / np.float32(255.0)


def read_image(path: Path) -> npt.NDArray[np.uint8]:
    """A picture file as uint8 [H, W, 3]: grey becomes RGB, transparency is dropped."""
    try:
        with Image.open(path) as picture:
            if picture.mode.startswith(_DEEP_MODES):
                raise DataError(f"{path} has more than 8 bits a channel; save it with 8 before scoring it")
            return np.asarray(picture.convert("RGB"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except DataError:
        raise
    except Exception as error:  # Pillow meets damaged files with nearly anything
        raise DataError(f"{path} is damaged or not a picture ({error})") from error
