"""A machine that runs pickles as plain data: containers, numbers, strings and NumPy arrays.

A pickle is a program for a small machine. Here that machine has only the instructions listed in `PlainUnpickler`.
Names in a pickle stand for functions of rewardlab that check their arguments; the pickle never gets hold of a function,
class or object of NumPy, torch or Python itself. Instructions that call (REDUCE) or set a state (BUILD) work on those
functions, arrays and array types alone.
"""

import pickle
import pickletools
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rewardlab.limits import check_bytes, max_bytes

Array: TypeAlias = npt.NDArray[Any]

_MAX_KEY_BITS = 60  # larger integers can be chosen so that all have the same hash
_MAX_AXES = 64


class RefusedError(Exception):
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
Instruction: TypeAlias = Callable[[Any], None]


def _check_keys(keys: Iterable[object]) -> None:
    """Keys and members are hashed, and hashing a deeply nested tuple ends the process, not just the reading."""
    for key in keys:
        if not isinstance(key, (str, int, float, bytes, bool, type(None))):
            raise RefusedError(f"a {type(key).__name__} as a key")
        if isinstance(key, int) and key.bit_length() > _MAX_KEY_BITS:
            raise RefusedError(f"an integer of {key.bit_length()} bits as a key")


def _on(kind: type, opcode: bytes, *, target: slice, keys: slice = slice(0)) -> Instruction:
    """Return an instruction of Python's unpickler that changes a container, for containers of this type only.

    `target` and `keys` are where these are found: the items behind the last mark are in `stack`, what was before it in
    `metastack`.
    """
    run = _PythonUnpickler.dispatch[opcode[0]]

    def checked(unpickler: Any) -> None:
        found = (unpickler.metastack[-1] if target == _BELOW_MARK else unpickler.stack)[target]
        if type(found[0]) is not kind:
            raise RefusedError(f"a change of a {type(found[0]).__name__} as if it were a {kind.__name__}")
        _check_keys(unpickler.stack[keys])
        run(unpickler)

    return checked


def _with_keys(opcode: bytes, keys: slice) -> Instruction:
    """Return an instruction of Python's unpickler that makes a container of these items of the stack."""
    run = _PythonUnpickler.dispatch[opcode[0]]

    def checked(unpickler: Any) -> None:
        _check_keys(unpickler.stack[keys])
        run(unpickler)

    return checked


def _refuse(opcode: int) -> Instruction:
    """Return an instruction that ends the reading."""
    name = next(known.name for known in pickletools.opcodes if ord(known.code) == opcode)

    def refuse(unpickler: Any) -> NoReturn:
        raise RefusedError(f"the pickle instruction {name}")

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


class Readable(Protocol):
    """What a pickle is read from."""

    def read(self, count: int, /) -> bytes: ...

    def readline(self) -> bytes: ...


