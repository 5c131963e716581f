"""Reads transitions in the forms in which they arrive.

Accepted: a TensorDict [B] or [T, N] with `observation`, `next_observation`, `action`, `reward`, `terminated`,
`truncated`; a list of dictionaries with `obs`, `next_obs`, `action`, `reward`, `done`; and mixtures of these names.
Inside the reward models, transitions are tensors [B, ...] under flat names such as "next_observation.images.wrist".

Where a model needs to know episodes, rows are in time order (along T, for each of the N environments apart) and an
episode ends at a row that is `terminated` or `truncated`, or with the batch. `done` counts as `terminated`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor
from torch.nn import functional

from rewardlab.data.episodes import check_finite
from rewardlab.errors import DataError
from rewardlab.keys import DESIRED_GOAL, SUCCESS_KEYS, UNSURE
from rewardlab.models.encoders import channels_first, pixels_to_floats
from rewardlab.models.image_preprocessor import Images
from rewardlab.observations import camera_images, is_image, read_parts
from rewardlab.rewards.zoo.task import Task

Columns: TypeAlias = dict[str, Tensor]

_FOLLOWING: tuple[str | tuple[str, str], ...] = ("next_observation", "next_obs", ("next", "observation"))
NAMES: dict[str, tuple[str | tuple[str, str], ...]] = {
    "observation": ("observation", "obs"),
    "next_observation": _FOLLOWING,
    # What an action led to. Rows that have no next observation are arrivals already (see `rewardlab.types`).
    "arrival": (*_FOLLOWING, "observation", "obs"),
    "reward": ("env_reward", "reward"),
    "terminated": ("terminated", "done"),
    "success": SUCCESS_KEYS,
}
OBSERVATIONS = ("observation", "next_observation", "arrival")
_SIDE = 4  # of the picture that `observation_features` averages any image to: 48 numbers of three colours


class EpisodePart(NamedTuple):
    """The rows of one episode in a batch."""

    rows: Tensor  # their numbers, in time order
    environment: int
    first: bool  # of its environment: it may have begun before the batch
    unfinished: bool  # the batch ends before the episode does


@dataclass(frozen=True)
class Rows:
    """Columns [B, ...] of transitions whose batch had the leading axes `shape`."""

    columns: Columns
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return math.prod(self.shape)

    def to(self, device: torch.device) -> "Rows":
        return Rows(on_device(self.columns, device), self.shape)

    def part(self, start: int, stop: int) -> "Rows":
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Rows(columns, (min(stop, len(self)) - start,))

    def observations(self, which: str, rows: Tensor) -> "Rows":
        """Return the observations or next observations of some rows, both as `observation`."""
        parts = observation_of(self.columns, which)
        return Rows({f"observation.{name}": column[rows] for name, column in parts.items()}, (len(rows),))

    def check_finite(self) -> None:
        check_finite({name: column.cpu().numpy() for name, column in self.columns.items()}, "row {}".format)

    @property
    def environments(self) -> int:
        return self.shape[1] if len(self.shape) > 1 else 1

    def episodes(self) -> list[Tensor]:
        """Return the row numbers of each episode, in time order."""
        return [part.rows for part in self.episode_parts()]

    def episode_parts(self) -> list[EpisodePart]:
        """Return the episodes of all environments, one environment after the other."""
        count = len(self)
        order = torch.arange(count).view(-1, self.environments).T.flatten()
        ends = torch.zeros(count, dtype=torch.bool)
        for name in ("terminated", "truncated"):
            if name in self.columns:
                ends |= self.columns[name].cpu()[order]
        by_environment = zip(order.view(self.environments, -1), ends.view(self.environments, -1), strict=True)
        parts = []
        for environment, (rows, end) in enumerate(by_environment):
            pieces = rows.tensor_split((end[:-1].nonzero().flatten() + 1).tolist())
            last = len(pieces) - 1 if not end[-1:].all() else None
            parts += [EpisodePart(piece, environment, i == 0, i == last) for i, piece in enumerate(pieces)]
        return parts


def on_device(columns: Columns, device: torch.device) -> Columns:
    return {name: column.to(device) for name, column in columns.items()}


def observation_of(columns: Columns, which: str) -> Columns:
    """Return the parts of one observation: "next_observation.state" becomes "state"."""
    start = f"{which}."
    return {name.removeprefix(start): column for name, column in columns.items() if name.startswith(start)}


def observation_features(columns: Columns, task: Task) -> Tensor:
    """Return each observation as float64 [B, F]: its vectors, and its images averaged over a coarse grid.

    For models that compare numbers and train no network.
    """
    observation = observation_of(columns, "observation")
    parts = []
    for name, shape in task.observation.items():
        values = observation[name]
        if is_image(shape):
            values = functional.adaptive_avg_pool2d(channels_first(pixels_to_floats(values), shape), _SIDE)
        parts.append(values.flatten(1).double())
    return torch.cat(parts, dim=1)


def feature_count(task: Task) -> int:
    """Return the F of `observation_features`."""
    empty = {f"observation.{name}": torch.zeros(1, *shape) for name, shape in task.observation.items()}
    return observation_features(empty, task).shape[1]


def leading_shape(data: Any) -> tuple[int, ...]:
    """Return the batch axes of transitions: [B] or [T, N]; of a dictionary of arrays, the length of the first."""
    if isinstance(data, TensorDictBase):
        return tuple(data.batch_size)
    while isinstance(data, Mapping):
        if not data:
            return ()
        data = next(iter(data.values()))
    return (len(data),)


def keys_of(data: Any) -> list[str]:
    """Return the names in a batch, or in the first item of a list."""
    holder = data if isinstance(data, Mapping) else (data[0] if len(data) else {})
    return sorted(map(str, holder.keys()))


def find(data: Any, name: str) -> Any:
    """Return a column under any of its NAMES: a tensor, or a mapping of tensors. None if it is not there."""
    names = NAMES.get(name, (name,))
    if isinstance(data, Mapping):
        values = (_get(data, (key,) if isinstance(key, str) else key) for key in names)
        return next((value for value in values if value is not None), None)
    if not len(data):
        return None
    if not isinstance(data[0], Mapping):
        raise DataError(f"item 0 is a {type(data[0]).__name__}; expected a dictionary of a transition")
    key = next((key for key in names if key in set(data[0].keys())), None)
    return None if key is None else _stack([_item(item, key, i) for i, item in enumerate(data)], key)


def _get(data: Any, keys: Iterable[str]) -> Any:
    for key in keys:
        data = None if data is None else data.get(key, None)
    return data


def _item(item: Any, key: Any, row: int) -> Any:
    try:
        return item[key]
    except (KeyError, TypeError):
        raise DataError(f"item {row} has no '{key}', item 0 has") from None


def _stack(values: list[Any], name: Any) -> Any:
    first = values[0]
    try:
        if isinstance(first, Mapping):
            return {key: _stack([value[key] for value in values], f"{name}.{key}") for key in first.keys()}  # noqa: SIM118 - of a TensorDict
        if isinstance(first, Tensor):
            return torch.stack([torch.as_tensor(value) for value in values])
        return torch.from_numpy(np.array(values))
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError) as error:
        raise DataError(f"'{name}' differs in shape or kind from item to item ({error})") from error


def read_rows(data: Any, task: Task, needed: Sequence[str], optional: Sequence[str] = ()) -> Rows:
    """Return the columns that are asked for, checked against the task's shapes and flattened to [B, ...]."""
    if not isinstance(data, (Mapping, Sequence)) or isinstance(data, str):
        raise DataError(f"found a {type(data).__name__}; expected a TensorDict or a list of dictionaries")
    shape = leading_shape(data)
    if not shape:
        raise DataError("found a single transition without a batch axis; expected [B] or [T, N]")
    columns: Columns = {}
    for name in (*needed, *optional):
        value = find(data, name)
        if value is None:
            if name in needed:
                raise DataError(f"no '{name}' in the transitions; found {', '.join(keys_of(data)) or 'nothing'}")
        elif name in OBSERVATIONS:
            columns |= {f"{name}.{part}": t for part, t in _observation(value, task, name, len(shape)).items()}
        else:
            columns[name] = _plain_column(value, task, name, len(shape))
    return Rows(columns, shape)


