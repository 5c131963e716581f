"""Pickles as plain data: containers, numbers, strings, NumPy arrays, torch tensors; anything else is refused by name.

A pickle is a program for a small machine. Here that machine has only the instructions listed in `_PlainUnpickler`.
Names in a pickle stand for functions of this module that check their arguments; the pickle never gets hold of a
function, class or object of NumPy, torch or Python itself. Instructions that call (REDUCE) or set a state (BUILD) work
on those functions, arrays and array types alone, and what comes out is checked to be plain data.
"""

import io
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from rewardlab.errors import ConfigError, DataError
from rewardlab.limits import check_bytes, check_expanded, check_file_size, excerpt, max_bytes

Array: TypeAlias = npt.NDArray[Any]

_MAX_KEY_BITS = 60  # larger integers can be chosen so that all have the same hash
_MAX_AXES = 64


def load(file: BinaryIO, name: str) -> Any:
    """Unpickle plain data from `file`; torch tensors become NumPy arrays. `name` is what errors call the file."""
    with _errors_named(name, "a pickle"):
        # From memory: a damaged length would make a file object set aside that many gigabytes before it reads.
        budget = Budget(_size_of(file, name), name)
        content = _PickleUnpickler(io.BytesIO(file.read()), budget).load()
        check_expanded(content, name, _plain_bytes)
        return content


def load_torch(file: BinaryIO, name: str) -> Any:
    """Read what `torch.save` wrote, in its older formats too; tensors become NumPy arrays, bfloat16 becomes float32."""
    with _errors_named(name, "a file of torch.save"):
        budget = Budget(_size_of(file, name), name)
        content = _load_zip(file, budget) if zipfile.is_zipfile(file) else _load_stream(file, budget)
        check_expanded(content, name, _plain_bytes)
        return content


@contextmanager
def _errors_named(name: str, expected: str) -> Iterator[None]:
    try:
        yield
    except _RefusedError as error:
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


class _RefusedError(Exception):
    pass


@dataclass
class Budget:
    """Counts the memory of what a pickle has built; a pickle may ask for copies of one array without end."""

    file_bytes: int
    name: str
    spent: int = 0

    def __post_init__(self) -> None:
        self.limit = max_bytes(self.file_bytes)

    def spend(self, count: int) -> None:
        self.spent += count
        self.check(self.spent)

    def check(self, count: int) -> None:
        if count > self.limit:
            check_bytes(count, self.file_bytes, self.name)


# The unpickler written in Python: in the one in C, a single flipped bit in an index of its memo takes all memory.
# Its methods are not in the type stubs.
_PythonUnpickler: Any = pickle._Unpickler
_Instruction: TypeAlias = Callable[[Any], None]


def _check_keys(keys: Iterable[object]) -> None:
    """Keys and members are hashed, and hashing a deeply nested tuple ends the process, not just the reading."""
    for key in keys:
        if not isinstance(key, (str, int, float, bytes, bool, type(None))):
            raise _RefusedError(f"a {type(key).__name__} as a key")
        if isinstance(key, int) and key.bit_length() > _MAX_KEY_BITS:
            raise _RefusedError(f"an integer of {key.bit_length()} bits as a key")


def _on(kind: type, opcode: bytes, *, target: slice, keys: slice = slice(0)) -> _Instruction:
    """Return an instruction of Python's unpickler that changes a container, for containers of this type only.

    `target` and `keys` are where these are found: the items behind the last mark are in `stack`, what was before it in
    `metastack`.
    """
    run = _PythonUnpickler.dispatch[opcode[0]]

    def checked(unpickler: Any) -> None:
        found = (unpickler.metastack[-1] if target == _BELOW_MARK else unpickler.stack)[target]
        if type(found[0]) is not kind:
            raise _RefusedError(f"a change of a {type(found[0]).__name__} as if it were a {kind.__name__}")
        _check_keys(unpickler.stack[keys])
        run(unpickler)

    return checked


def _with_keys(opcode: bytes, keys: slice) -> _Instruction:
    """Return an instruction of Python's unpickler that makes a container of these items of the stack."""
    run = _PythonUnpickler.dispatch[opcode[0]]

    def checked(unpickler: Any) -> None:
        _check_keys(unpickler.stack[keys])
        run(unpickler)

    return checked


