"""Pickles and files of `torch.save` as plain data; anything else in them is refused by name.

`rewardlab.plain_unpickler` runs the pickles; here are the names that torch and JAX use in them, and the places where
torch keeps its numbers. What comes out is checked to be plain data.
"""

import io
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

import numpy as np

from rewardlab.errors import ConfigError, DataError
from rewardlab.limits import check_expanded, check_file_size, excerpt
from rewardlab.plain_unpickler import (
    PLAIN_NAMES,
    Array,
    Budget,
    Function,
    Instruction,
    PlainUnpickler,
    RefusedError,
    element_count,
    plain_bytes,
    reconstruct_array,
    set_array,
)


def load(file: BinaryIO, name: str) -> Any:
    """Unpickle plain data from `file`; torch tensors become NumPy arrays. `name` is what errors call the file."""
    with _errors_named(name, "a pickle"):
        # From memory: a damaged length would make a file object set aside that many gigabytes before it reads.
        budget = Budget(_size_of(file, name), name)
        content = _PickleUnpickler(io.BytesIO(file.read()), budget).load()
        check_expanded(content, name, plain_bytes)
        return content


def read_list(file: BinaryIO, name: str, expected: str) -> Iterator[Any]:
    """Unpickle a list of plain data and yield its items as they are read: memory holds some of them.

    `name` is what errors call the file, `expected` what its items are. Of a file that is cut short, the items before
    the cut are yielded, and then comes the error.
    """
    with _errors_named(name, "a pickle"):
        budget = Budget(_size_of(file, name), name)
        unpickler = _PickleUnpickler(_Bounded(file, budget.file_bytes), budget)
        batches = unpickler.load_items()
        while True:
            try:
                items = next(batches)
            except StopIteration as end:
                made = end.value
                break
            check_expanded(items, name, plain_bytes)
            yield from items
        check_expanded(made, name, plain_bytes)
    if not isinstance(made, list):
        size = f" of {len(made)}" if isinstance(made, dict) else ""
        raise DataError(f"{name}: found a {type(made).__name__}{size}, expected a list of {expected}")
    yield from made


class _Bounded:
    """A file that is not asked for more than it has: for a damaged length, Python would set that much memory aside."""

    def __init__(self, file: BinaryIO, count: int) -> None:
        self._file, self._left = file, count

    def read(self, count: int) -> bytes:
        if count > self._left:
            raise EOFError("it is cut short")
        self._left -= count
        return self._file.read(count)

    def readline(self) -> bytes:
        line = self._file.readline()
        self._left -= len(line)
        return line


def load_torch(file: BinaryIO, name: str) -> Any:
    """Read what `torch.save` wrote, in its older formats too; tensors become NumPy arrays, bfloat16 becomes float32."""
    with _errors_named(name, "a file of torch.save"):
        budget = Budget(_size_of(file, name), name)
        content = _load_zip(file, budget) if zipfile.is_zipfile(file) else _load_stream(file, budget)
        check_expanded(content, name, plain_bytes)
        return content


@contextmanager
def _errors_named(name: str, expected: str) -> Iterator[None]:
    try:
        yield
    except RefusedError as error:
        raise DataError(
            f"{name} was refused: loading it would use {excerpt(error)}. Only containers, numbers, strings, NumPy "
            "arrays and torch tensors are read; nothing in the file was run"
        ) from None
    except (ConfigError, DataError):
        raise
    # A damaged pickle can raise anything at all from the middle of its opcodes.
    except Exception as error:
        raise DataError(f"{name} is damaged or not {expected} ({type(error).__name__}: {excerpt(error)})") from error


def _size_of(file: BinaryIO, name: str) -> int:
    """Return the size of what is left of a file, if it can be read into memory."""
    start = file.tell()
    size = file.seek(0, io.SEEK_END) - start
    file.seek(start)
    check_file_size(size, name)
    return size


