"""Transitions that no checkpoint has yet, on disk: with them, a crash loses none that were sent to the learner.

A file has some consecutive transitions (a chunk), under a number that grows by one. Chunks that a checkpoint contains
are deleted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data.atomic import remove_leftovers, replace_file
from rewardlab.data.packed_batch import PackedBatch
from rewardlab.errors import DataError
from rewardlab.input_files import read_file

_SEPARATOR = "|"  # between the parts of a column's name: names of cameras may have dots and slashes
_FRAMES, _SHAPE, _STEPS = "frames", "shape", "env_steps"


@dataclass(frozen=True)
class Chunk:
    """Transitions on their way to the learner."""

    number: int
    batch: PackedBatch
    env_steps: int  # of the run, including these


class TransitionLog:
    """The chunks in a directory. One process writes; another may read at the same time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def append(self, chunk: Chunk) -> None:
        """Write a chunk: it is on disk, whole, when this returns."""
        rows = chunk.batch.rows
        columns = {
            _SEPARATOR.join(["rows", *((key,) if isinstance(key, str) else key)]): value
            for key, value in rows.items(include_nested=True, leaves_only=True)
            if isinstance(value, Tensor)
        }
        columns |= {f"{_FRAMES}{_SEPARATOR}{name}": frames for name, frames in chunk.batch.frames.items()}
        columns |= {_SHAPE: torch.tensor(rows.batch_size), _STEPS: torch.tensor(chunk.env_steps)}
        content = save({name: tensor.contiguous().clone() for name, tensor in columns.items()})  # two may share memory
        self.directory.mkdir(parents=True, exist_ok=True)
        replace_file(self._file(chunk.number), content)

    def read(self, after: int) -> Iterator[Chunk]:
        """Yield the chunks with larger numbers than `after`, in order; the number after a gap is an error."""
        for number in self.numbers():
            if number <= after:
                continue
            if number != after + 1:
                raise DataError(f"{self._file(after + 1)} is missing: transitions of this run were deleted")
            yield self._read(number)
            after = number

    def numbers(self) -> list[int]:
        """Return the numbers of the chunks that are there."""
        return sorted(int(path.stem) for path in self.directory.glob("*.safetensors") if path.stem.isdecimal())

    def forget(self, up_to: int) -> None:
        """Delete the chunks with numbers up to this one: a checkpoint has them."""
        for number in self.numbers():
            if number <= up_to:
                self._file(number).unlink(missing_ok=True)
        if self.directory.is_dir():
            remove_leftovers(self.directory)

    def _file(self, number: int) -> Path:
        return self.directory / f"{number:08d}.safetensors"

    def _read(self, number: int) -> Chunk:
        path = self._file(number)
        try:
            tensors = load(read_file(path))
            rows: dict[tuple[str, ...], Tensor] = {}
            frames: dict[str, Tensor] = {}
            for name, tensor in tensors.items():
                kind, *parts = name.split(_SEPARATOR)
                if kind == "rows":
                    rows[tuple(parts)] = tensor
                elif kind == _FRAMES:
                    frames[parts[0]] = tensor
            batch = TensorDict({}, batch_size=tensors[_SHAPE].tolist())
            for key, column in rows.items():
                batch[key] = column
            return Chunk(number, PackedBatch(batch, frames), int(tensors[_STEPS]))
        except (SafetensorError, KeyError, ValueError, RuntimeError, OSError) as error:
            raise DataError(f"{path}: not a whole file of transitions ({error!r}); delete it to lose these") from error