def _refuse(opcode: int) -> _Instruction:
    """Return an instruction that ends the reading."""
    name = next(known.name for known in pickletools.opcodes if ord(known.code) == opcode)

    def refuse(unpickler: Any) -> NoReturn:
        raise _RefusedError(f"the pickle instruction {name}")

    return refuse


_BELOW_MARK = slice(-1, None)
_ALL, _EVERY_OTHER = slice(None), slice(None, None, 2)
# Instructions that only move values, and make numbers, texts and empty or immutable containers of them.
_HARMLESS = (
    *(pickle.PROTO, pickle.STOP, pickle.MARK, pickle.POP, pickle.POP_MARK, pickle.DUP),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.LONG, pickle.LONG1, pickle.LONG4, pickle.FLOAT, pickle.BINFLOAT),
    *(pickle.STRING, pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.BINBYTES, pickle.SHORT_BINBYTES),
    *(pickle.BINBYTES8, pickle.UNICODE, pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINUNICODE8),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.LIST, pickle.EMPTY_DICT, pickle.EMPTY_SET),
    *(pickle.GET, pickle.BINGET, pickle.LONG_BINGET, pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE),
    *(pickle.GLOBAL, pickle.STACK_GLOBAL),
)


class _PlainUnpickler(_PythonUnpickler):  # type: ignore[misc]
    allowed: ClassVar[dict[tuple[str, str], Any]] = {}  # what names in a pickle stand for

    def __init__(self, file: io.BytesIO, budget: Budget) -> None:
        super().__init__(file)
        self.budget = budget
        self.read, self.readline = file.read, file.readline

    def load(self) -> Any:
        """Run the program; as in the base class, but without frames, which are for reading from slow files."""
        self.metastack: list[Any] = []
        self.stack: list[Any] = []
        self.append = self.stack.append
        read, dispatch = self.read, self.dispatch
        try:
            while opcode := read(1):
                dispatch[opcode[0]](self)
        except pickle._Stop as stop:  # type: ignore[attr-defined]
            return stop.value
        raise EOFError("it has no end")

    def load_frame(self) -> None:
        self.read(8)

    def find_class(self, module: str, name: str) -> Any:
        # Names of NumPy 1.x, and of Python 2, which protocols up to 2 use to this day.
        module = module.replace("numpy.core.", "numpy._core.").replace("__builtin__", "builtins")
        try:
            return self.allowed[module, name]
        except KeyError:
            raise _RefusedError(f"'{module}.{name}'") from None

    def load_bytearray8(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        data = self.read(length)  # the base class sets memory aside by a length that the file only claims
        if len(data) < length:
            raise EOFError("a bytearray that is cut short")
        self.append(bytearray(data))

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack[-1]
        if type(function) is not _Function or type(arguments) is not tuple:
            raise _RefusedError(f"a call of a {type(function).__name__}")
        self.stack[-1] = function.call(self.budget, *arguments)

    def load_build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if type(state) is dict and type(target) is dict:  # attributes of an OrderedDict, such as `_metadata`
            return
        if type(state) is not tuple or type(target) not in (_ArrayType, np.ndarray):
            raise _RefusedError(f"a changed {type(target).__name__}")
        if isinstance(target, _ArrayType):
            target.set_state(state)
        else:
            _set_array(self.budget, target, state)

    # All instructions there are. Apart from REDUCE and BUILD above, those that call anything, make objects or refer to
    # something outside are refused: OBJ, INST, NEWOBJ, NEWOBJ_EX, EXT1, EXT2, EXT4, PERSID, BINPERSID (which
    # `_TorchUnpickler` needs), NEXT_BUFFER, READONLY_BUFFER.
    dispatch: ClassVar[dict[int, _Instruction]] = {
        **{opcode: _refuse(opcode) for opcode in _PythonUnpickler.dispatch},
        **{opcode[0]: _PythonUnpickler.dispatch[opcode[0]] for opcode in _HARMLESS},
        pickle.FRAME[0]: load_frame,
        pickle.BYTEARRAY8[0]: load_bytearray8,
        pickle.REDUCE[0]: load_reduce,
        pickle.BUILD[0]: load_build,
        pickle.APPEND[0]: _on(list, pickle.APPEND, target=slice(-2, -1)),
        pickle.APPENDS[0]: _on(list, pickle.APPENDS, target=_BELOW_MARK),
        pickle.SETITEM[0]: _on(dict, pickle.SETITEM, target=slice(-3, -2), keys=slice(-2, None, 2)),
        pickle.SETITEMS[0]: _on(dict, pickle.SETITEMS, target=_BELOW_MARK, keys=_EVERY_OTHER),
        pickle.ADDITEMS[0]: _on(set, pickle.ADDITEMS, target=_BELOW_MARK, keys=_ALL),
        pickle.DICT[0]: _with_keys(pickle.DICT, _EVERY_OTHER),
        pickle.FROZENSET[0]: _with_keys(pickle.FROZENSET, _ALL),
    }


@dataclass(frozen=True)
class _Function:
    """A function of this module under the name of another; it is given the budget first."""

    call: Callable[..., Any]


class _ArrayType:
    """A dtype of plain numbers, text or objects; pickles first name it, then set its byte order."""

    def __init__(self, spec: object) -> None:
        self.dtype = np.dtype(spec) if isinstance(spec, str) else np.dtype(np.void)
        if self.dtype.kind not in "biufSUO" or self.dtype.hasobject != (self.dtype.kind == "O"):
            raise _RefusedError(f"the array type {self.dtype.str}")

    def set_state(self, state: tuple[Any, ...]) -> None:
        order, subarray, names, fields = state[1:5]
        if not (subarray is names is fields is None) or order not in ("<", ">", "=", "|"):
            raise _RefusedError("a structured array type")
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


def _set_array(budget: Budget, array: Array, state: tuple[Any, ...]) -> None:
    """Give an array a pickled state, after checking it; NumPy trusts the lengths that it is given."""
    _, shape, kind, fortran, data = state
    dtype = _dtype_of(kind)
    count = _count(budget, shape)
    if dtype.kind == "O":
        complete = isinstance(data, list) and len(data) == count
    else:
        complete = isinstance(data, bytes) and len(data) == count * dtype.itemsize
    if not complete:
        raise ValueError("array data of another length than its shape says")
    budget.spend(count * dtype.itemsize)
    array.__setstate__((1, shape, dtype, bool(fortran), data))  # type: ignore[arg-type]


def _dtype_of(kind: Any) -> np.dtype[Any]:
    if not isinstance(kind, _ArrayType):
        raise TypeError("an array without a type")
    return kind.dtype


def _count(budget: Budget, shape: Any) -> int:
    """Return the number of elements of a shape. The product is checked on the way: of long numbers it has no end."""
    if not isinstance(shape, tuple) or len(shape) > _MAX_AXES:
        raise ValueError(f"a shape that is no tuple of up to {_MAX_AXES} numbers")
    count = 1
    for length in shape:
        if not isinstance(length, int) or length < 0:
            raise ValueError("a shape with something else than natural numbers")
        # An axis of length 0 makes the array empty, but a loop over its other axes would still be a long one.
        count *= max(length, 1)
        budget.check(count)
    return 0 if 0 in shape else count


def _reconstruct(budget: Budget, *_: object) -> Array:
    return np.empty(0, dtype=np.uint8)


def _from_buffer(budget: Budget, data: Any, kind: Any, shape: Any, order: Any) -> Array:
    if not isinstance(data, (bytes, bytearray)):  # bytes(n) would take n bytes of memory
        raise TypeError("array data that is no bytes")
    _count(budget, shape)
    budget.spend(len(data))
    flat = np.frombuffer(data, dtype=_dtype_of(kind))  # NumPy itself refuses objects here
    return flat.reshape(shape, order="F" if order == "F" else "C").copy(order="K")


def _scalar(budget: Budget, kind: Any, data: Any) -> Any:
    budget.spend(len(data))
    return np.frombuffer(data, dtype=_dtype_of(kind))[0].item()


def _bytearray(budget: Budget, data: object = b"") -> bytearray:
    if not isinstance(data, bytes):  # bytearray(n) would take n bytes of memory
        raise TypeError("a bytearray without bytes")
    budget.spend(len(data))
    return bytearray(data)


def _set(budget: Budget, items: Any = ()) -> set[Any]:
    if type(items) not in (list, tuple, set, frozenset):
        raise TypeError("a set of something else than a list")
    _check_keys(items)
    budget.spend(64 * len(items))
    return set(items)


def _encode(budget: Budget, text: str, encoding: str) -> bytes:
    budget.spend(len(text))
    return text.encode({"latin1": "latin1", "utf-8": "utf-8"}[encoding])


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
        raise _RefusedError("a reference to something outside the file")

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
            raise _RefusedError("an unusual compression")
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
    magic, protocol, _ = (_PlainUnpickler(file, budget).load() for _ in range(3))
    if (magic, protocol) != (_TORCH_MAGIC, _TORCH_PROTOCOL):
        raise ValueError("no file of torch.save")
    # The content is read twice: first to know the types of the storages behind it.
    start = file.tell()
    found: dict[str, _Reference] = {}

    def note(reference: _Reference) -> _Storage:
        found[reference.key] = reference
        return _Storage(None)

    _TorchUnpickler(file, budget, note).load()
    keys = _PlainUnpickler(file, budget).load()
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
        raise _RefusedError("something else than numbers as a torch storage")
    return content


def _torch_tensor(budget: Budget, storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> Array:
    if type(storage) is not _Storage:
        raise TypeError("a tensor without a storage")
    if storage.values is None:
        return np.empty(0)
    values, count = storage.values, _count(budget, size)
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


def _plain_bytes(value: Any) -> int:
    """Return the size of a value that is no container; what is not plain data is refused."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if type(value) is np.ndarray:
        return value.nbytes
    if value is None or isinstance(value, (bool, int, float)):
        return 0
    raise _RefusedError("a function or a type as a value")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("builtins", "set"): _Function(_set),
    ("builtins", "frozenset"): _Function(lambda budget, items=(): frozenset(_set(budget, items))),
    ("builtins", "bytearray"): _Function(_bytearray),
    ("collections", "OrderedDict"): _Function(lambda budget: {}),
    ("_codecs", "encode"): _Function(_encode),
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): _Function(lambda budget, spec, *_: _ArrayType(spec)),
    ("numpy._core.multiarray", "_reconstruct"): _Function(_reconstruct),
    ("numpy._core.multiarray", "scalar"): _Function(_scalar),
    ("numpy._core.numeric", "_frombuffer"): _Function(_from_buffer),
    ("torch._utils", "_rebuild_tensor_v2"): _Function(_torch_tensor),
    ("torch._utils", "_rebuild_parameter"): _Function(_parameter),
    ("torch", "Size"): _Function(_size),
    ("torch", "device"): _Function(_device),
    **{("torch", name): f"torch.{name}" for name in ("float64", "float32", "float16", "bfloat16", "int64", "bool")},
}


def _jax_array(budget: Budget, function: Any, arguments: Any, state: Any, *_: object) -> Array:
    """Return an array that JAX pickled: what NumPy would call to rebuild it, and its state."""
    if function is not _ALLOWED["numpy._core.multiarray", "_reconstruct"] or type(state) is not tuple:
        raise _RefusedError("an array of JAX that is no array of NumPy")
    array = _reconstruct(budget)
    _set_array(budget, array, state)
    return array


class _PickleUnpickler(_PlainUnpickler):
    """Reads a pickle of Python's own, in which a torch storage is a file of `torch.save` by itself."""

    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        **_ALLOWED,
        ("torch.storage", "_load_from_bytes"): _Function(_torch_storage),
        ("jax._src.array", "_reconstruct_array"): _Function(_jax_array),
        ("jax._src.device_array", "reconstruct_device_array"): _Function(_jax_array),
    }


class _TorchUnpickler(_PlainUnpickler):
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

    dispatch: ClassVar[dict[int, _Instruction]] = {
        **_PlainUnpickler.dispatch,
        pickle.BINPERSID[0]: load_binpersid,
    }
