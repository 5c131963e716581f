"""Actions in the form that environments accept."""

from typing import Any

import numpy as np
from gymnasium import spaces

from rewardlab.data.episodes import Array


def within_bounds(action: Array, space: spaces.Space[Any]) -> Array:
    """Clip actions to the bounds of a Box, which Gaussian policies exceed; return other actions unchanged."""
    return np.clip(action, space.low, space.high) if isinstance(space, spaces.Box) else np.asarray(action)
