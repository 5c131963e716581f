"""Reads pretrained ResNets in the layouts that robot users have, as weights under torchvision's names.

| where from | layout | norm, padding |
|---|---|---|
| torchvision, timm, RLinf | `conv1.weight`, `layer1.0.conv1.weight` ... | as the weights show, symmetric |
| Hugging Face's ResNet | `embedder.embedder.convolution.weight`, `encoder.stages.0.layers.0 ...` | batch, symmetric |
| helper2424/resnet10, of LeRobot | `embedder.0.weight`, `encoder.stages.0.conv1.conv.weight` ... | group, SAME |
| SERL and HIL-SERL, a pickle | `conv_init/kernel`, `ResNetBlock_0/Conv_0/kernel` ... | group, SAME |

The last two are the same weights, trained in JAX. Where a map of even size is halved, JAX pads after its last pixel
only; in a network that pads on both sides their features would be shifted.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rewardlab import unpickle
from rewardlab.errors import DataError
from rewardlab.input_files import open_file
from rewardlab.models.resnet import ARCHITECTURES, Bottleneck, Norm, Padding
from rewardlab.models.weights import encoder_part, norm_of, read_tensor_file

PICKLES = (".pkl", ".pickle")


class PretrainedEncoder(NamedTuple):
    """Weights under torchvision's names, and what a network that gives the same features must have."""

    weights: dict[str, Tensor]
    norm: Norm
    padding: Padding


# Names in a layout, and torchvision's. "{n}" is the number in the group before it plus one.
_TRANSFORMERS = {
    r"embedder\.(?:embedder\.)?convolution\.weight": "conv1.weight",
    r"embedder\.(?:embedder\.)?normalization\.(\w+)": "bn1.{0}",
    r"encoder\.stages\.(\d+)\.layers\.(\d+)\.layer\.(\d+)\.convolution\.weight": "layer{0+}.{1}.conv{2+}.weight",
    r"encoder\.stages\.(\d+)\.layers\.(\d+)\.layer\.(\d+)\.normalization\.(\w+)": "layer{0+}.{1}.bn{2+}.{3}",
    r"encoder\.stages\.(\d+)\.layers\.(\d+)\.shortcut\.convolution\.weight": "layer{0+}.{1}.downsample.0.weight",
    r"encoder\.stages\.(\d+)\.layers\.(\d+)\.shortcut\.normalization\.(\w+)": "layer{0+}.{1}.downsample.1.{2}",
}
_LEROBOT = {
    r"embedder\.0\.weight": "conv1.weight",
    r"embedder\.1\.(?:group_norm\.)?(weight|bias)": "bn1.{0}",
    r"encoder\.stages\.(\d+)\.conv(\d)\.(?:conv\.)?weight": "layer{0+}.0.conv{1}.weight",
    r"encoder\.stages\.(\d+)\.norm(\d)\.(?:group_norm\.)?(weight|bias)": "layer{0+}.0.bn{1}.{2}",
    r"encoder\.stages\.(\d+)\.shortcut\.0\.(?:conv\.)?weight": "layer{0+}.0.downsample.0.weight",
    r"encoder\.stages\.(\d+)\.shortcut\.1\.(?:group_norm\.)?(weight|bias)": "layer{0+}.0.downsample.1.{1}",
}
_JAX = {  # after its blocks have been given a stage
    r"conv_init\.weight": "conv1.weight",
    r"norm_init\.(weight|bias)": "bn1.{0}",
    r"(layer\d\.\d+)\.Conv_(\d)\.weight": "{0}.conv{1+}.weight",
    r"(layer\d\.\d+)\.(?:My)?GroupNorm_(\d)\.(weight|bias)": "{0}.bn{1+}.{2}",
    r"(layer\d\.\d+)\.conv_proj\.weight": "{0}.downsample.0.weight",
    r"(layer\d\.\d+)\.norm_proj\.(weight|bias)": "{0}.downsample.1.{1}",
}
# What the config.json beside weights of Hugging Face's ResNet must say, if it says it.
_TRANSFORMERS_CONFIG = {"downsample_in_bottleneck": False, "downsample_in_first_stage": False, "hidden_act": "relu"}