class PlainUnpickler(_PythonUnpickler):  # type: ignore[misc]
    allowed: ClassVar[dict[tuple[str, str], Any]] = {}  # what names in a pickle stand for

    def __init__(self, file: Readable, budget: Budget) -> None:
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

    def load_items(self) -> Iterator[list[Any]]:
        """Run a program that makes a list and yield its items as they come, so that only some are in memory at a time.

        Returns what it made; of a list, that is what was not yielded before.
        """
        self.metastack, self.stack = [], []
        self.append = self.stack.append
        read, dispatch = self.read, self.dispatch
        try:
            while opcode := read(1):
                dispatch[opcode[0]](self)
                if opcode in (pickle.APPEND, pickle.APPENDS) and not self.metastack and len(self.stack) == 1:
                    yield self.stack[0][:]
                    self.stack[0].clear()
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
            raise RefusedError(f"'{module}.{name}'") from None

    def load_bytearray8(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        data = self.read(length)  # the base class sets memory aside by a length that the file only claims
        if len(data) < length:
            raise EOFError("a bytearray that is cut short")
        self.append(bytearray(data))

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack[-1]
        if type(function) is not Function or type(arguments) is not tuple:
            raise RefusedError(f"a call of a {type(function).__name__}")
        self.stack[-1] = function.call(self.budget, *arguments)

    def load_build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if type(state) is dict and type(target) is dict:  # attributes of an OrderedDict, such as `_metadata`
            return
        if type(state) is not tuple or type(target) not in (ArrayType, np.ndarray):
            raise RefusedError(f"a changed {type(target).__name__}")
        if isinstance(target, ArrayType):
            target.set_state(state)
        else:
            set_array(self.budget, target, state)

    # All instructions there are. Apart from REDUCE and BUILD above, those that call anything, make objects or refer to
    # something outside are refused: OBJ, INST, NEWOBJ, NEWOBJ_EX, EXT1, EXT2, EXT4, PERSID, BINPERSID (which
    # `_TorchUnpickler` needs), NEXT_BUFFER, READONLY_BUFFER.
    dispatch: ClassVar[dict[int, Instruction]] = {
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
class Function:
    """A function of this module under the name of another; it is given the budget first."""

    call: Callable[..., Any]


class ArrayType:
    """A dtype of plain numbers, text or objects; pickles first name it, then set its byte order."""

    def __init__(self, spec: object) -> None:
        self.dtype = np.dtype(spec) if isinstance(spec, str) else np.dtype(np.void)
        if self.dtype.kind not in "biufSUO" or self.dtype.hasobject != (self.dtype.kind == "O"):
            raise RefusedError(f"the array type {self.dtype.str}")

    def set_state(self, state: tuple[Any, ...]) -> None:
        order, subarray, names, fields = state[1:5]
        if not (subarray is names is fields is None) or order not in ("<", ">", "=", "|"):
            raise RefusedError("a structured array type")
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


def set_array(budget: Budget, array: Array, state: tuple[Any, ...]) -> None:
    """Give an array a pickled state, after checking it; NumPy trusts the lengths that it is given."""
    _, shape, kind, fortran, data = state
    dtype = _dtype_of(kind)
    count = element_count(budget, shape)
    if dtype.kind == "O":
        complete = isinstance(data, list) and len(data) == count
    else:
        complete = isinstance(data, bytes) and len(data) == count * dtype.itemsize
    if not complete:
        raise ValueError("array data of another length than its shape says")
    budget.spend(count * dtype.itemsize)
    array.__setstate__((1, shape, dtype, bool(fortran), data))  # type: ignore[arg-type]


def _dtype_of(kind: Any) -> np.dtype[Any]:
    if not isinstance(kind, ArrayType):
        raise TypeError("an array without a type")
    return kind.dtype


def element_count(budget: Budget, shape: Any) -> int:
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


def reconstruct_array(budget: Budget, *_: object) -> Array:
    return np.empty(0, dtype=np.uint8)


def _from_buffer(budget: Budget, data: Any, kind: Any, shape: Any, order: Any) -> Array:
    if not isinstance(data, (bytes, bytearray)):  # bytes(n) would take n bytes of memory
        raise TypeError("array data that is no bytes")
    element_count(budget, shape)
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


def plain_bytes(value: Any) -> int:
    """Return the size of a value that is no container; what is not plain data is refused."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if type(value) is np.ndarray:
        return value.nbytes
    if value is None or isinstance(value, (bool, int, float)):
        return 0
    raise RefusedError("a function or a type as a value")


PLAIN_NAMES: dict[tuple[str, str], Any] = {
    ("builtins", "set"): Function(_set),
    ("builtins", "frozenset"): Function(lambda budget, items=(): frozenset(_set(budget, items))),
    ("builtins", "bytearray"): Function(_bytearray),
    ("collections", "OrderedDict"): Function(lambda budget: {}),
    ("_codecs", "encode"): Function(_encode),
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): Function(lambda budget, spec, *_: ArrayType(spec)),
    ("numpy._core.multiarray", "_reconstruct"): Function(reconstruct_array),
    ("numpy._core.multiarray", "scalar"): Function(_scalar),
    ("numpy._core.numeric", "_frombuffer"): Function(_from_buffer),
}
