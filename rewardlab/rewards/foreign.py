"""Infers the architecture of a success classifier from its weights, for files that have no config."""

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
    """Return a `config.json` for weights without one.

    Settings that cannot be inferred are taken from `given`, else they have their defaults; the image size has none.
    """
    try:
        spatial = KERNEL in weights
        hidden_dim, inputs = weights["head.hidden.weight"].shape
        architecture: dict[str, Any] = {
            "arch": _infer_arch(weights, source),
            "width": len(weights["encoder.conv1.weight"]),
            "norm": norm_of(weights),
            "hidden_dim": hidden_dim,
        }
        channels = architecture["width"] * 8 * ARCHITECTURES[architecture["arch"]].block.expansion
        if spatial:
            architecture["num_spatial_blocks"] = weights[KERNEL].shape[3]
            architecture["image_size"] = _image_size(given, source, weights[KERNEL])
            architecture["use_pretrain"] = keeps_feature_map(weights[KERNEL], architecture["image_size"])
            channels *= architecture["num_spatial_blocks"]
        else:
            architecture["image_size"] = _image_size(given, source)
        architecture["image_keys"] = tuple(given.get("image_keys", (DEFAULT_CAMERA,)))
    except (KeyError, IndexError, ValueError) as error:
        found = ", ".join(list(weights)[:4])
        raise DataError(
            f"{source}: not the weights of a success classifier of rewardlab (encoder.*, head.*); found {found} ..."
        ) from error
    if len(architecture["image_keys"]) != inputs // channels:
        raise ConfigError(
            f"image_keys: found {list(architecture['image_keys'])}, but the weights in {source} are for "
            f"{inputs // channels} cameras: name them in order"
        )
    note = f"{source} has no config; assumed: threshold 0.5"
    warnings.warn(note, stacklevel=2)
    model_type = "binary_classifier" if spatial else "resnet_reward"
    return {"model_type": model_type, "architecture": architecture, "notes": [note]}


def keeps_feature_map(kernel: Tensor, image_size: tuple[int, ...], otherwise: bool = True) -> bool:
    """Return whether a pooling kernel [C, H, W, F] is for a feature map and not for its average (`use_pretrain`).

    Returns `otherwise` if the images are so small that both are the same.
    """
    if all(map_size(side) == 1 for side in image_size[1:]):
        return otherwise
    return tuple(kernel.shape[1:3]) != (1, 1)


def _infer_arch(weights: Mapping[str, Tensor], source: object) -> str:
    blocks = {tuple(name.split(".")[1:3]) for name in weights if name.startswith("encoder.layer")}
    counts = tuple(sum(layer == f"layer{stage}" for layer, _ in blocks) for stage in range(1, 5))
    deep = "encoder.layer1.0.conv3.weight" in weights
    for name, (block, expected) in ARCHITECTURES.items():
        if expected == counts and (block is Bottleneck) == deep:
            return name
    raise DataError(f"{source}: no known ResNet has {list(counts)} blocks; known: {', '.join(ARCHITECTURES)}")


def _image_size(given: Mapping[str, Any], source: object, kernel: Tensor | None = None) -> tuple[int, int, int]:
    """Return the image size of a config; a pooling `kernel` [C, H, W, F] must be for images of that size."""
    height, width = (1, 1) if kernel is None else kernel.shape[1:3]
    averaged = (height, width) == (1, 1)
    about = "" if averaged else f", at about {32 * height}x{32 * width} by the shape of its pooling"
    if "image_size" not in given:
        raise ConfigError(
            f"reward.model.image_size: not given, and {source} does not say at which size its network was trained"
            f"{about}. Set it, such as reward.model.image_size=[3,128,128] (rewardlab score: --set "
            "'image_size=[3,128,128]')"
        )
    size = given["image_size"]
    if len(size) != 3:
        raise ConfigError(f"reward.model.image_size: found {list(size)}, expected [3, height, width]")
    if not averaged and (map_size(size[1]), map_size(size[2])) != (height, width):
        raise ConfigError(f"reward.model.image_size: found {list(size)}, but {source} was trained{about[1:]}")
    return (3, size[1], size[2])