def _observation(value: Any, task: Task, name: str, axes: int) -> Columns:
    found = read_parts(value, batch_axes=axes)
    columns: Columns = {}
    for part, expected in task.observation.items():
        if part not in found:
            names = ", ".join(sorted(found))
            if is_image(expected):
                names += ". Stored transitions have pictures if they were collected with data.collection.frames=all"
            raise DataError(f"'{name}' has no '{part}', which the reward model was built for; found {names}")
        tensor = torch.as_tensor(found[part])
        shape = tuple(tensor.shape[axes:])
        if shape != expected and (is_image(expected) or math.prod(shape) != math.prod(expected)):
            raise DataError(
                f"'{name}.{part}' has shape {list(shape)} per row; the reward model was built for {list(expected)}"
            )
        tensor = tensor.reshape(-1, *expected)
        columns[part] = tensor if tensor.dtype == torch.uint8 and is_image(expected) else tensor.float()
    return columns


def _plain_column(value: Any, task: Task, name: str, axes: int) -> Tensor:
    tensor = torch.as_tensor(value)
    if axes > 1:
        tensor = tensor.flatten(0, axes - 1)
    if name == "action":
        return task.read_action(tensor)
    if tensor.numel() != len(tensor):
        raise DataError(f"'{name}' has shape {list(tensor.shape)}; expected one number a transition")
    tensor = tensor.reshape(-1)
    return tensor.bool() if name in ("terminated", "truncated") else tensor.float()


def read_images(data: Any) -> Images:
    """Return the images that actions led to, by camera or as one array without a name.

    `data` are transitions, observations, {camera: images}, a list of these with one frame each, or images alone.
    """
    if isinstance(data, (Tensor, np.ndarray)):
        return data
    if isinstance(data, Mapping):
        names = set(data.keys())
        # An observation may have a part that is called "observation", its state.
        following = None if names & {"images", DESIRED_GOAL} else find(data, "arrival")
        if following is None and "images" in names and not isinstance(data["images"], Mapping):
            following = data["images"]
        return camera_images(data) if following is None else read_images(following)
    if isinstance(data, Sequence) and not isinstance(data, str) and len(data):
        images: Images = _stack([read_images(item) for item in data], "images")
        return images
    raise DataError(f"no images in a {type(data).__name__}; expected a batch, a dictionary of cameras, or an array")


def read_labels(data: Any) -> Tensor:
    """Return whether each frame is a success, as bool [B]: what holds in this very frame, not "once so far"."""
    labels = find(data, "success")
    if labels is None:
        raise DataError(f"no label: found the keys {', '.join(keys_of(data))}; expected 'success'")
    values = torch.as_tensor(labels).reshape(-1).float().cpu()
    if not values.isfinite().all():
        raise DataError("'success' has numbers that are not finite; expected true, false, or numbers from 0 to 1")
    return values >= 0.5


def read_unsure(data: Any) -> Tensor | None:
    """Return which frames are neither a success nor a failure, as bool [B]; None if the data do not say."""
    unsure = find(data, UNSURE)
    return None if unsure is None else torch.as_tensor(unsure).reshape(-1).bool().cpu()
