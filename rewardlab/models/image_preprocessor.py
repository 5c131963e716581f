"""Prepares images for a classifier's network. It is a part of the model, so that training, scoring from files and
scoring inside RL cannot differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from rewardlab.devices import to_device
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_crops import Crop, check_crop, crop_box
from rewardlab.frame_sizes import FrameSize, Resize, resample, to_recorded_size
from rewardlab.limits import check_pixels
from rewardlab.observations import has_colors_last
from rewardlab.registry import unknown_name

ImageArray: TypeAlias = Tensor | np.ndarray[Any, Any]
Images: TypeAlias = Mapping[str, ImageArray] | ImageArray

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class CutImages(dict[str, ImageArray]):
    """Images by camera whose crops `ImagePreprocessor.cut` has cut out already."""


@dataclass(frozen=True)
class ImagePreprocessor:
    """Checks, crops, resizes and normalises the images of the cameras a model looks at.

    In: per camera uint8 or floats in [0, 1], [B, H, W, 3] or [B, 3, H, W], a tensor or a NumPy array; with one camera
    also the array alone. Out: float32 [B, cameras, 3, height, width] in the order of `image_keys`.
    """

    image_keys: tuple[str, ...]
    image_size: tuple[int, int, int]
    normalize: bool = True
    frame_sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # recorded: height, width by camera
    resize: Resize = "reduce"
    crop: Mapping[str, Sequence[float]] = field(default_factory=dict)  # of recorded frames, by camera; see frame_crops

    def __post_init__(self) -> None:
        if self.resize not in get_args(Resize):
            raise ConfigError(unknown_name("resize", str(self.resize), get_args(Resize)))
        for camera, size in self.frame_sizes.items():
            sane = len(size) == 2 and all(type(side) is int and side > 0 for side in size)
            if camera not in self.image_keys or not sane:
                expected = f"[height, width] of {', '.join(self.image_keys)}"
                raise ConfigError(f"frame_sizes: found {camera}: {list(size)}, expected {expected}")
            check_pixels(*size, "frame_sizes")  # of a file, and an environment draws what it says
        for camera, crop in self.crop.items():
            if camera not in self.image_keys:
                raise ConfigError(f"crop: found camera '{camera}', expected one of {', '.join(self.image_keys)}")
            check_crop(crop, f"crop.{camera}")
            if camera in self.frame_sizes:
                self.box(camera)
        if len(self.image_size) != 3 or self.image_size[0] != 3 or min(self.image_size) < 1:
            raise ConfigError(f"image_size: found {list(self.image_size)}, expected [3, height, width]")
        if not self.image_keys or len(set(self.image_keys)) != len(self.image_keys):
            raise ConfigError(f"image_keys: found {list(self.image_keys)}, expected one or more different camera names")

    def __call__(self, images: Images, device: torch.device | None = None) -> Tensor:
        cameras, cut = self.select(images), isinstance(images, CutImages)
        prepared = [self._prepare(cameras[key], key, device, cut) for key in self.image_keys]
        counts = {key: len(array) for key, array in zip(self.image_keys, prepared, strict=True)}
        if len(set(counts.values())) > 1:
            raise DataError(f"cameras have different numbers of images: {counts}")
        return torch.stack(prepared, dim=1)

    def select(self, images: Images) -> dict[str, ImageArray]:
        """Return the images of this model's cameras, unchecked."""
        if not isinstance(images, Mapping):
            if len(self.image_keys) > 1:
                raise DataError(
                    f"found one array of images; the model looks at {len(self.image_keys)} cameras: expected a "
                    f"dictionary with {', '.join(self.image_keys)}"
                )
            return {self.image_keys[0]: images}
        missing = [key for key in self.image_keys if key not in images]
        if missing:
            found = ", ".join(sorted(map(str, images))) or "none"
            raise DataError(f"no images of camera '{missing[0]}'; found: {found}. The model was trained on this camera")
        return {key: images[key] for key in self.image_keys}

    def frame_size(self, camera: str) -> FrameSize:
        """Return the size that frames of a camera must have: that of the recorded ones, else of the network."""
        height, width = self.frame_sizes.get(camera, self.image_size[1:])
        return FrameSize(height, width, self.resize, recorded=camera in self.frame_sizes)

    def cut(self, images: Mapping[str, ImageArray]) -> Mapping[str, ImageArray]:
        """Return what the model looks at of the images [B, ...] of cameras: of those with a crop, what is in it.

        Augmentation works on this, or it would shift pixels into the crop that the model must not see.
        """
        if not self.crop:
            return images
        return CutImages({key: self._cut(array, key) if key in self.crop else array for key, array in images.items()})

    def _cut(self, array: ImageArray, camera: str) -> ImageArray:
        top, left, height, width = self.box(camera)
        size, colors_last = self.frame_size(camera), has_colors_last(array, camera)
        if tuple(array.shape[1:3] if colors_last else array.shape[2:]) != size.pixels:
            pixels = to_recorded_size(to_unit_floats(array, camera), size, camera)
            array, colors_last = (pixels * 255).round().byte().permute(0, 2, 3, 1), True
        rows, columns = slice(top, top + height), slice(left, left + width)
        return array[:, rows, columns] if colors_last else array[:, :, rows, columns]

    def box(self, camera: str) -> Crop:
        """Return the crop of a camera in pixels of frames of the recorded size."""
        return crop_box(self.crop[camera], *self.frame_size(camera).pixels, f"crop.{camera}")

    def _prepare(self, array: ImageArray, camera: str, device: torch.device | None, cut: bool) -> Tensor:
        pixels = to_unit_floats(array, camera, device)
        if camera not in self.crop or not cut:
            pixels = to_recorded_size(pixels, self.frame_size(camera), camera)
        if camera in self.crop and not cut:
            top, left, height, width = self.box(camera)
            pixels = pixels[:, :, top : top + height, left : left + width].contiguous()
        if pixels.shape[2:] != self.image_size[1:]:
            pixels = resample(pixels, self.image_size[1:])
        if self.normalize:
            mean = torch.tensor(IMAGENET_MEAN, device=pixels.device).view(3, 1, 1)
            std = torch.tensor(IMAGENET_STD, device=pixels.device).view(3, 1, 1)
            pixels = (pixels - mean) / std
        return pixels


def to_unit_floats(array: ImageArray, camera: str, device: torch.device | None = None) -> Tensor:
    """Return images of one camera as contiguous float32 [B, 3, H, W] in [0, 1]: the same bits from any layout."""
    if not isinstance(array, (Tensor, np.ndarray)):
        raise DataError(f"images of '{camera}' are a {type(array).__name__}; expected a tensor or a NumPy array")
    shape = list(array.shape)
    if len(shape) != 4:
        raise DataError(f"images of '{camera}' have shape {shape}; expected [B, H, W, 3] or [B, 3, H, W]")
    colors_last = has_colors_last(array, camera)
    if shape[1] == shape[-1]:
        raise DataError(f"images of '{camera}' have shape {shape}: it cannot be told which axis is the colour")
    if isinstance(array, np.ndarray):
        # torch cannot use arrays with negative strides (a flipped frame) and warns of read-only ones (a mapped file).
        array = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    images = array if device is None else to_device(array, device)
    if colors_last:
        images = images.permute(0, 3, 1, 2)
    if images.dtype == torch.uint8:
        return images.contiguous().float() / 255
    return images.float().clamp(0, 1).contiguous()
