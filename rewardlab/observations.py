"""Reads observations and images in all forms that environments use.

An observation, usually with leading batch axes, is one of

    an array of numbers      the state
    an array of images       three axes per image; it gets the name of the default camera
    a mapping                "state" (or "observation", "states"), "achieved_goal", "desired_goal" and "images" by
                             camera (or "images.<camera>", "images/<camera>", "pixels.<camera>"; "main_images", or a
                             "state" that is a picture, are of the default camera); any other key keeps its name, and
                             may be nested. Pictures may be under any of them: the key is the camera's name

Its parts are called the same everywhere: `state`, `achieved_goal`, `desired_goal`, `images.<camera>`. `read_parts` is
the only function that knows the forms above; it reads values and spaces. Torch and Gymnasium are imported where they
are needed, so that collecting starts quickly.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rewardlab.errors import ConfigError, DataError
from rewardlab.keys import ACHIEVED_GOAL, DEFAULT_CAMERA, DESIRED_GOAL, MAIN_IMAGES, STATE_NAMES
from rewardlab.nested import leaves

if TYPE_CHECKING:
    from gymnasium import Space
    from tensordict import TensorDict

Array: TypeAlias = npt.NDArray[Any]
# {"state", "achieved_goal", "desired_goal": float32 [N, S], "images": {camera: uint8 [N, H, W, 3]}}
Observation: TypeAlias = dict[str, Any]
Shapes: TypeAlias = dict[str, tuple[int, ...]]  # by part, of a single observation

VECTOR_PARTS = (STATE_NAMES[0], ACHIEVED_GOAL, DESIRED_GOAL)
IMAGE_PART = "images."  # followed by the camera's name
SMALLEST_PICTURE = 32  # pixels of a side; smaller arrays under other names, as in MiniGrid, are numbers

_EXPECTED = (
    "expected states, pictures, or a dictionary with 'state' (or 'observation') and 'images' by camera, and with "
    f"'{ACHIEVED_GOAL}' and '{DESIRED_GOAL}' where there are goals"
)
# Rendering and resizing may exceed 1 by rounding; values further out are of another scale (0-255, -1..1).
_TOLERANCE = 1e-3


def read_parts(observation: Any, *, batch_axes: int = 1, camera: str = DEFAULT_CAMERA) -> dict[str, Any]:
    """Return the parts of an observation, or of its space, by name, without converting them.

    An array has no names: with three axes behind its `batch_axes` it contains images, of `camera`; otherwise states.
    """
    if not isinstance(observation, Mapping):
        shape = np.shape(observation) if isinstance(observation, list) else getattr(observation, "shape", None)
        if shape is None:
            raise DataError(f"observations are a {type(observation).__name__}; {_EXPECTED}")
        return {part_name(shape[batch_axes:], camera): observation}
    found = {".".join(path): value for path, value in leaves(observation) if not isinstance(value, Mapping)}
    parts = {re.sub("^(images/|pixels[./])", IMAGE_PART, name): value for name, value in found.items()}
    names = {"images": IMAGE_PART + camera}
    if IMAGE_PART + DEFAULT_CAMERA not in parts and "images" not in parts:
        names[MAIN_IMAGES] = IMAGE_PART + DEFAULT_CAMERA
    given = next((name for name in STATE_NAMES if name in parts), STATE_NAMES[0])
    names[given] = part_name((getattr(parts.get(given), "shape", None) or ())[batch_axes:], camera)
    return {names.get(name, name): value for name, value in parts.items()}


def is_image(shape: Sequence[int]) -> bool:
    """Return whether a part of this shape, without batch axes, is an image."""
    return len(shape) == 3


def is_picture(name: str, space: "Space[Any]") -> bool:
    """Return whether a part of a single observation, whatever its name, is a picture in three colours."""
    shape, dtype = space.shape or (), str(space.dtype)
    if not is_image(shape) or 3 not in (shape[-1], shape[0]) or not (dtype == "uint8" or "float" in dtype):
        return False
    height, width = shape[:2] if shape[-1] == 3 else shape[1:]
    return name.startswith(IMAGE_PART) or min(height, width) >= SMALLEST_PICTURE


def part_name(shape: Sequence[int], camera: str = DEFAULT_CAMERA) -> str:
    """Return the name of the only part of an observation that is not a mapping."""
    return IMAGE_PART + camera if is_image(shape) else STATE_NAMES[0]


def _is_known(name: str) -> bool:
    return name in VECTOR_PARTS or name.startswith(IMAGE_PART)


def space_shapes(space: "Space[Any]", *, known_only: bool = False) -> Shapes:
    """Return the shapes of the parts of a single observation, sorted by name.

    With `known_only`, for policies, parts other than a state, goals and images are an error.
    """
    from gymnasium import spaces

    parts = read_parts(space, batch_axes=0) if isinstance(space, (spaces.Box, spaces.Dict)) else {}
    boxes = all(isinstance(part, spaces.Box) for part in parts.values())
    if not parts or not boxes or (known_only and not all(map(_is_known, parts))):
        raise ConfigError(f"observation space {space}: {_EXPECTED}, each of them a Box")
    return {name: tuple(part.shape) for name, part in sorted(parts.items())}


def camera_images(observation: Any, *, unnamed: str | None = DEFAULT_CAMERA) -> dict[str, Any]:
    """Return the parts of a batch of observations, or of its space, that may be images, by camera.

    Some environments have them beside the state, under the camera's name. An array of images gets the name `unnamed`,
    or is left out if that is None.
    """
    if isinstance(observation, Mapping):
        parts = read_parts(observation, camera=unnamed or DEFAULT_CAMERA)
        images = {name.removeprefix(IMAGE_PART): part for name, part in parts.items() if name not in VECTOR_PARTS}
        if MAIN_IMAGES in observation.keys():  # noqa: SIM118 - the `in` of spaces and TensorDicts is another
            images[MAIN_IMAGES] = observation[MAIN_IMAGES]  # models may have been trained under this name
        return images
    shape = getattr(observation, "shape", None) or ()
    return {} if unnamed is None or not is_image(shape[1:]) else {unnamed: observation}


def read_vectors(observation: Any, *, keep_tensors: bool = False) -> dict[str, Any]:
    """Return the state and the goals of a batch of observations, each as float32 [N, S], unless they are images."""
    parts = read_parts(observation)
    arrays = {name: _to_array(parts[name], name, keep_tensors) for name in VECTOR_PARTS if name in parts}
    vectors = {name: array for name, array in arrays.items() if not is_image(array.shape[1:])}
    return {name: _as_float32(array.reshape(len(array), -1)) for name, array in vectors.items()}


def as_observation(observation: Any, *, keep_tensors: bool = False) -> Observation:
    """Return a batch of observations in the form that workers use; images are not converted.

    With `keep_tensors`, the tensors of a simulator on a device stay there; otherwise they become NumPy arrays.
    """
    parts = read_parts(observation)
    if not parts or not all(map(_is_known, parts)):
        raise DataError(f"observations have {', '.join(parts) or 'no parts'}; {_EXPECTED}")
    images = {n: _to_array(part, n, keep_tensors) for n, part in parts.items() if n.startswith(IMAGE_PART)}
    return nest_images({**read_vectors(observation, keep_tensors=keep_tensors), **images})


def copy_observation(observation: Any) -> "TensorDict":
    """Return a copy of a batch of observations, with any parts, as a TensorDict [N].

    Environments may write the next observation into the arrays of the last one.
    """
    arrays = {name: np.array(_to_array(part, name)) for name, part in read_parts(observation).items()}
    return to_batch(nest_images(arrays))


def nest_images(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts as in a Batch: images are in a nested dictionary "images", by camera."""
    nested = {name: part for name, part in parts.items() if not name.startswith(IMAGE_PART)}
    images = {name.removeprefix(IMAGE_PART): part for name, part in parts.items() if name.startswith(IMAGE_PART)}
    return nested | ({"images": images} if images else {})


