"""From rows of transitions to rows of arrivals, and back.

Most data sets have in row t what was done *in* frame t: its action, and what came of it. An episode has in row t what
*led to* frame t (see `rewardlab.types`).
"""

import numpy as np

from rewardlab.data.episodes import Array


def arrivals(values: Array) -> Array:
    """Return what led to each frame, from what was done in each: one row later, with zeros in row 0."""
    led = np.zeros_like(values)
    led[1:] = values[:-1]
    return led


def departures(values: Array) -> Array:
    """Return what was done in each frame, from what led to each: one row earlier.

    Nothing was done in the last frame; its row repeats the one before it, so that a policy that learns from it sees no
    action that nobody took. `arrivals` gives back the values, if those of row 0 are zeros.
    """
    return np.concatenate([values[1:], values[-1:]])
