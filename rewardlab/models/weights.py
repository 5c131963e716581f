"""Weights of others: reading them without trusting the file, and loading them into a `ResNet`."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from rewardlab import unpickle
from rewardlab.errors import ConfigError, DataError
from rewardlab.input_files import check_is_file, open_file
from rewardlab.limits import check_file_size, excerpt, listed
from rewardlab.models.resnet import Norm

_TORCH_SUFFIXES = {".pt", ".pth", ".bin", ".ckpt"}
# Where training scripts put the weights inside the dictionary they save.
_NESTS = ("model_state_dict", "state_dict", "model", "params")


def read_tensor_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a .safetensors or .pt file, and what else is in it. No code of the file is ever run."""
    if not path.exists():
        raise DataError(f"{path}: no such file; expected weights (.safetensors, .pt or .pth)")
    check_file_size(check_is_file(path), path)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix not in _TORCH_SUFFIXES:
        raise DataError(f"{path}: unknown kind of file '{path.suffix}'; expected .safetensors, .pt or .pth")
    return _read_torch(path)


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: not a complete .safetensors file ({excerpt(error)})") from error


def _read_torch(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with open_file(path) as file:
        content = unpickle.load_torch(file, str(path))
    if not isinstance(content, Mapping):
        raise DataError(f"{path}: holds a {type(content).__name__}; expected a dictionary of tensors")
    facts = {str(key): value for key, value in content.items() if not _is_tensor(value)}
    for nest in _NESTS:
        if isinstance(content.get(nest), Mapping):
            content = content[nest]
            facts.pop(nest)
            break
    weights = {str(name): torch.from_numpy(value) for name, value in content.items() if _is_tensor(value)}
    if not weights:
        raise DataError(f"{path}: holds no tensors; found the keys {listed(content) or 'none'}")
    return weights, facts


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"


T = TypeVar("T")
# What a network may have beyond its stored weights: a small one is built, and then compared name by name.
_SPARE_NUMBERS, _SPARE_PARTS = 2**24, 2000


def build_to_fit(build: Callable[[], T], weights: Mapping[str, Tensor], source: object) -> T:
    """Return what `build` returns, or raise before a network takes memory that has far more parameters than `weights`.

    The sizes of a network are in a config that somebody else may have written, and could ask for any amount of memory.
    """
    with _registrations_limited(weights, source):
        # First without memory, on torch's meta device. A network that cannot be built there is still stopped by the
        # first parameter that is too large.
        try:
            with torch.device("meta"):
                build()
        except (ConfigError, DataError):
            raise
        except Exception:  # not for this device, or an error that comes again below
            pass
    with _registrations_limited(weights, source):
        return build()


@contextmanager
def _registrations_limited(weights: Mapping[str, Tensor], source: object) -> Iterator[None]:
    """Raise a DataError in modules that register more parameters, buffers and modules than fit to `weights`."""
    stored = sum(tensor.numel() for tensor in weights.values())
    limit, max_parts, this_thread = 4 * stored + _SPARE_NUMBERS, 8 * len(weights) + _SPARE_PARTS, threading.get_ident()
    numbers = parts = 0  # that have been registered; parts are modules and tensors

    def count(_: nn.Module, name: str, value: Any) -> None:
        nonlocal numbers, parts
        if threading.get_ident() != this_thread:  # the hooks see all modules of this process
            return
        numbers += value.numel() if isinstance(value, Tensor) else 0
        parts += 1
        if numbers > limit or parts > max_parts:
            size = f"{limit:,} numbers" if numbers > limit else f"{max_parts:,} parts"
            raise DataError(
                f"{source}: its config describes a network of more than {size}, but the stored weights are "
                f"{stored:,} numbers in {len(weights):,} tensors: the config is not that of these weights"
            )

    handles = [
        hooks.register_module_parameter_registration_hook(count),
        hooks.register_module_buffer_registration_hook(count),
        hooks.register_module_module_registration_hook(count),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def norm_of(weights: Mapping[str, Tensor]) -> Norm:
    """Which normalisation a ResNet was trained with: batch norm has running statistics, group norm has none."""
    return "batch" if any(name.endswith("running_mean") for name in weights) else "group"


def encoder_part(weights: Mapping[str, Tensor], source: object) -> dict[str, Tensor]:
    """The entries of a ResNet, under torchvision's names: a prefix such as `module.` or `encoder.` is taken off."""
    prefixes = {name[: -len("conv1.weight")] for name in weights if name.endswith("conv1.weight")}
    prefixes = {prefix for prefix in prefixes if "layer" not in prefix}
    if len(prefixes) != 1:
        found = f"{len(prefixes)} of them" if prefixes else f"the names {', '.join(list(weights)[:4])} ..."
        raise DataError(
            f"{source}: expected the weights of one ResNet (conv1.weight, layer1.0.conv1.weight ...); {found}"
        )
    prefix = prefixes.pop()
    part = {name[len(prefix) :]: value for name, value in weights.items() if name.startswith(prefix)}
    return {name: value for name, value in part.items() if not name.startswith("fc.")}


def check_weights(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], source: object) -> None:
    """Raise a DataError unless names and shapes agree."""
    # Files older than torch 0.4.1 do not have the counters, and nothing here reads them.
    missing = [n for n in expected if n not in found and not n.endswith("num_batches_tracked")]
    unknown = [n for n in found if n not in expected]
    shapes = [
        f"{n} is {list(found[n].shape)}, expected {list(expected[n].shape)}"
        for n in expected
        if n in found and found[n].shape != expected[n].shape
    ]
    problems = shapes + [f"{n} is missing" for n in missing] + [f"{n} is not part of the network" for n in unknown]
    if problems:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise DataError(f"{source}: weights do not fit the network: {'; '.join(problems[:3])}{more}")


def first_mismatch(error: Exception) -> str:
    """Return the first problem that torch names when weights do not fit a network; it names them all."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[1] if lines[0].startswith("Error(s) in loading") and len(lines) > 1 else lines[0]
