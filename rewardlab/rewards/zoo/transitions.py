"""Transitions in the forms in which they arrive, read into one: flat columns.

Accepted: a TensorDict [B] or [T, N] with `observation`, `next_observation`, `action`, `reward`, `terminated`,
`truncated`; a list of dictionaries with `obs`, `next_obs`, `action`, `reward`, `done`; and mixtures of these names.
Inside the reward models, transitions are tensors [B, ...] under flat names such as "next_observation.images.wrist".

Where a model needs to know episodes, rows are in time order (along T, for each of the N environments apart) and an
episode ends at a row that is `terminated` or `truncated`, or with the batch. `done` counts as `terminated`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor

from rewardlab.data.episodes import check_finite
from rewardlab.errors import DataError
from rewardlab.keys import STATE_NAMES
from rewardlab.models.observation_network import is_image
from rewardlab.rewards.zoo.task import Task, part_name

Columns: TypeAlias = dict[str, Tensor]

NAMES: dict[str, tuple[str | tuple[str, str], ...]] = {
    "observation": ("observation", "obs"),
    "next_observation": ("next_observation", "next_obs", ("next", "observation")),
    # What an action led to. Rows that have no next observation are arrivals already (see `rewardlab.types`).
    "arrival": ("next_observation", "next_obs", ("next", "observation"), "observation", "obs"),
    "action": ("action",),
    "reward": ("env_reward", "reward"),
    "terminated": ("terminated", "done"),
    "truncated": ("truncated",),
    "log_prob": ("log_prob",),
}
OBSERVATIONS = ("observation", "next_observation", "arrival")


@dataclass(frozen=True)
class Rows:
    """Columns [B, ...] of transitions whose batch had the leading axes `shape`."""

    columns: Columns
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return int(np.prod(self.shape))

    def part(self, start: int, stop: int) -> "Rows":
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Rows(columns, (min(stop, len(self)) - start,))

    def check_finite(self) -> None:
        check_finite({name: column.cpu().numpy() for name, column in self.columns.items()}, "row {}".format)

    def episodes(self) -> list[Tensor]:
        """The rows of each episode, in time order."""
        count = len(self)
        environments = self.shape[1] if len(self.shape) > 1 else 1
        order = torch.arange(count).view(-1, environments).T.flatten()
        ends = torch.zeros(count, dtype=torch.bool)
        for name in ("terminated", "truncated"):
            if name in self.columns:
                ends |= self.columns[name].cpu()[order]
        ends.view(environments, -1)[:, -1:] = True
        stops = ends.nonzero().flatten() + 1
        return list(order.tensor_split(stops[:-1].tolist()))


def observation_of(columns: Columns, which: str) -> Columns:
    """The parts of one observation: "next_observation.state" becomes "state"."""
    start = f"{which}."
    return {name[len(start) :]: column for name, column in columns.items() if name.startswith(start)}


def leading_shape(data: Any) -> tuple[int, ...]:
    if isinstance(data, TensorDictBase):
        return tuple(data.batch_size)
    if isinstance(data, Mapping):
        first = next((value for value in _leaves(data)), None)
        return () if first is None else (len(first),)
    return (len(data),)


def read_rows(data: Any, task: Task, needed: Sequence[str], optional: Sequence[str] = ()) -> Rows:
    """The columns that are asked for (keys of NAMES), checked against the task's shapes and flattened to [B, ...]."""
    if not isinstance(data, (TensorDictBase, Mapping, Sequence)) or isinstance(data, str):
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


def find(data: Any, name: str) -> Any:
    """The value of a column under any of its names: a tensor, or a mapping of tensors. None if it is not there."""
    if isinstance(data, (TensorDictBase, Mapping)):
        for key in NAMES.get(name, (name,)):
            value = data.get(key, None) if isinstance(key, str) else _nested(data, key)
            if value is not None:
                return value
        return None
    if not len(data):
        return None
    if not isinstance(data[0], (Mapping, TensorDictBase)):
        raise DataError(f"item 0 is a {type(data[0]).__name__}; expected a dictionary of a transition")
    for key in NAMES.get(name, (name,)):
        if isinstance(key, str) and key in data[0]:
            return _stacked([_item(item, key, i) for i, item in enumerate(data)], key)
    return None


def _nested(data: Any, key: Sequence[str]) -> Any:
    outer = data.get(key[0], None)
    return None if outer is None else outer.get(key[1], None)


def _item(item: Any, key: str, row: int) -> Any:
    try:
        return item[key]
    except (KeyError, TypeError):
        raise DataError(f"item {row} has no '{key}', item 0 has") from None


def _stacked(values: list[Any], key: str) -> Any:
    first = values[0]
    try:
        if isinstance(first, Mapping):
            return {name: _stacked([value[name] for value in values], f"{key}.{name}") for name in first}
        if isinstance(first, Tensor):
            return torch.stack(values)
        return torch.from_numpy(np.array(values))
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"'{key}' differs in shape or kind from item to item ({error})") from error


def keys_of(data: Any) -> list[str]:
    holder = data if isinstance(data, (TensorDictBase, Mapping)) else (data[0] if len(data) else {})
    return sorted(map(str, holder.keys()))


def _leaves(data: Any) -> Iterator[Any]:
    for value in data.values():
        if isinstance(value, (Mapping, TensorDictBase)):
            yield from _leaves(value)
        else:
            yield value


def _observation(value: Any, task: Task, name: str, axes: int) -> Columns:
    if not isinstance(value, (Mapping, TensorDictBase)):
        value = torch.as_tensor(value)
        value = {part_name(value.shape[axes:]): value}
    parts: Columns = {}
    for part in task.observation:
        found = value.get(part)
        if found is None and part == STATE_NAMES[0]:  # straight from an environment
            found = value.get(STATE_NAMES[1])
        if found is None and "." in part:  # once: a camera's name may contain dots
            found = _nested(value, part.split(".", 1))
        if found is None:
            keys = ", ".join(sorted(map(str, value.keys())))
            raise DataError(f"'{name}' has no '{part}', which the reward model was built for; found {keys}")
        parts[part] = _part(torch.as_tensor(found), task, part, name, axes)
    return parts


def _part(tensor: Tensor, task: Task, part: str, name: str, axes: int) -> Tensor:
    shape = tuple(tensor.shape[axes:])
    if shape != task.observation[part]:
        raise DataError(
            f"'{name}.{part}' has shape {list(shape)} per row; the reward model was built for "
            f"{list(task.observation[part])}"
        )
    if axes > 1:
        tensor = tensor.flatten(0, axes - 1)
    return tensor if tensor.dtype == torch.uint8 and is_image(shape) else tensor.float()


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