_BFLOAT16 = "bfloat16"  # which NumPy does not have
_STORAGES = {
    **{"DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": _BFLOAT16},
    **{"LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1"},
    "BoolStorage": "?",
}
_ZIPPED_PICKLE = "data.pkl"
_TORCH_MAGIC, _TORCH_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


@dataclass(frozen=True)
class _StorageType:
    """The type of a torch storage, such as `torch.FloatStorage`."""

    dtype: str


@dataclass(frozen=True, eq=False)
class _Storage:
    """The numbers of a torch storage, flat; bfloat16 is float32 already. None: they have not been read yet."""

    values: Array | None


@dataclass(frozen=True)
class _Reference:
    """What a file of `torch.save` has in place of a storage."""

    dtype: str
    key: str
    length: int

    @classmethod
    def read(cls, found: Any) -> "_Reference":
        if type(found) is tuple and len(found) in (5, 6) and found[0] == "storage" and found[5:] in ((), (None,)):
            _, kind, key, _, length = found[:5]
            if type(kind) is _StorageType and type(key) is str and type(length) is int and length >= 0:
                return cls(kind.dtype, key, length)
        raise RefusedError("a reference to something outside the file")

    def storage(self, budget: Budget, data: bytes, offset: int = 0) -> _Storage:
        """Return the storage, whose numbers begin at `offset` of `data`."""
        dtype = np.dtype("<u2" if self.dtype == _BFLOAT16 else self.dtype)
        if self.length * dtype.itemsize > len(data) - offset:
            raise ValueError("a torch storage that is cut short")
        values = np.frombuffer(data, dtype, self.length, offset) if self.length else np.empty(0, dtype)
        if self.dtype == _BFLOAT16:  # the upper half of a float32
            budget.spend(8 * self.length)
            values = np.left_shift(values.astype(np.uint32), 16).view(np.float32)
        return _Storage(values)


def _load_zip(file: BinaryIO, budget: Budget) -> Any:
    """Read a file of `torch.save`: an archive with a pickle and a member for each storage."""
    with zipfile.ZipFile(file) as archive:
        # They are never compressed by torch itself.
        members = archive.infolist()
        budget.check(sum(member.file_size for member in members))
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise RefusedError("an unusual compression")
        (root,) = (name.removesuffix(_ZIPPED_PICKLE) for name in archive.namelist() if name.endswith(_ZIPPED_PICKLE))
        if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
            raise ValueError("numbers in big-endian order")
        storages: dict[str, _Storage] = {}

        def find_storage(reference: _Reference) -> _Storage:
            if reference.key not in storages:
                data = archive.read(f"{root}data/{reference.key}")
                storages[reference.key] = reference.storage(budget, data)
            return storages[reference.key]

        return _TorchUnpickler(io.BytesIO(archive.read(root + _ZIPPED_PICKLE)), budget, find_storage).load()


def _load_stream(stream: BinaryIO, budget: Budget) -> Any:
    """Read what `torch.save` wrote up to version 1.5, and writes to this day inside of pickles: five pickles in a row,
    of which the fourth is the content and the fifth the keys of the storages, then the storages' lengths and numbers.
    """
    stream.seek(0)
    data = stream.read()
    file = io.BytesIO(data)
    magic, protocol, _ = (PlainUnpickler(file, budget).load() for _ in range(3))
    if (magic, protocol) != (_TORCH_MAGIC, _TORCH_PROTOCOL):
        raise ValueError("no file of torch.save")
    # The content is read twice: first to know the types of the storages behind it.
    start = file.tell()
    found: dict[str, _Reference] = {}

    def note(reference: _Reference) -> _Storage:
        found[reference.key] = reference
        return _Storage(None)

    _TorchUnpickler(file, budget, note).load()
    keys = PlainUnpickler(file, budget).load()
    storages: dict[str, _Storage] = {}
    for key in keys:
        (length,) = struct.unpack("<q", file.read(8))
        if length != found[key].length:
            raise ValueError("a torch storage of another length than its reference says")
        storages[key] = found[key].storage(budget, data, file.tell())
        itemsize = 2 if found[key].dtype == _BFLOAT16 else np.dtype(found[key].dtype).itemsize
        file.seek(length * itemsize, io.SEEK_CUR)
    file.seek(start)
    return _TorchUnpickler(file, budget, lambda reference: storages[reference.key]).load()


