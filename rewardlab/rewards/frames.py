"""Finding the frames and the labels in the forms in which data arrives."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rewardlab.errors import DataError
from rewardlab.keys import SUCCESS_KEYS
from rewardlab.models.images import Images

# The frame that followed the action comes first: it is the one a transition is judged by.
_OBSERVATION_KEYS = ("next_observation", "next_obs", "observation", "obs")


def images_of(data: Any) -> Images:
    """The images in a Batch, an observation, {camera: images}, a list of these with one frame each, or images alone."""
    if isinstance(data, (Tensor, np.ndarray)):
        return data
    if isinstance(data, Mapping):
        keys = set(data.keys())
        for key in (*_OBSERVATION_KEYS, "images"):
            if key in keys:
                return images_of(data[key])
        return {str(key): data[key] for key in keys if not isinstance(data[key], Mapping)}
    if isinstance(data, Sequence) and not isinstance(data, str) and len(data):
        return _stacked([images_of(item) for item in data])
    raise DataError(f"no images in a {type(data).__name__}; expected a batch, a dictionary of cameras, or an array")


def _stacked(items: list[Images]) -> Images:
    first = items[0]
    try:
        if isinstance(first, Mapping):
            return {key: _stack([item[key] for item in items]) for key in first}  # type: ignore[index]
        return _stack(items)
    except (KeyError, IndexError, TypeError) as error:
        raise DataError("the items of the list have different cameras") from error


def _stack(arrays: list[Any]) -> Tensor:
    shapes = {tuple(array.shape) for array in arrays}
    if len(shapes) > 1:
        raise DataError(f"the images of the list have different shapes: {sorted(map(list, shapes))}")
    return torch.stack([torch.as_tensor(array) for array in arrays])


def labels_of(data: Any) -> Tensor:
    """Whether each frame is a success, as bool [B]: what holds in this very frame, not "once so far"."""
    items = [data] if isinstance(data, Mapping) else list(data)
    labels = []
    for item in items:
        key = next((key for key in SUCCESS_KEYS if key in set(item.keys())), None)
        if key is None:
            raise DataError(f"no label: found the keys {', '.join(map(str, item.keys()))}; expected 'success'")
        labels.append(torch.as_tensor(item[key]).reshape(-1).bool().cpu())
    return torch.cat(labels)
