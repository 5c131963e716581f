"""Actions as environments take them."""

from typing import Any

import numpy as np
from gymnasium import spaces

from rewardlab.data.episodes import Array


def within_bounds(action: Array, space: spaces.Space[Any]) -> Array:
    """The same actions inside the bounds of a Box, which Gaussian policies overshoot; other actions as they are."""
    return np.clip(action, space.low, space.high) if isinstance(space, spaces.Box) else np.asarray(action)
