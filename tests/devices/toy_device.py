"""A second torch device, `toy`, made in Python: it computes on the CPU, and is as strict as a GPU.

A toy tensor holds a CPU tensor. An operation between a toy tensor and a CPU tensor (numbers and indices aside, as on
CUDA), between two toy devices, or with a generator of another device, is an error. `torch.Generator("toy")` draws the
numbers of a CPU generator with the same seed, so a run on the toy device has the numbers of a run on the CPU.
"""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

COUNT = 2  # toy devices
COLLECTIVES: list[str] = []  # operations between processes, all on toy tensors
LARGEST = [math.inf]  # bytes of the largest tensor that they can hold
PRESENT = [False]  # whether the machine has them now

aten = torch.ops.aten
# Operations that may see tensors of two devices: they copy from one to the other.
_COPIES = {aten.copy_.default, aten._to_copy.default, aten._copy_from.default, aten.set_.source_Tensor}
_INDEXED = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
}
_CPU = torch.device("cpu")
_TrueGenerator = torch.Generator
_GENERATORS: dict[int, torch.device] = {}  # an operation sees a generator as a new object with the same address


class DeviceMismatch(RuntimeError):
    """What CUDA says when tensors of several devices meet."""


class ToyGenerator(_TrueGenerator):
    """A generator of one device; on the toy device it draws what a CPU generator would."""

    def __new__(cls, device: Any = "cpu") -> Any:
        self = super().__new__(cls, "cpu")
        self.toy_device = _with_index(torch.device(device))
        _GENERATORS[self._cdata] = self.toy_device
        return self

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.toy_device


class ToyTensor(Tensor):
    """A tensor on a toy device, which holds its numbers in a CPU tensor."""

    inner: Tensor
    number: int

    @staticmethod
    def __new__(cls, inner: Tensor, device: torch.device) -> "ToyTensor":
        if inner.nbytes > LARGEST[0]:
            raise torch.OutOfMemoryError(f"toy out of memory. Tried to allocate {inner.nbytes} bytes.")
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="toy:0",  # whatever the number is: autograd has a thread for one toy device
            requires_grad=False,
        )
        made.inner, made.number = inner, device.index or 0
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("toy", self.number)

    def __repr__(self, **_: Any) -> str:
        return f"ToyTensor({self.inner!r}, device={self.device})"

    def tolist(self) -> Any:
        return self.inner.tolist()

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = ToyTensor(self.inner.detach().clone(), self.device).requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a tensor on {self.device} is being pickled: move it to the CPU first")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _with_index(device: torch.device) -> torch.device:
    if device.type != "toy":
        return device
    if (device.index or 0) >= COUNT:
        raise RuntimeError(f"invalid device ordinal: {device}")
    return torch.device("toy", device.index or 0)


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation that has a toy tensor in it, or makes one, on the CPU tensors inside."""
    asked = kwargs.get("device")
    asked = None if asked is None else _with_index(torch.device(asked))
    device = _device_of_all(func, args, kwargs, asked)
    if asked is not None:
        kwargs = {**kwargs, "device": _CPU}
    kwargs.pop("pin_memory", None)
    unwrap = lambda x: x.inner if isinstance(x, ToyTensor) else x  # noqa: E731
    with torch.no_grad():
        result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs))
    if func is aten._local_scalar_dense.default or device.type != "toy":
        return result
    # In-place operations return the tensor that they were given.
    written = {id(x.inner): x for x in tree_flatten((args, kwargs))[0] if isinstance(x, ToyTensor)}

    def wrap(x: Any) -> Any:
        if not isinstance(x, Tensor) or isinstance(x, ToyTensor):
            return x
        return written.get(id(x)) if id(x) in written else ToyTensor(x, device)

    return tree_map(wrap, result)


def _device_of_all(func: Any, args: Any, kwargs: Any, asked: torch.device | None) -> torch.device:
    """The device of the result; an error where tensors or generators of several devices meet."""
    flat = tree_flatten((args, kwargs))[0]
    generators = [_GENERATORS.get(x._cdata, _CPU) for x in flat if isinstance(x, _TrueGenerator)]
    if func in _COPIES:
        first = next(x for x in flat if isinstance(x, Tensor))
        return asked or first.device
    tensors = [x for x in flat if isinstance(x, Tensor)]
    if func in _INDEXED:
        tensors = tensors[:1] + [x for x in tensors[1:] if x.is_floating_point()]
    devices = {x.device for x in tensors if x.dim() > 0 or x.device.type != "cpu"}
    if asked is not None and not tensors:
        devices.add(asked)
    if len(devices) > 1:
        raise DeviceMismatch(f"{func}: expected all tensors on the same device, found {sorted(map(str, devices))}")
    device = asked or next(iter(devices), _CPU)
    if any(found != device for found in generators):
        raise DeviceMismatch(f"{func}: expected a generator on {device}, found {[str(g) for g in generators]}")
    return device


class Strict(TorchDispatchMode):
    """Refuses to draw on the CPU from a generator of the toy device, and CPU tensors in collectives."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat = tree_flatten((args, kwargs))[0]
        if "c10d" in func.namespace:  # NCCL refuses CPU tensors
            for tensor in flat:
                if isinstance(tensor, Tensor) and not isinstance(tensor, ToyTensor):
                    raise DeviceMismatch(f"{func}: found a tensor on {tensor.device}, expected the toy device")
            COLLECTIVES.append(str(func))
        toys = any(_GENERATORS.get(x._cdata, _CPU).type == "toy" for x in flat if isinstance(x, _TrueGenerator))
        if toys and not any(isinstance(x, ToyTensor) for x in flat):
            asked = (kwargs or {}).get("device")
            if asked is None or torch.device(asked).type != "toy":
                raise DeviceMismatch(f"{func}: expected a generator on the CPU, found one on the toy device")
        return func(*args, **(kwargs or {}))


