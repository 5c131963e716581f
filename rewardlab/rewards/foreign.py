"""The architecture of a success classifier, read off its tensors, for weights that come without a description."""

import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rewardlab.errors import ConfigError, DataError
from rewardlab.keys import DEFAULT_CAMERA
from rewardlab.models.resnet import ARCHITECTURES, Bottleneck, map_size
from rewardlab.models.weights import norm_of

KERNEL = "head.pooling.kernel"


def infer_config(weights: Mapping[str, Tensor], given: Mapping[str, Any], source: object) -> dict[str, Any]:
    """What `config.json` would say. What tensors cannot tell (cameras, image size, ...) is in `given` or a default."""
    try:
        spatial = KERNEL in weights
        hidden_dim, inputs = weights["head.hidden.weight"].shape
        architecture: dict[str, Any] = {
            "arch": _arch(weights, source),
            "width": len(weights["encoder.conv1.weight"]),
            "norm": norm_of(weights),
            "hidden_dim": hidden_dim,
        }
        channels = architecture["width"] * 8 * ARCHITECTURES[architecture["arch"]].block.expansion
        if spatial:
            blocks = weights[KERNEL].shape[3]
            architecture |= {"num_spatial_blocks": blocks, "image_size": _image_size(weights[KERNEL], given, source)}
            architecture["use_pretrain"] = keeps_map(weights[KERNEL], architecture["image_size"])
            channels *= blocks
        else:
            architecture["image_size"] = given.get("image_size", (3, 128, 128))
        architecture["image_keys"] = _cameras(inputs // channels, given, source)
    except (KeyError, IndexError, ValueError) as error:
        some = ", ".join(list(weights)[:4])
        raise DataError(
            f"{source}: not the weights of a success classifier of rewardlab (encoder.*, head.*); found {some} ..."
        ) from error
    assumed = "threshold 0.5"
    if "image_size" not in given:
        assumed += f", image_size {list(architecture['image_size'])}"
    note = f"{source} does not describe itself; assumed: {assumed}"
    warnings.warn(note, stacklevel=2)
    model_type = "binary_classifier" if spatial else "resnet_reward"
    return {"model_type": model_type, "architecture": architecture, "notes": [note]}


def keeps_map(kernel: Tensor, image_size: tuple[int, ...], otherwise: bool = True) -> bool:
    """`use_pretrain` as the pooling kernel [C, H, W, F] shows it; `otherwise` if images are too small to tell."""
    if all(map_size(side) == 1 for side in image_size[1:]):
        return otherwise
    return tuple(kernel.shape[1:3]) != (1, 1)


def _arch(weights: Mapping[str, Tensor], source: object) -> str:
    blocks = {tuple(name.split(".")[1:3]) for name in weights if name.startswith("encoder.layer")}
    counts = tuple(sum(layer == f"layer{stage}" for layer, _ in blocks) for stage in range(1, 5))
    deep = "encoder.layer1.0.conv3.weight" in weights
    for name, (block, expected) in ARCHITECTURES.items():
        if expected == counts and (block is Bottleneck) == deep:
            return name
    raise DataError(f"{source}: no known ResNet has {list(counts)} blocks; known: {', '.join(ARCHITECTURES)}")


def _image_size(kernel: Tensor, given: Mapping[str, Any], source: object) -> tuple[int, int, int]:
    height, width = kernel.shape[1:3]
    averaged = (height, width) == (1, 1)
    if "image_size" not in given:
        return (3, 64, 64) if averaged else (3, 32 * height, 32 * width)
    _, image_height, image_width = given["image_size"]
    if not averaged and (map_size(image_height), map_size(image_width)) != (height, width):
        raise ConfigError(
            f"image_size: the config says {list(given['image_size'])}, but {source} was trained on images "
            f"of about {[3, 32 * height, 32 * width]}"
        )
    return (3, image_height, image_width)


def _cameras(count: int, given: Mapping[str, Any], source: object) -> tuple[str, ...]:
    keys = tuple(given.get("image_keys", (DEFAULT_CAMERA,)))
    if len(keys) != count:
        raise ConfigError(
            f"image_keys: found {list(keys)}, but the weights in {source} are for {count} cameras: name them in order"
        )
    return keys
