"""What a vector environment shows, in the form in which observations travel: "state", goals, "images" by camera."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rewardlab.data.episodes import Array
from rewardlab.data.images import to_numpy
from rewardlab.errors import DataError
from rewardlab.keys import ACHIEVED_GOAL, DESIRED_GOAL, STATE_NAMES

# "state", "achieved_goal", "desired_goal": float32 [N, S]; "images": {camera: uint8 [N, H, W, 3]}
Observation = dict[str, Any]

_VECTORS = {name: STATE_NAMES[0] for name in STATE_NAMES} | {goal: goal for goal in (ACHIEVED_GOAL, DESIRED_GOAL)}


def as_observation(obs: Any) -> Observation:
    """States and goals as float32 [N, S]; pictures as they are."""
    if not isinstance(obs, Mapping):
        return {"state": _flat(obs)}
    unknown = set(obs) - {*_VECTORS, "images"}
    if unknown or not obs or set(obs).issuperset(STATE_NAMES):
        raise DataError(
            f"observations have {', '.join(map(str, obs)) or 'no keys'}; expected 'state' (or 'observation') and "
            f"'images', and '{ACHIEVED_GOAL}' and '{DESIRED_GOAL}' where there are goals"
        )
    observation: Observation = {name: _flat(obs[key]) for key, name in _VECTORS.items() if key in obs}
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
