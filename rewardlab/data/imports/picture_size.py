"""The size of imported pictures: the same for all pictures of a camera, and not larger than a classifier needs."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from rewardlab.errors import DataError

Frame: TypeAlias = npt.NDArray[np.uint8]
Size: TypeAlias = tuple[int, int]  # height, width

SHORTER_SIDE = 128  # of reduced pictures


@dataclass(frozen=True)
class PictureSize:
    """What the user wants: pictures as they are, of one size, or (the default) large ones reduced."""

    original: bool = False
    wanted: Size | None = None

    def of(self, recorded: Size) -> Size:
        """Return the size at which pictures recorded at another one are stored; the aspect stays, unless told."""
        if self.wanted is not None:
            return self.wanted
        shorter = min(recorded)
        if self.original or shorter <= SHORTER_SIDE:
            return recorded
        height, width = (round(side * SHORTER_SIDE / shorter) for side in recorded)
        return height, width

    def check_same(self, recorded: Size, name: str, other: Size, other_name: str) -> None:
        """Raise unless pictures of two sizes may be brought to one: by the user's word alone."""
        if recorded != other and self.wanted is None:
            height, width = self.of(recorded)
            raise DataError(
                f"pictures of several sizes: {name} is {recorded[0]}x{recorded[1]}, {other_name} is "
                f"{other[0]}x{other[1]}. A classifier needs one: --size {height}x{width} resizes all of them"
            )

    def describe(self, recorded: Size) -> str | None:
        """Return a line for the summary if pictures are resized."""
        stored = self.of(recorded)
        if stored == recorded:
            return None
        words = f"pictures resized from {recorded[0]}x{recorded[1]} to {stored[0]}x{stored[1]}"
        return words if self.wanted else f"{words}; --size original keeps them"


REDUCED = PictureSize()


def resize_picture(frame: Frame, size: Size) -> Frame:
    """Return a picture [H, W, 3] at another height and width.

    The filter is that of `rewardlab.frame_sizes`, without torch: a model that sees the original frames reduces them to
    the same pictures, but for rounding.
    """
    if frame.shape[:2] == size:
        return frame
    return np.asarray(Image.fromarray(frame).resize((size[1], size[0]), Image.Resampling.BILINEAR))
