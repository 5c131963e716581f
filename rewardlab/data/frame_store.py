"""Stores the pictures of stored transitions: of their observations, and those that reward models score again."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rewardlab.data.packed_batch import Column, PackedBatch, columns_of, take
from rewardlab.errors import DataError
from rewardlab.types import Batch


class FrameStore:
    """Stores pictures in numbered slots. Rows refer to slots; one to which no row refers is used again.

    Memory grows up to the number of pictures that is `expected` of a camera by doubling, above it in small steps.
    """

    def __init__(self, expected: int = 0) -> None:
        self.expected = expected
        self._tables: dict[str, _Table] = {}
        self._kinds: dict[Column, str] = {}  # size and dtype of the pictures of each column

    def __len__(self) -> int:
        """Return the number of pictures."""
        return sum(map(len, self._tables.values()))

    @property
    def pictures(self) -> dict[str, Tensor]:
        """Return all slots by table, for `with_images` and `scored_pictures` of rows of this store."""
        return {name: table.pictures for name, table in self._tables.items()}

    @property
    def nbytes(self) -> int:
        """Return the size of the memory that is reserved for pictures; the system provides it as slots are used."""
        return sum(table.pictures.nbytes + table.references.nbytes for table in self._tables.values())

    def check(self, batch: PackedBatch) -> None:
        """Raise a DataError if the batch cannot be added."""
        for name, columns in columns_of(batch.rows, batch.frames).items():
            frames = batch.frames[name]
            for column in columns:
                kind, title = f"{list(frames.shape[1:])} {frames.dtype}", ".".join(column)
                stored = self._kinds.get(column, kind)
                if stored != kind:
                    raise DataError(
                        f"the pictures of {title} are {kind}, those stored before {stored}: all of a run, and its "
                        "demonstrations, must have the same env.train.image_size"
                    )
                numbers = batch.rows[column]
                if numbers.numel() and not -1 <= int(numbers.min()) <= int(numbers.max()) < len(frames):
                    raise DataError(
                        f"{title} refers to the pictures {int(numbers.min())} to {int(numbers.max())} of {len(frames)} "
                        f"in '{name}': the batch is damaged"
                    )

    def add(self, batch: PackedBatch) -> Batch:
        """Store the pictures of a batch; return its rows with slots, which are held until they are released."""
        self.check(batch)
        rows: Batch = batch.rows.copy()
        for name, columns in columns_of(rows, batch.frames).items():
            frames = batch.frames[name]
            self._kinds |= dict.fromkeys(columns, f"{list(frames.shape[1:])} {frames.dtype}")
            table = self._tables.setdefault(name, _Table(frames))
            used = _different(_slots(rows, columns))
            slots = torch.full((len(frames) + 1,), -1)  # one more, for the number -1
            slots[used] = table.add(frames if len(used) == len(frames) else take(frames, used), self.expected)
            for column in columns:
                rows[column] = slots[rows[column]]
            table.hold(_slots(rows, columns))
        return rows

    def release(self, rows: Batch) -> None:
        """Free the slots to which only these rows refer."""
        for name, columns in columns_of(rows, self._tables).items():
            self._tables[name].release(_slots(rows, columns))

    def pack(self, rows: Batch) -> PackedBatch:
        """Return rows of this store with their pictures, independent of the store."""
        rows, frames = rows.clone(), {}
        for name, columns in columns_of(rows, self._tables).items():
            used = _different(_slots(rows, columns))
            frames[name] = take(self._tables[name].pictures, used)
            for column in columns:
                rows[column] = torch.where(rows[column] < 0, -1, torch.searchsorted(used, rows[column]))
        return PackedBatch(rows, frames)


class _Table:
    """The pictures of one size, with the number of references to each slot."""

    def __init__(self, like: Tensor) -> None:
        self.pictures = torch.empty((0, *like.shape[1:]), dtype=like.dtype)
        self.references = torch.zeros(0, dtype=torch.int32)
        self._freed = torch.zeros(0, dtype=torch.int64)
        self._first_unused = 0
        self._newest: dict[int, int] = {}  # the slots of the last `add`, by the hash of their pictures

    def __len__(self) -> int:
        return self._first_unused - len(self._freed)

    def add(self, pictures: Tensor, expected: int) -> Tensor:
        """Store pictures that all differ, and return their slots; `expected` is the number of all to be stored.

        Those of the last call keep their slots: a rollout begins with the observations at which the last one stopped.
        """
        if not len(pictures):
            return torch.zeros(0, dtype=torch.int64)
        arrays = pictures.numpy()
        hashes = [hash(picture.tobytes()) for picture in arrays]
        slots = torch.tensor([self._newest.get(key, -1) for key in hashes])
        again = (slots >= 0).nonzero().squeeze(-1)
        stored = take(self.pictures, slots[again])
        same = (stored == take(pictures, again)).flatten(1).all(1) & (self.references[slots[again]] > 0)
        slots[again[~same]] = -1
        new = slots < 0
        slots[new] = self._unused_slots(int(new.sum()), expected)
        self.pictures.numpy()[slots[new].numpy()] = arrays[new.numpy()]  # many times as fast as with torch
        self._newest = dict(zip(hashes, slots.tolist(), strict=True))
        return slots

    def hold(self, slots: Tensor) -> None:
        self.references.index_add_(0, slots, torch.ones_like(slots, dtype=torch.int32))

    def release(self, slots: Tensor) -> None:
        self.references.index_add_(0, slots, torch.full_like(slots, -1, dtype=torch.int32))
        slots = _different(slots)
        self._freed = torch.cat([self._freed, slots[self.references[slots] == 0]])

    def _unused_slots(self, count: int, expected: int) -> Tensor:
        needed, size = len(self) + count, len(self.pictures)
        if needed > size:
            self._grow(needed + size // 16 if needed > expected else max(needed, min(2 * size, expected)))
        reused, self._freed = self._freed[:count], self._freed[count:]
        first, self._first_unused = self._first_unused, self._first_unused + count - len(reused)
        return torch.cat([reused, torch.arange(first, self._first_unused)])

    def _grow(self, size: int) -> None:
        grown = torch.empty((size, *self.pictures.shape[1:]), dtype=self.pictures.dtype)
        # Only what is in use is copied: the system provides memory when it is written to.
        grown[: self._first_unused] = self.pictures[: self._first_unused]
        self.pictures = grown
        self.references = torch.cat([self.references, torch.zeros(size - len(self.references), dtype=torch.int32)])


def _slots(rows: Batch, columns: Sequence[Column]) -> Tensor:
    """Return the numbers of pictures in these columns, without -1."""
    numbers = [rows[column].flatten() for column in columns]
    slots = torch.cat([torch.zeros(0, dtype=torch.int64), *numbers])
    return slots[slots >= 0]


def _different(slots: Tensor) -> Tensor:
    """Return each slot once, in ascending order."""
    different: Tensor = torch.unique(slots)
    return different
