"""Stores the frames of stored transitions, for reward models that score them again."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from rewardlab.errors import DataError

Images: TypeAlias = dict[str, Tensor]  # by camera: uint8 [n, H, W, 3]


class FrameStore:
    """Stores images in numbered slots; slots that are freed are used again."""

    def __init__(self) -> None:
        self._images: Images = {}
        self._free = torch.zeros(0, dtype=torch.int64)

    def __len__(self) -> int:
        """Return the number of slots in use."""
        return self._capacity - len(self._free)

    def __getitem__(self, slots: Tensor) -> Images:
        return {camera: images[slots] for camera, images in self._images.items()}

    def add(self, images: Mapping[str, Any], has_frame: Tensor) -> Tensor:
        """Store images, one for each true entry of `has_frame`, in order; return the slot of each entry, or -1."""
        tensors = {camera: torch.as_tensor(frames) for camera, frames in images.items()}
        count = int(has_frame.sum())
        found = {camera: len(frames) for camera, frames in tensors.items()}
        if set(found.values()) != {count}:
            raise DataError(f"found {found} frames for {count} transitions that have one")
        self._reserve(count, tensors)
        used, self._free = self._free[:count], self._free[count:]
        for camera, frames in tensors.items():
            self._images[camera][used] = frames
        slots = torch.full(has_frame.shape, -1)
        slots[has_frame] = used
        return slots

    def free(self, slots: Tensor) -> None:
        """Free these slots; entries of -1 are ignored."""
        self._free = torch.cat([self._free, slots[slots >= 0]])

    @property
    def _capacity(self) -> int:
        return len(next(iter(self._images.values()), ()))

    def _reserve(self, count: int, like: Images) -> None:
        before = self._capacity
        for camera, frames in like.items():
            stored = self._images.setdefault(camera, frames[:0])
            if stored.shape[1:] != frames.shape[1:]:
                raise DataError(
                    f"frames of '{camera}' are {list(frames.shape[1:])}, those stored before {list(stored.shape[1:])}: "
                    "demonstrations must have the env.train.image_size of the run"
                )
        missing = count - len(self._free)
        if missing <= 0:
            return
        more = max(missing, before)  # at least double the capacity
        for camera, images in self._images.items():
            self._images[camera] = torch.cat([images, images.new_empty((more, *images.shape[1:]))])
        self._free = torch.cat([self._free, torch.arange(before, before + more)])