def read_pretrained_encoder(path: Path) -> PretrainedEncoder:
    """Read the weights of a ResNet; a file of which only a part would be used is an error."""
    if path.is_dir():
        path = path / "model.safetensors"  # as Hugging Face's tools download a model
    if path.suffix in PICKLES:
        return _from_jax(_read_pickle(path), path)
    weights = read_tensor_file(path)[0]
    weights = {name.removeprefix("resnet."): value for name, value in weights.items()}
    if "embedder.0.weight" in weights:
        return PretrainedEncoder(_renamed(weights, _LEROBOT, path), "group", "same")
    if any(name.endswith("convolution.weight") for name in weights):
        _check_transformers_config(path.with_name("config.json"))
        without_head = {name: value for name, value in weights.items() if not name.startswith("classifier.")}
        if norm_of(without_head) != "batch":
            raise DataError(f"{path}: has names of Hugging Face's ResNet, but no running statistics of its batch norms")
        return PretrainedEncoder(_renamed(without_head, _TRANSFORMERS, path), "batch", "symmetric")
    part = encoder_part(weights, path)
    return PretrainedEncoder(part, norm_of(part), "symmetric")


def _renamed(weights: Mapping[str, Tensor], names: Mapping[str, str], source: Path) -> dict[str, Tensor]:
    """Return weights under torchvision's names; each must be one of `names`."""
    return {_new_name(name, names, source): value for name, value in weights.items()}


def _new_name(name: str, names: Mapping[str, str], source: Path) -> str:
    for pattern, new in names.items():
        if found := re.fullmatch(pattern, name):
            for number, text in enumerate(found.groups()):
                new = new.replace(f"{{{number}}}", text)
                if text.isdecimal():
                    new = new.replace(f"{{{number}+}}", str(int(text) + 1))
            return new
    raise DataError(f"{source}: '{name}' is not a part of a ResNet in the layout that its other names have")


def _check_transformers_config(path: Path) -> None:
    if not path.is_file():
        return
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error}); it describes the weights beside it") from error
    for key, expected in _TRANSFORMERS_CONFIG.items():
        found = config.get(key, expected) if isinstance(config, dict) else expected
        if found != expected:
            raise DataError(f"{path}: {key} is {found!r}; only a ResNet with {expected!r} can be used")


def _read_pickle(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a pickled parameter tree by their path; nothing in the file is run."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected weights (.safetensors, .pt, .pth or a .pkl of arrays)")
    with open_file(path) as file:
        tree = unpickle.load(file, str(path))
    arrays = dict(_leaves(tree)) if isinstance(tree, Mapping) else {}
    inits = [name for name in arrays if re.search(r"(^|\.)conv_init\.kernel$", name)]
    if len(inits) != 1:
        found = ", ".join(list(arrays)[:4]) or f"a {type(tree).__name__}"
        raise DataError(
            f"{path}: expected the parameters of one ResNet of SERL or HIL-SERL (conv_init, norm_init, ResNetBlock_0 "
            f"...); found {found}"
        )
    prefix = inits[0].removesuffix("conv_init.kernel")
    part = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    # Its classes of ImageNet, like torchvision's `fc`.
    return {name: array for name, array in part.items() if not name.startswith("output_head.")}


def _leaves(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        elif isinstance(value, np.ndarray):
            yield f"{prefix}{key}", value


def _from_jax(arrays: Mapping[str, np.ndarray[Any, Any]], source: Path) -> PretrainedEncoder:
    blocks = {match.group(0) for name in arrays if (match := re.match(r"(Bottleneck)?ResNetBlock_\d+(?=\.)", name))}
    deep = any(name.startswith("Bottleneck") for name in blocks)
    counts = next(
        (known for kind, known in ARCHITECTURES.values() if sum(known) == len(blocks) and (kind is Bottleneck) == deep),
        None,
    )
    if counts is None:
        raise DataError(f"{source}: no known ResNet has {len(blocks)} such blocks; known: {', '.join(ARCHITECTURES)}")
    places = [f"layer{stage}.{block}" for stage, count in enumerate(counts, 1) for block in range(count)]
    kind = "BottleneckResNetBlock" if deep else "ResNetBlock"
    stages = {f"{kind}_{number}": place for number, place in enumerate(places)}
    weights = {}
    for name, array in arrays.items():
        block, dot, rest = name.partition(".")
        today = f"{stages.get(block, block)}{dot}{rest}"
        value = torch.from_numpy(np.array(array, dtype=np.float32))
        if today.endswith(".kernel"):
            if value.ndim != 4:
                raise DataError(f"{source}: {name} has shape {list(value.shape)}; expected [height, width, in, out]")
            value = value.permute(3, 2, 0, 1).contiguous()
        weights[re.sub(r"\.(kernel|scale)$", ".weight", today)] = value
    return PretrainedEncoder(_renamed(weights, _JAX, source), "group", "same")