def _torch_storage(budget: Budget, data: Any) -> _Storage:
    """Return a storage that was pickled on its own. Not with `torch.load`, which may also return a class."""
    content = _load_stream(io.BytesIO(data), budget) if isinstance(data, bytes) else None
    if type(content) is not _Storage:
        raise RefusedError("something else than numbers as a torch storage")
    return content


def _torch_tensor(budget: Budget, storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> Array:
    if type(storage) is not _Storage:
        raise TypeError("a tensor without a storage")
    if storage.values is None:
        return np.empty(0)
    values, count = storage.values, element_count(budget, size)
    if not isinstance(stride, tuple) or not all(isinstance(n, int) and n >= 0 for n in (offset, *stride)):
        raise ValueError("a tensor with something else than natural numbers for strides")
    budget.spend(count * values.itemsize)  # a stride of 0 repeats the storage
    if not count:
        return np.empty(size, values.dtype)
    if offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) >= len(values):
        raise ValueError("a tensor outside its storage")
    strides = [step * values.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(values[offset:], size, strides).copy()


def _parameter(budget: Budget, tensor: Any, *_: object) -> Any:
    return tensor


def _size(budget: Budget, sizes: Any) -> tuple[int, ...]:
    if type(sizes) is not tuple:
        raise TypeError("a torch.Size of something else than a tuple")
    return sizes


def _device(budget: Budget, kind: Any, *_: object) -> str:
    if type(kind) is not str:
        raise TypeError("a torch.device without a name")
    return kind


_ALLOWED: dict[tuple[str, str], Any] = {
    **PLAIN_NAMES,
    ("torch._utils", "_rebuild_tensor_v2"): Function(_torch_tensor),
    ("torch._utils", "_rebuild_parameter"): Function(_parameter),
    ("torch", "Size"): Function(_size),
    ("torch", "device"): Function(_device),
    **{("torch", name): f"torch.{name}" for name in ("float64", "float32", "float16", "bfloat16", "int64", "bool")},
}


def _jax_array(budget: Budget, function: Any, arguments: Any, state: Any, *_: object) -> Array:
    """Return an array that JAX pickled: what NumPy would call to rebuild it, and its state."""
    if function is not _ALLOWED["numpy._core.multiarray", "_reconstruct"] or type(state) is not tuple:
        raise RefusedError("an array of JAX that is no array of NumPy")
    array = reconstruct_array(budget)
    set_array(budget, array, state)
    return array


class _PickleUnpickler(PlainUnpickler):
    """Reads a pickle of Python's own, in which a torch storage is a file of `torch.save` by itself."""

    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        **_ALLOWED,
        ("torch.storage", "_load_from_bytes"): Function(_torch_storage),
        ("jax._src.array", "_reconstruct_array"): Function(_jax_array),
        ("jax._src.device_array", "reconstruct_device_array"): Function(_jax_array),
    }


class _TorchUnpickler(PlainUnpickler):
    """Reads the pickle in a file of `torch.save`, in which references stand for the storages."""

    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        **_ALLOWED,
        **{("torch", name): _StorageType(dtype) for name, dtype in _STORAGES.items()},
    }

    def __init__(self, file: io.BytesIO, budget: Budget, find_storage: Callable[[_Reference], _Storage]) -> None:
        super().__init__(file, budget)
        self.find_storage = find_storage

    def load_binpersid(self) -> None:
        self.stack[-1] = self.find_storage(_Reference.read(self.stack[-1]))

    dispatch: ClassVar[dict[int, Instruction]] = {
        **PlainUnpickler.dispatch,
        pickle.BINPERSID[0]: load_binpersid,
    }
