"""Data of experts, in whatever form it comes: as trajectories, or as one batch of transitions.

A source is a path to episodes in any of our formats or to a pickled list of transitions, episodes that `read_episodes`
found, a TensorDict, a dictionary of arrays, a list of dictionaries with one transition each, an array of observations
alone, a list with any of these as its items, or a function that returns one of all these.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rewardlab.data import Episode, StoredEpisode, read_episodes, unpickle
from rewardlab.data.episodes import check_finite
from rewardlab.errors import DataError
from rewardlab.observations import nest_images, read_parts
from rewardlab.rewards.zoo.transitions import NAMES, OBSERVATIONS, Rows, find, keys_of, leading_shape

_COLUMNS = ("observation", "next_observation", "action", "reward", "terminated", "truncated", "log_prob")
_MORE = ("rank", "noise_level")  # of trajectories that are compared


def expert_transitions(source: Any) -> TensorDict:
    """All transitions of a source, [B] in time order, the last of each trajectory terminated or truncated."""
    trajectories = expert_trajectories(source)
    try:
        return TensorDict.cat([_closed(transitions) for transitions in trajectories])
    except (RuntimeError, KeyError) as error:
        raise DataError(f"{source_name(source)}: trajectories differ in columns or shapes ({error})") from error


def expert_trajectories(source: Any) -> list[TensorDict]:
    """Each trajectory of a source as a TensorDict [T]: not empty, finite numbers, in time order."""
    try:
        found = [named for named in _trajectories(source, source_name(source)) if len(named[1])]
    except RecursionError:
        raise DataError(f"{source_name(source)}: lists inside lists without end") from None
    if not found:
        raise DataError(f"{source_name(source)}: no transitions in it")
    for name, transitions in found:
        leaves = transitions.items(include_nested=True, leaves_only=True)
        arrays = {key if isinstance(key, str) else ".".join(key): np.asarray(value) for key, value in leaves}
        try:
            check_finite(arrays, "row {}".format)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
    return [transitions for _, transitions in found]


def source_name(source: Any) -> str:
    """What errors call a source."""
    return str(source) if isinstance(source, (str, Path)) else "expert data"


def _trajectories(source: Any, name: str) -> list[tuple[str, TensorDict]]:
    if isinstance(source, (str, Path)):
        return _from_path(Path(source))
    if isinstance(source, (Episode, StoredEpisode)):
        return [_from_episode(source, name)]
    if isinstance(source, (Tensor, np.ndarray)):
        return _from_batch({"observation": source}, name)
    if isinstance(source, (TensorDictBase, Mapping)):
        return _from_batch(source, name)
    if callable(source):
        return _trajectories(source(), name)
    if not isinstance(source, Sequence):
        raise DataError(f"{name}: found a {type(source).__name__}; expected a path, episodes, a TensorDict or a list")
    if not len(source) or (isinstance(source[0], Mapping) and not isinstance(source[0], TensorDictBase)):
        return _from_batch(source, name)  # one transition an item
    return [one for i, item in enumerate(source) for one in _trajectories(item, f"{name}, item {i}")]


def _from_path(path: Path) -> list[tuple[str, TensorDict]]:
    if path.suffix == ".pkl" and path.is_file():
        with path.open("rb") as file:
            content = unpickle.load(file, str(path))
        if not isinstance(content, dict) or "frames" not in content:
            if isinstance(content, (str, Path)):
                raise DataError(f"{path}: holds the text {content!r}, expected transitions")
            return _trajectories(content, str(path))
    return [_from_episode(episode, "") for episode in read_episodes(path)]


def _from_episode(episode: Episode | StoredEpisode, name: str) -> tuple[str, TensorDict]:
    if isinstance(episode, StoredEpisode):
        return _from_episode(episode.load(), str(episode.path))
    try:
        return name, _canonical(episode.transitions(), name)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _from_batch(batch: Any, name: str) -> list[tuple[str, TensorDict]]:
    transitions = _canonical(batch, name)
    flat = transitions.flatten() if transitions.ndim else transitions.unsqueeze(0)
    ends = {key: flat[key].reshape(-1) for key in ("terminated", "truncated") if key in flat}
    return [(name, flat[rows]) for rows in Rows(ends, tuple(transitions.batch_size) or (1,)).episodes()]


def _canonical(batch: Any, name: str) -> TensorDict:
    """A TensorDict on the CPU with the names of `rewardlab.types`, and without what no reward model reads."""
    try:
        shape = leading_shape(batch)
        found = {name: find(batch, name) for name in _COLUMNS + _MORE}
        columns = {name: _read(column, name, len(shape)) for name, column in found.items() if column is not None}
        if "observation" not in columns and (shape != (0,) or keys_of(batch)):
            known = ", ".join(str(key) for key in NAMES["observation"])
            raise DataError(f"no observations; found {', '.join(keys_of(batch)) or 'nothing'}, expected {known}")
        return TensorDict(columns, batch_size=shape)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    except (RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"{name}: columns differ in length, or are no numbers ({error})") from error


def _read(value: Any, name: str, batch_axes: int) -> Any:
    if name in OBSERVATIONS:
        parts = read_parts(value, batch_axes=batch_axes)
        return nest_images({part: torch.as_tensor(array).detach().cpu() for part, array in parts.items()})
    tensor = torch.as_tensor(value).detach().cpu()
    return tensor.bool() if name in ("terminated", "truncated") else tensor


def _closed(transitions: TensorDict) -> TensorDict:
    """The same trajectory with its end marked, so that trajectories can be told apart once they are joined."""
    wanted = transitions.select(*_COLUMNS, strict=False)
    none = torch.zeros(len(wanted), dtype=torch.bool)
    for key in ("terminated", "truncated"):
        wanted[key] = wanted[key].reshape(-1).clone() if key in wanted else none.clone()
    wanted["truncated"][-1] = not bool(wanted["terminated"][-1])
    return wanted
