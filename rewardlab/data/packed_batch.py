"""Batches in which each picture is stored once, although several columns show it.

The picture after a step is in `next_observation` of that step, in `observation` of the next one and, if a reward model
looks at the same camera, among the frames that it scores. A PackedBatch has one copy of it. Rollouts cross processes in
this form, and replay buffers are saved in it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from tensordict import TensorDict
from torch import Tensor

from rewardlab.errors import DataError
from rewardlab.types import Batch

Column: TypeAlias = tuple[str, ...]
Pictures: TypeAlias = Mapping[str, Tensor]  # by table: [m, H, W, 3], usually uint8

FRAME = "frame"  # the columns, by camera, of pictures that reward models may score again; a row may have none
_SCORED = "scored by a reward model: "  # table of a camera's scored pictures, if they differ in size from observations


@dataclass(frozen=True)
class PackedBatch:
    """Transitions whose image columns contain numbers (int64) of pictures in `frames`; -1 stands for no picture.

    A camera has one table in `frames`. Images of a camera without a table are in the rows themselves.
    """

    rows: Batch
    frames: dict[str, Tensor] = field(default_factory=dict)

    def unpack(self) -> Batch:
        """Return the transitions with the images of their observations."""
        return with_images(self.rows, self.frames)

    @staticmethod
    def cat(parts: "Sequence[PackedBatch]", dim: int = 0) -> "PackedBatch":
        """Concatenate the rows of batches with the same columns and cameras."""
        rows = [part.rows.copy() for part in parts]
        for name in parts[0].frames:
            first = 0
            for part, copy in zip(parts, rows, strict=True):
                for column in columns_of(copy, part.frames).get(name, ()):
                    copy[column] = torch.where(copy[column] < 0, -1, copy[column] + first)
                first += len(part.frames[name])
        frames = {name: torch.cat([part.frames[name] for part in parts]) for name in parts[0].frames}
        return PackedBatch(TensorDict.cat(rows, dim=dim), frames)


def pack(batch: Batch, scored: Mapping[str, Any] | None = None, has_frame: Tensor | None = None) -> PackedBatch:
    """Return transitions in which equal pictures of a camera are stored once.

    `scored` are pictures [m, H, W, 3] by camera that become the columns FRAME: one for each true entry of `has_frame`,
    in order.
    """
    rows: Batch = batch.copy()
    tables: dict[str, dict[Column, Tensor]] = {}
    for column in image_columns(batch):
        tables.setdefault(column[-1], {})[column] = batch[column].flatten(0, batch.batch_dims - 1)
    for camera, images in (scored or {}).items():
        pictures, seen = torch.as_tensor(images), next(iter(tables.get(camera, {}).values()), None)
        same_kind = seen is None or (seen.shape[1:], seen.dtype) == (pictures.shape[1:], pictures.dtype)
        tables.setdefault(camera if same_kind else _SCORED + camera, {})[FRAME, camera] = pictures
    frames = {}
    for name, columns in tables.items():
        numbers, frames[name] = _number(list(columns.values()))
        for column, number in zip(columns, numbers, strict=True):
            rows[column] = _place(number, column, has_frame) if column[0] == FRAME else number.view(batch.batch_size)
    return PackedBatch(rows, frames)


def packed(batch: Batch | PackedBatch) -> PackedBatch:
    """Return the batch as a PackedBatch."""
    return batch if isinstance(batch, PackedBatch) else pack(batch)


def unpacked(batch: Batch | PackedBatch) -> Batch:
    """Return the batch as a Batch with the images of its observations."""
    return batch.unpack() if isinstance(batch, PackedBatch) else batch


def image_columns(rows: Batch) -> list[Column]:
    """Return the columns of the images of observations."""
    parts = [part for part in ("observation", "next_observation") if rows.get((part, "images"), None) is not None]
    return [(part, "images", camera) for part in parts for camera in rows[part, "images"].keys()]  # noqa: SIM118


def columns_of(rows: Batch, tables: Collection[str]) -> dict[str, list[Column]]:
    """Return the columns of packed rows that contain numbers of pictures, by table."""
    found: dict[str, list[Column]] = {}
    for column in image_columns(rows):
        if column[-1] in tables:
            found.setdefault(column[-1], []).append(column)
    for camera in rows.get(FRAME, {}).keys():  # noqa: SIM118 - of a TensorDict
        found.setdefault(_scored_table(camera, tables), []).append((FRAME, camera))
    return found


def with_images(rows: Batch, pictures: Pictures) -> Batch:
    """Return packed rows with the images of their observations, for which the numbers stand in `rows`."""
    batch: Batch = rows.copy()
    for column in image_columns(rows):
        if column[-1] in pictures:
            batch[column] = take(pictures[column[-1]], rows[column])
    return batch


def scored_pictures(rows: Batch, camera: str, pictures: Pictures) -> tuple[Tensor, Tensor]:
    """Return the pictures [m, H, W, 3] of the column FRAME of a camera, and a mask of the rows that have one."""
    numbers = rows[FRAME, camera]
    has_frame = numbers >= 0
    return take(pictures[_scored_table(camera, pictures)], numbers[has_frame]), has_frame


def take(pictures: Tensor, numbers: Tensor) -> Tensor:
    """Return pictures[numbers]; `index_select` copies whole pictures, indexing with a tensor copies byte by byte."""
    return pictures.index_select(0, numbers.flatten()).view(*numbers.shape, *pictures.shape[1:])


def _scored_table(camera: str, tables: Collection[str]) -> str:
    return _SCORED + camera if _SCORED + camera in tables else camera


def _number(columns: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Return columns [n, H, W, 3] as numbers [n] of pictures, and these pictures, all of them different."""
    seen: dict[bytes, int] = {}
    numbers = [
        torch.tensor([seen.setdefault(picture.tobytes(), len(seen)) for picture in column.numpy()], dtype=torch.int64)
        for column in columns
    ]
    shape, dtype = columns[0].shape[1:], columns[0].dtype
    if not seen:
        return numbers, torch.empty((0, *shape), dtype=dtype)
    return numbers, torch.frombuffer(bytearray().join(seen), dtype=dtype).view(-1, *shape)


def _place(numbers: Tensor, column: Column, has_frame: Tensor | None) -> Tensor:
    count = 0 if has_frame is None else int(has_frame.sum())
    if has_frame is None or count != len(numbers):
        raise DataError(f"found {len(numbers)} frames of '{column[-1]}' for {count} transitions that have one")
    placed = torch.full(has_frame.shape, -1)
    placed[has_frame] = numbers
    return placed