class _Stream:
    """Streams and events of a device that does one thing after the other: nothing ever has to be waited for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        pass

    def record_event(self, event: Any = None) -> "_Stream":
        return self

    wait = wait_event = wait_stream = synchronize = record


class _Module:
    """What `torch.toy` offers, after `torch.cuda`."""

    _current = 0

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return PRESENT[0]

    def current_device(self) -> int:
        return self._current

    def set_device(self, device: Any) -> None:
        _Module._current = torch.device(device).index if not isinstance(device, int) else device

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass  # random numbers come from the CPU's generator

    def device_count(self) -> int:
        return COUNT if PRESENT[0] else 0

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        pass

    def synchronize(self, device: Any = None) -> None:
        pass

    Stream = Event = _Stream

    def current_stream(self, device: Any = None) -> "_Stream":
        return _Stream()

    def stream(self, stream: Any) -> "_Stream":
        return _Stream()


class _Hook(torch._C._acc.PrivateUse1Hooks):
    """What `torch.accelerator` asks."""

    def is_available(self) -> bool:
        return PRESENT[0]

    def has_primary_context(self, device: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


@functools.cache
def register() -> list[torch.library.Library]:
    """Register the device in this process, once and for good; before the first `backward`, which looks for devices."""
    _setup_privateuseone_for_python_backend("toy", backend_module=_Module(), hook=_Hook())
    library = torch.library.Library("_", "IMPL", "PrivateUse1")
    library.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs))
    autocast = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    autocast.fallback(torch.library.fallthrough_kernel)
    dist.Backend.default_device_backend_map["toy"] = "gloo"  # what a toy tensor holds, gloo can send
    return [library, autocast]  # their kernels go with them


@contextmanager
def toy_devices(memory: float = math.inf) -> Iterator[None]:
    """A machine that has `COUNT` toy devices, which hold no tensor of more than `memory` bytes."""
    register()
    with (
        mock.patch.multiple(
            torch, Generator=ToyGenerator, tensor=_two_steps(torch.tensor), as_tensor=_two_steps(torch.as_tensor)
        ),
        mock.patch.multiple(
            _fsdp_param,
            alloc_storage=lambda tensor: None,
            free_storage=lambda tensor: None,  # toy tensors have no storage
        ),
    ):
        PRESENT[0], LARGEST[0] = True, memory
        try:
            with Strict():
                yield
        finally:
            PRESENT[0], LARGEST[0] = False, math.inf


def _two_steps(make: Any) -> Any:
    """`torch.tensor(list, device="toy")` cannot be done from Python in one step."""

    @functools.wraps(make)
    def made(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        toy = device is not None and torch.device(device).type == "toy"
        return make(*args, **kwargs).to(device) if toy else make(*args, device=device, **kwargs)

    return made
