"""What a vector environment shows, in the form in which observations travel: "state", and "images" by camera."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rewardlab.data.episodes import Array
from rewardlab.data.images import to_numpy
from rewardlab.errors import DataError

Observation = dict[str, Any]  # "state": float32 [N, S]; "images": {camera: uint8 [N, H, W, 3]}


def as_observation(obs: Any) -> Observation:
    """States as float32 [N, S]; pictures as they are."""
    if not isinstance(obs, Mapping):
        return {"state": _flat(obs)}
    unknown = set(obs) - {"state", "images"}
    if unknown or not obs:
        raise DataError(f"observations have {', '.join(map(str, obs)) or 'no keys'}; expected 'state' and 'images'")
    observation: Observation = {}
    if "state" in obs:
        observation["state"] = _flat(obs["state"])
    if "images" in obs:
        observation["images"] = {camera: to_numpy(pictures) for camera, pictures in obs["images"].items()}
    return observation


def _flat(state: Any) -> Array:
    array = to_numpy(state)
    return array.reshape(len(array), -1).astype(np.float32, copy=False)


def to_batch(observation: Observation) -> TensorDict:
    """The same memory as tensors."""
    size = [len(_first(observation))]
    return TensorDict(_tensors(observation), batch_size=size)


def _tensors(observation: Observation) -> dict[str, Any]:
    return {
        key: _tensors(value) if isinstance(value, dict) else torch.from_numpy(value)
        for key, value in observation.items()
    }


def _first(observation: Observation) -> Array:
    value = next(iter(observation.values()))
    return _first(value) if isinstance(value, dict) else value


def replace_rows(observation: Observation, rows: Array, replacement: Observation) -> Observation:
    """A copy in which `rows` are those of `replacement`."""
    copy: Observation = {}
    for key, value in observation.items():
        if isinstance(value, dict):
            copy[key] = replace_rows(value, rows, replacement[key])
        else:
            copy[key] = value.copy()
            copy[key][rows] = replacement[key]
    return copy


def stack_steps(observations: list[Observation]) -> Observation:
    """Observations of T steps, each [N, ...], as one [T, N, ...]."""
    first = observations[0]
    return {
        key: stack_steps([observation[key] for observation in observations])
        if isinstance(value, dict)
        else np.stack([observation[key] for observation in observations])
        for key, value in first.items()
    }
