"""The greedy coupling of PWIL: each step of an episode moves its mass to the nearest atoms that have mass left.

A step depends on the ones before it. It looks at the atoms within a radius, which is widened until they have enough
mass, so that it sorts a few atoms and not all of them. This runs in NumPy, whose small operations are quicker than
PyTorch's.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

_SPENT = 1e-12  # mass that is rounding
_STEPS_TOGETHER = 16  # distances are computed for so many steps at once, from the atoms that have mass left
_RADII = (1.25, 1.8)  # how far a step looks, relative to how far the one before had to go, before it looks everywhere


def couple(points_TF: Floats, atoms_AF: Floats, owed: float, mass_A: Floats) -> Floats:
    """Move the mass `owed` of each step of an episode to atoms and return its cost; infinite once they are used up.

    What is taken is subtracted from `mass_A`, the mass that is left of each atom.
    """
    cost = np.zeros(len(points_TF))
    reach = math.inf
    for start in range(0, len(cost), _STEPS_TOGETHER):
        some = points_TF[start : start + _STEPS_TOGETHER]
        free = np.flatnonzero(mass_A > _SPENT)
        left, atoms = mass_A[free], atoms_AF[free]
        # |x - y|^2 is |x|^2, which orders nothing, plus |y|^2 - 2 x y.
        partial = some @ (-2 * atoms.T)
        partial += np.square(atoms).sum(1)
        for t, (distance, square) in enumerate(zip(partial, np.square(some).sum(1), strict=True), start):
            if not np.isfinite(square):  # an observation with NaN: whoever reads the rewards says so
                cost[t] = math.nan
                continue
            near, until = _nearest(distance, square, left, owed, reach)
            last = int(until.searchsorted(owed - _SPENT))  # the atom that is used in part
            if last == len(near):
                left[:], cost[t] = 0, math.inf
                continue
            near = near[: last + 1]
            taken, rest = left[near], max(until[last] - owed, 0)
            taken[last] -= rest
            left[near] = 0
            left[near[last]] = rest
            away = np.sqrt(np.maximum(distance[near] + square, 0))
            cost[t], reach = taken @ away, away[last]
        mass_A[free] = left
    return cost


def _nearest(
    distance: Floats, square: float, left: Floats, owed: float, reach: float
) -> tuple[npt.NDArray[np.intp], Floats]:
    """Return the nearest atoms, which have the mass `owed` or are all there are, and the mass up to each of them."""
    for limit in (*((radius * reach) ** 2 - square for radius in _RADII), math.inf):
        near = (distance <= limit).nonzero()[0]
        near = near[distance[near].argsort()]
        until = left[near].cumsum()
        if len(until) and until[-1] >= owed:
            break
    return near, until
