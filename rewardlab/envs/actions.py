"""Actions in the form that environments accept."""

from typing import Any

import numpy as np
from gymnasium import spaces

from rewardlab.observations import is_tensor


def within_bounds(action: Any, space: spaces.Space[Any]) -> Any:
    """Clip actions to the bounds of a Box, which Gaussian policies exceed; return other actions unchanged.

    Tensors stay on their device.
    """
    if not isinstance(space, spaces.Box):
        return action if is_tensor(action) else np.asarray(action)
    if is_tensor(action):
        return action.clamp(action.new_tensor(space.low), action.new_tensor(space.high))
    return np.clip(action, space.low, space.high)
