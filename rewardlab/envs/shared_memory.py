"""Memory that several processes read and write. It has no name, so nothing is left of it when they have ended."""

import mmap
import os
import tempfile
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array

from rewardlab.data.episodes import Array

_ALIGNMENT = 64  # bytes; each array begins at a multiple of it
_NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class SharedMemory:
    """A growing piece of memory. Another process opens the same one by `fd`, which it inherits."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _new_file() if fd is None else fd
        self._map: mmap.mmap | None = None

    def reserve(self, size: int) -> None:
        """Make it at least `size` bytes long."""
        if os.fstat(self.fd).st_size < size:
            os.ftruncate(self.fd, size)

    def array(self, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> Array:
        """Return an array that lies in this memory, from `offset` on."""
        size = offset + _bytes(shape, dtype)
        if size == offset:
            return np.empty(shape, dtype)
        if self._map is None or len(self._map) < size:  # arrays keep the older map alive
            self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)
        return np.ndarray(shape, dtype, self._map, offset)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self._map = -1, None


def _new_file() -> int:
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create("rewardlab")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def is_shareable(space: spaces.Space[Any]) -> bool:
    """Return whether observations of this space are arrays of numbers, or dictionaries and tuples of them."""
    if isinstance(space, spaces.Dict):
        return all(map(is_shareable, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return all(map(is_shareable, space.spaces))
    return isinstance(space, _NUMBERS)


def shared_observations(space: spaces.Space[Any], count: int, memory: SharedMemory) -> Any:
    """Return the arrays of `count` observations, as `create_empty_array` does, but in shared memory."""
    arrays = create_empty_array(space, count)
    size = _place(arrays, lambda array, offset: None, 0)[1]
    memory.reserve(size)
    return _place(arrays, lambda array, offset: memory.array(array.shape, array.dtype, offset), 0)[0]


def rows_of(tree: Any, rows: slice) -> Any:
    """Return some rows of every array in dictionaries and tuples."""
    if isinstance(tree, dict):
        return {key: rows_of(part, rows) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(rows_of(part, rows) for part in tree)
    return tree[rows]


def _place(tree: Any, put: Any, offset: int) -> tuple[Any, int]:
    """Return `put(array, offset)` of every array, one behind the other, and the end of the last."""
    if isinstance(tree, (dict, tuple)):
        placed = {}
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            placed[key], offset = _place(part, put, offset)
        return (placed if isinstance(tree, dict) else tuple(placed.values())), offset
    return put(tree, offset), offset + -(-_bytes(tree.shape, tree.dtype) // _ALIGNMENT) * _ALIGNMENT


def _bytes(shape: tuple[int, ...], dtype: Any) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
