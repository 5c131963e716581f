"""The size at which frames were recorded, and how frames of another size are brought to it.

Collecting, training, runs, wrappers and `rewardlab score` all resize frames here, except pictures of an environment's
`render()`: those are brought to the wanted size where they are drawn, for everybody alike (`envs/cameras.py`).

A success classifier has seen frames of one size; its score of a frame that was enlarged or squeezed to that size means
little. So larger frames of the same aspect are reduced, and other sizes are refused unless the config allows them.
"""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rewardlab.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

Resize: TypeAlias = Literal["reduce", "allow"]


class FrameSize(NamedTuple):
    """The size that frames of a camera must have, and what happens to those of another size."""

    height: int
    width: int
    resize: Resize = "reduce"  # larger frames of the same aspect only; "allow": any
    recorded: bool = True  # False: a checkpoint does not say at which size frames were recorded; its network has this

    @property
    def pixels(self) -> tuple[int, int]:
        return self.height, self.width

    def fits(self, found: tuple[int, int]) -> bool:
        """Return whether frames of the size `found` may be resized to this one."""
        height, width = found
        same_aspect = abs(width - self.width * height / self.height) < 1  # pixels: sides are rounded
        return found == self.pixels or self.resize == "allow" or (self._is_smaller_than(found) and same_aspect)

    def _is_smaller_than(self, found: tuple[int, int]) -> bool:
        return found[0] >= self.height and found[1] >= self.width

    def check(self, found: tuple[int, int], camera: str) -> None:
        """Raise a DataError unless frames of the size `found` may be resized to this one."""
        if self.fits(found):
            return
        height, width = found
        here, there = f"{height}x{width}", f"{self.height}x{self.width}"
        known = f"the model was trained on frames recorded at {there}"
        if not self.recorded:
            known = f"the checkpoint does not say at which size its frames were recorded; its network works at {there}"
        problem = "have another aspect" if self._is_smaller_than(found) else "are smaller"
        raise DataError(
            f"images of camera '{camera}' are {here}; {known}. They {problem}, which makes its scores meaningless. "
            f"Give it frames of {there} (env.train.image_size=[3,{self.height},{self.width}] where the environment "
            "draws them), or larger ones of that aspect; reward.model.resize=allow resizes any"
        )


def resample(pixels: "Tensor", size: tuple[int, int]) -> "Tensor":
    """Resize images [B, 3, H, W], bilinearly and with antialiasing."""
    from torch.nn import functional

    return functional.interpolate(pixels, size, mode="bilinear", antialias=True, align_corners=False)


def to_recorded_size(pixels: "Tensor", size: FrameSize, camera: str) -> "Tensor":
    """Return images [B, 3, H, W] in [0, 1] as if they had been recorded at `size`, in steps of 1/255."""
    found = pixels.shape[2], pixels.shape[3]
    size.check(found, camera)
    if found == size.pixels:
        return pixels
    return (resample(pixels, size.pixels) * 255).round() / 255


def resize_picture(frame: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Return a frame, uint8 [H, W, 3], at another height and width, whatever its aspect.

    Ten times as fast as `resize_frames`; the numbers differ by rounding alone.
    """
    if frame.shape[:2] == size:
        return frame
    import torch

    image = torch.from_numpy(np.require(frame, requirements=["C", "W"])).permute(2, 0, 1)[None]
    resized: npt.NDArray[np.uint8] = resample(image, size)[0].permute(1, 2, 0).numpy()
    return np.ascontiguousarray(resized)


def resize_frames(frames: npt.NDArray[np.uint8], size: FrameSize, camera: str) -> npt.NDArray[np.uint8]:
    """Return frames, uint8 [n, H, W, 3], at `size`; the same numbers as `to_recorded_size`."""
    if frames.shape[1:3] == size.pixels:
        return frames
    import torch  # collecting starts quickly without it

    images = torch.from_numpy(np.require(frames, requirements=["C", "W"]))
    pixels = images.permute(0, 3, 1, 2).contiguous().float() / 255
    resized: Any = (to_recorded_size(pixels, size, camera) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    return np.ascontiguousarray(resized)
