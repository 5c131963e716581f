"""Pickles as plain data: containers, numbers, strings, NumPy arrays, torch tensors; anything else is refused by name.

The real constructors of NumPy and torch are never handed to the pickle: a crafted dtype can turn bytes into object
pointers, and torch's own `_load_from_bytes` unpickles again without limits. Each allowed name stands for a function
here that checks its arguments.
"""

import io
import math
import pickle
import struct
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, ClassVar, NoReturn

import numpy as np

from rewardlab.data.episodes import Array
from rewardlab.errors import DataError


def load(file: BinaryIO, name: str) -> Any:
    """Unpickle plain data from `file`; `name` is what errors call it."""
    try:
        # From memory: a damaged length would make a file object set aside that many gigabytes before it reads.
        return _PlainUnpickler(io.BytesIO(file.read())).load()
    except _RefusedError as error:
        raise DataError(
            f"{name} was refused: loading it would use {error}. Only containers, numbers, strings, NumPy arrays and "
            "torch tensors are read; nothing in the file was run"
        ) from None
    # A damaged pickle can raise anything at all from the middle of its opcodes.
    except Exception as error:
        raise DataError(f"{name} is damaged or not a pickle ({type(error).__name__}: {error})") from error


class _RefusedError(Exception):
    pass


# The unpickler written in Python: in the one in C, a single flipped bit in an index of its memo takes all memory.
# Its methods are not in the type stubs.
_PythonUnpickler: Any = pickle._Unpickler


def _check_keys(keys: Iterable[object]) -> None:
    """Keys and members are hashed, and hashing a deeply nested tuple ends the process, not just the reading."""
    for key in keys:
        if not isinstance(key, (str, int, float, bytes, bool, type(None))):
            raise _RefusedError(f"a {type(key).__name__} as a key")


def _check_keys_and_load(opcode: bytes, keys: slice) -> Callable[[Any], None]:
    """Return the unpickler's method for an opcode, preceded by a check of these items of its stack."""
    load = _PythonUnpickler.dispatch[opcode[0]]

    def checked(unpickler: Any) -> None:
        _check_keys(unpickler.stack[keys])
        load(unpickler)

    return checked


