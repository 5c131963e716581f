"""Weights of others: reading them without trusting the file, and loading them into a `ResNet`."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rewardlab.errors import DataError
from rewardlab.models.resnet import Norm

_TORCH_SUFFIXES = {".pt", ".pth", ".bin", ".ckpt"}
# Where training scripts put the weights inside the dictionary they save.
_NESTS = ("model_state_dict", "state_dict", "model", "params")


def read_tensor_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a .safetensors or .pt file, and what else is in it. No code of the file is ever run."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected weights (.safetensors, .pt or .pth)")
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
        raise DataError(f"{path}: not a complete .safetensors file ({error})") from error


def _read_torch(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "Unsupported" in line or "GLOBAL" in line), "")
        raise DataError(
            f"{path}: refused, because it holds more than tensors and plain values, or is no file of torch.save. "
            f"Nothing in it was run. {reason.strip()}".rstrip()
        ) from error
    except Exception as error:  # broken bytes make torch.load raise nearly anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: not a complete file of torch.save ({reason})") from error
    if not isinstance(content, Mapping):
        raise DataError(f"{path}: holds a {type(content).__name__}; expected a dictionary of tensors")
    facts = {str(key): value for key, value in content.items() if not isinstance(value, Tensor)}
    for nest in _NESTS:
        if isinstance(content.get(nest), Mapping):
            content = content[nest]
            facts.pop(nest)
            break
    weights = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if not weights:
        raise DataError(f"{path}: holds no tensors; found the keys {', '.join(map(str, content)) or 'none'}")
    return weights, facts


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