def to_batch(observation: Observation, batch_axes: int = 1) -> "TensorDict":
    """Return arrays [N, ...] as a TensorDict [N], or [T, N, ...] with two batch axes, that shares their memory.

    Read-only arrays, as Ray hands them over, are copied: torch would warn of them. Tensors stay where they are.
    """
    import torch
    from tensordict import TensorDict

    def tensor(array: Any) -> torch.Tensor:
        return array if is_tensor(array) else torch.from_numpy(np.require(array, requirements="W"))

    return TensorDict(_map(tensor, observation)).auto_batch_size_(batch_axes)


def replace_rows(observation: Observation, rows: Array, replacement: Observation) -> Observation:
    """Return a copy of an observation in which `rows` are replaced by `replacement`."""

    def replaced(array: Any, values: Any) -> Any:
        copy = array.clone() if is_tensor(array) else array.copy()
        copy[rows] = values
        return copy

    return _map(replaced, observation, replacement)


def stack_steps(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the (nested) arrays [N, ...] of T steps as arrays [T, N, ...]."""
    return _map(lambda *arrays: _stack(arrays), *steps)


def final_rows(final_obs: Any, env_ids: Array) -> Any:
    """Return the observations of some environments, from a batch or from Gymnasium's array with Nones in it."""
    if isinstance(final_obs, Mapping):
        return {key: final_rows(value, env_ids) for key, value in final_obs.items()}
    if is_tensor(final_obs):
        return final_obs[env_ids]
    rows = [final_obs[i] for i in env_ids]
    if isinstance(rows[0], Mapping):
        return {key: final_rows([row[key] for row in rows], np.arange(len(rows))) for key in rows[0]}
    return _stack(rows)


def take_row(observation: Any, place: int) -> Any:
    """Return one of a batch of observations."""
    if isinstance(observation, Mapping):
        return {key: take_row(part, place) for key, part in observation.items()}
    return observation[place]


def _map(function: Callable[..., Any], *trees: Any) -> Any:
    """Apply a function to the arrays of nested dictionaries with the same keys."""
    if not isinstance(trees[0], Mapping):
        return function(*trees)
    return {key: _map(function, *(tree[key] for tree in trees)) for key in trees[0]}


def is_tensor(values: Any) -> bool:
    """Return whether values are a torch tensor, without importing torch."""
    return hasattr(values, "detach")


def has_tensors(observation: Observation) -> bool:
    """Return whether an observation is one of a simulator whose numbers are tensors."""
    return any(is_tensor(value) for _, value in leaves(observation))


def to_numpy(values: Any) -> Array:
    """Return a NumPy array of a tensor on any device, an array or plain numbers."""
    if is_tensor(values):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def _stack(arrays: Sequence[Any]) -> Any:
    if not is_tensor(arrays[0]):
        return np.stack([to_numpy(array) for array in arrays])
    import torch

    return torch.stack(list(arrays))


def _as_float32(array: Any) -> Any:
    return array.float() if is_tensor(array) else array.astype(np.float32, copy=False)


def _to_array(part: Any, name: str, keep_tensors: bool = False) -> Any:
    if isinstance(part, tuple):
        raise DataError(f"'{name}' of the observations is a tuple; {_EXPECTED}")
    return part if keep_tensors and is_tensor(part) else to_numpy(part)


def has_colors_last(images: Any, name: str) -> bool:
    """Return whether images are [..., H, W, 3] and not [..., 3, H, W]; a DataError if they are neither.

    `name`, for error messages, is the camera or the file.
    """
    shape, name = list(images.shape), f"images of '{name}'"
    last, first = (len(shape) >= 3 and shape[axis] == 3 for axis in (-1, -3))
    if not (last or first):
        raise DataError(f"{name} have shape {shape}; expected 3 colour channels: [..., H, W, 3] or [..., 3, H, W]")
    if 0 in shape[-3:]:
        raise DataError(f"{name} have shape {shape}: they have no pixels")
    dtype = str(images.dtype)
    if not dtype.endswith("uint8") and "float" not in dtype:
        raise DataError(f"{name} have dtype {dtype}; expected uint8, or floats in [0, 1]")
    if "float" in dtype and 0 not in shape:
        low, high = float(images.min()), float(images.max())
        # Negated, so that NaN is an error too.
        if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):
            raise DataError(f"float {name} have values from {low:g} to {high:g}; expected [0, 1] (or uint8)")
    return last