class _PlainUnpickler(_PythonUnpickler):  # type: ignore[misc]
    def find_class(self, module: str, name: str) -> Any:
        # Names of NumPy 1.x, and of Python 2, which protocols up to 2 use to this day.
        module = module.replace("numpy.core.", "numpy._core.").replace("__builtin__", "builtins")
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _RefusedError(f"'{module}.{name}'") from None

    def load_bytearray8(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        data = self.read(length)  # the base class sets memory aside by a length that the file only claims
        if len(data) < length:
            raise EOFError("a bytearray that is cut short")
        self.append(bytearray(data))

    # The table by which the base class finds its methods names its own.
    dispatch: ClassVar[dict[int, Any]] = {
        **_PythonUnpickler.dispatch,
        pickle.BYTEARRAY8[0]: load_bytearray8,
        pickle.SETITEM[0]: _check_keys_and_load(pickle.SETITEM, slice(-2, None, 2)),
        pickle.SETITEMS[0]: _check_keys_and_load(pickle.SETITEMS, slice(None, None, 2)),
        pickle.DICT[0]: _check_keys_and_load(pickle.DICT, slice(None, None, 2)),
        pickle.ADDITEMS[0]: _check_keys_and_load(pickle.ADDITEMS, slice(None)),
        pickle.FROZENSET[0]: _check_keys_and_load(pickle.FROZENSET, slice(None)),
    }

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _RefusedError("a reference to something outside the file")


class _Function:
    """A callable that the pickle can call but not alter (BUILD sets attributes wherever `__setstate__` lets it)."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setstate__(self, state: object) -> None:
        raise _RefusedError("a changed function")


class _Dtype:
    """A dtype of plain numbers, text or objects; pickles first name it, then set its byte order."""

    def __init__(self, spec: object) -> None:
        self.dtype = np.dtype(spec) if isinstance(spec, str) else np.dtype(np.void)
        if self.dtype.kind not in "biufSUO" or self.dtype.hasobject != (self.dtype.kind == "O"):
            raise _RefusedError(f"the array type {spec!r}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order, subarray, names, fields = state[1:5]
        if (subarray, names, fields) != (None, None, None) or order not in ("<", ">", "=", "|"):
            raise _RefusedError("a structured array type")
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


class _PlainArray(np.ndarray[Any, Any]):
    """An array that accepts a pickled state only after checking it; NumPy trusts the lengths that it is given."""

    def __setstate__(self, state: Any, /) -> None:
        _, shape, dtype, fortran, data = state
        shape = _checked_shape(shape)
        if not isinstance(dtype, _Dtype):
            raise TypeError("an array without a type")
        if dtype.dtype.kind == "O":
            complete = isinstance(data, list) and len(data) == math.prod(shape)
        else:
            complete = isinstance(data, bytes) and len(data) == math.prod(shape) * dtype.dtype.itemsize
        if not complete:
            raise ValueError("array data of another length than its shape says")
        super().__setstate__((1, shape, dtype.dtype, bool(fortran), data))  # type: ignore[arg-type]


def _checked_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ValueError(f"array shape {shape!r}")
    return shape


def _reconstruct(*_: object) -> _PlainArray:
    return _PlainArray((0,), dtype=np.uint8)


def _from_buffer(data: Any, dtype: _Dtype, shape: Any, order: str) -> _PlainArray:
    if not isinstance(data, (bytes, bytearray)):  # bytes(n) would take n bytes of memory
        raise TypeError("array data that is no bytes")
    flat = np.frombuffer(bytes(data), dtype=dtype.dtype)  # NumPy itself refuses objects here
    return flat.reshape(_checked_shape(shape), order="F" if order == "F" else "C").copy(order="K").view(_PlainArray)


def _jax_array(function: Any, arguments: Any, state: Any, *_: object) -> _PlainArray:
    """Return an array of JAX, which pickles itself as a NumPy array with facts that only JAX needs."""
    if function is not _ALLOWED["numpy._core.multiarray", "_reconstruct"]:
        raise _RefusedError("an array of JAX that is no array of NumPy")
    array = _reconstruct(*arguments)
    array.__setstate__(state)
    return array


def _scalar(dtype: _Dtype, data: bytes) -> Any:
    return np.frombuffer(data, dtype=dtype.dtype)[0].item()


def _bytearray(data: object = b"") -> bytearray:
    if not isinstance(data, bytes):  # bytearray(n) would take n bytes of memory
        raise TypeError("a bytearray without bytes")
    return bytearray(data)


def _set(items: Any) -> set[Any]:
    _check_keys(items)
    return set(items)


def _encode(text: str, encoding: str) -> bytes:
    return text.encode({"latin1": "latin1", "utf-8": "utf-8"}[encoding])


def _torch_storage(data: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _torch_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object) -> Array:
    import torch

    flat = torch.empty(0, dtype=storage.dtype).set_(storage)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    fits = 0 <= offset <= last < flat.numel() and min(stride, default=0) >= 0
    count = math.prod(int(n) for n in size)
    if count > flat.numel() or (count and not fits):  # stride 0 would repeat it without end
        raise ValueError("a tensor outside its storage")
    tensor = flat.as_strided(size, stride, offset)
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy().copy().view(_PlainArray)


_ALLOWED: dict[tuple[str, str], Any] = {
    ("builtins", "set"): _Function(lambda items=(): _set(items)),
    ("builtins", "frozenset"): _Function(lambda items=(): frozenset(_set(items))),
    ("builtins", "bytearray"): _Function(_bytearray),
    ("collections", "OrderedDict"): _Function(lambda: {}),
    ("_codecs", "encode"): _Function(_encode),
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): _Function(lambda spec, *_: _Dtype(spec)),
    ("numpy._core.multiarray", "_reconstruct"): _Function(_reconstruct),
    ("numpy._core.multiarray", "scalar"): _Function(_scalar),
    ("numpy._core.numeric", "_frombuffer"): _Function(_from_buffer),
    ("jax._src.array", "_reconstruct_array"): _Function(_jax_array),
    ("jax._src.device_array", "reconstruct_device_array"): _Function(_jax_array),
    ("torch.storage", "_load_from_bytes"): _Function(_torch_storage),
    ("torch._utils", "_rebuild_tensor_v2"): _Function(_torch_tensor),
}
