"""The size of imported pictures: the same for all pictures of a camera, and not larger than a classifier needs."""

from dataclasses import dataclass
from typing import TypeAlias

from rewardlab.errors import DataError
from rewardlab.frame_sizes import FrameSize

Size: TypeAlias = tuple[int, int]  # height, width

# The shorter side of reduced pictures: the first number from 128 on that keeps the aspect so well that a model takes
# pictures of the recorded size too. Pictures up to 160 stay as they are.
SHORTER_SIDE, LARGE = 128, 160


@dataclass(frozen=True)
class PictureSize:
    """What the user wants: pictures as they are, of one size, or (the default) large ones reduced."""

    original: bool = False
    wanted: Size | None = None

    def of(self, recorded: Size) -> Size:
        """Return the size at which pictures recorded at another one are stored; the aspect stays, unless told."""
        if self.wanted is not None:
            return self.wanted
        if self.original or min(recorded) <= LARGE:
            return recorded
        sizes = [_scaled(recorded, side) for side in range(SHORTER_SIDE, LARGE)]
        return next((size for size in sizes if FrameSize(*size).fits(recorded)), sizes[0])

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


class CameraSizes:
    """The sizes at which the pictures of each camera of a recording were recorded; all of a camera must agree."""

    def __init__(self, wanted: PictureSize) -> None:
        self._wanted = wanted
        self._recorded: dict[str, Size] = {}

    def check(self, camera: str, found: Size, name: str) -> list[str]:
        """Raise unless a size is that of the camera's first picture; for that one, return lines for the summary."""
        first = camera not in self._recorded
        self._wanted.check_same(found, name, self._recorded.setdefault(camera, found), f"the first of {camera}")
        line = self._wanted.describe(found) if first else None
        return [] if line is None else [f"{camera}: {line}"]


def _scaled(size: Size, shorter: int) -> Size:
    height, width = (round(side * shorter / min(size)) for side in size)
    return height, width
