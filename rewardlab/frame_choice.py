"""Which frames of a collected episode get pictures (`data.collection.frames`)."""

import re
from dataclasses import dataclass

FORMS = "all, every:5 (each fifth frame of an episode and its last one) or last:10 (its last ten)"


@dataclass(frozen=True)
class FrameChoice:
    """All frames of an episode, every n-th and the last one, or the last n. Row 0 is the frame after the reset."""

    every: int = 1
    last: int | None = None  # if set, `every` is 1

    @classmethod
    def parse(cls, text: object) -> "FrameChoice":
        """Read `all`, `every:5` or `last:10`; a ValueError says what was expected."""
        if text == "all":
            return cls()
        match = re.fullmatch(r"(every|last):([1-9]\d{0,8})", text) if isinstance(text, str) else None
        if match is None:
            raise ValueError(FORMS)
        return cls(**{match[1]: int(match[2])})
