"""The part of a camera's frames that a classifier looks at: top, left, height and width.

A crop is a property of the trained model: it is cut out of frames of the recorded size, before they are resized to the
network's. Numbers up to 1 are fractions of the frame; larger ones are pixels of it, as recorded.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from rewardlab.errors import ConfigError

Crop: TypeAlias = tuple[int, int, int, int]  # top, left, height, width in pixels
SMALLEST = 8  # pixels of a side


def check_crop(crop: Any, name: str) -> tuple[float, float, float, float]:
    """Return the four numbers of a crop; raise a ConfigError if they are none, `name` being where they stand."""
    numbers = tuple(crop) if isinstance(crop, Sequence) and not isinstance(crop, str) else ()
    if len(numbers) != 4 or not all(type(number) in (int, float) and number >= 0 for number in numbers):
        raise ConfigError(
            f"{name}: found {crop!r}, expected [top, left, height, width], in pixels of the recorded frame or as "
            "fractions of it, such as [0.25, 0.25, 0.5, 0.5]"
        )
    return numbers


def crop_box(crop: Sequence[float], height: int, width: int, name: str) -> Crop:
    """Return a crop in pixels of frames of this size; raise a ConfigError if it is not inside of them."""
    numbers = check_crop(crop, name)
    found = f"[{', '.join(f'{number:g}' for number in numbers)}]"
    if max(numbers) <= 1:  # no crop is one pixel high
        top, left = round(numbers[0] * height), round(numbers[1] * width)
        bottom, right = round((numbers[0] + numbers[2]) * height), round((numbers[1] + numbers[3]) * width)
        box = top, left, bottom - top, right - left
    elif all(float(number).is_integer() for number in numbers):
        box = (int(numbers[0]), int(numbers[1]), int(numbers[2]), int(numbers[3]))
    else:
        raise ConfigError(f"{name}: found {found}, expected whole pixels, or four fractions from 0 to 1")
    if box[0] + box[2] > height or box[1] + box[3] > width:
        raise ConfigError(
            f"{name}: found {found}, which reaches to row {box[0] + box[2]} and column {box[1] + box[3]}; "
            f"expected it inside of the recorded frame of {height}x{width}"
        )
    if min(box[2:]) < SMALLEST:
        pixels, least = f"{box[2]}x{box[3]}", f"{SMALLEST}x{SMALLEST}"
        raise ConfigError(f"{name}: found {found}, which is {pixels} pixels; expected at least {least}")
    return box
