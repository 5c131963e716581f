"""Checks that the seed of a reset decides how an episode begins, and warns by name where it does not."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

SLOW_RESET = 2.0  # seconds; an environment that takes longer is not reset once more for this check
FIXED_START = "fixed_start"  # key of an environment's metadata: true if its episodes are meant to begin all the same
CHECKED: set[str] = set()  # names of the environments that were checked in this process


def warn_about_seeds(name: str, first: Any, again: Any, other: Any, *, fixed_start: bool) -> None:
    """Compare observations after resets: of a copy, of the same with the same seed, and of a copy with another seed.

    `other` is None if there is only one copy.
    """
    CHECKED.add(name)
    if not same_observations(first, again):
        warnings.warn(
            f"'{name}' ignores the seed of reset(): the same seed gave two different observations, so that no run can "
            "be repeated. In an environment of yours, call super().reset(seed=seed) and draw from self.np_random",
            stacklevel=4,
        )
    elif other is not None and not fixed_start and same_observations(first, other):
        warnings.warn(
            f"'{name}': copies with different seeds begin with the same observation. If it always begins like that, "
            f"nothing is wrong (metadata['{FIXED_START}'] = True says so); otherwise it ignores the seed, and all "
            "copies may show the same episodes",
            stacklevel=4,
        )


def same_observations(one: Any, other: Any) -> bool:
    """Return whether two observations, or batches of them, are the same but for rounding."""
    if isinstance(one, Mapping):
        return all(same_observations(part, other[key]) for key, part in one.items())
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same_observations, one, other))
    if isinstance(one, str):
        return bool(one == other)
    left, right = np.asarray(one), np.asarray(other)
    if left.dtype.kind != "f":
        return np.array_equal(left, right)
    return left.shape == right.shape and np.allclose(left, right, rtol=1e-5, atol=1e-7, equal_nan=True)
