"""The last states of episodes, kept so that they can be drawn when an episode has ended."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rewardlab.envs.tabletop.world import World

Ints: TypeAlias = NDArray[np.intp]


class KeptStates:
    """The last `count` states of each table's running episode, and of the episode before it."""

    def __init__(self, count: int, world: World) -> None:
        self._count = count
        self._tables = len(world.grip)
        # A state's row: of which of the two episodes, its number in the episode (modulo the count), its table.
        self._states = world.take(np.zeros(2 * count * self._tables, np.intp))
        self._half = np.zeros(self._tables, np.intp)  # which of the two episodes is running
        self._lengths = np.zeros((2, self._tables), np.intp)  # states of each episode

    def begin(self, ids: Ints) -> None:
        """Begin new episodes at these tables; the states of the ones before are kept for `last`."""
        self._half[ids] ^= 1
        self._lengths[self._half[ids], ids] = 0

    def add(self, ids: Ints, world: World) -> None:
        """Keep the next state of each of these tables, which are the rows of `world`."""
        half = self._half[ids]
        self._states.put(self._rows(half, self._lengths[half, ids], ids), world)
        self._lengths[half, ids] += 1

    def last(self, table: int) -> World:
        """Return the last states of the episode before the running one, in time order."""
        half = 1 - self._half[table]
        length = self._lengths[half, table]
        numbers = np.arange(max(0, length - self._count), length)
        return self._states.take(self._rows(half, numbers, table))

    def _rows(self, half: Ints, number: Ints, table: Ints | int) -> Ints:
        return (half * self._count + number % self._count) * self._tables + table
