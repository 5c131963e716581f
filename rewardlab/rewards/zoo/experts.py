"""Reads expert data from any source, as trajectories or as one batch of transitions.

A source is a path to episodes in any of our formats or to a pickled list of transitions, episodes that `read_episodes`
found, a TensorDict, a dictionary of arrays, a list of dictionaries with one transition each, an array of observations
alone, a list with any of these as its items, or a function that returns one of all these.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rewardlab import unpickle
from rewardlab.data import Episode, StoredEpisode, read_episodes
from rewardlab.data.episodes import check_finite
from rewardlab.errors import DataError
from rewardlab.input_files import open_file
from rewardlab.limits import excerpt
from rewardlab.observations import nest_images, read_parts
from rewardlab.rewards.zoo.transitions import NAMES, OBSERVATIONS, Rows, find, keys_of, leading_shape

_COLUMNS = ("observation", "next_observation", "action", "reward", "terminated", "truncated", "log_prob")
_RANKS = ("rank", "noise_level")  # of trajectories that are compared


def expert_transitions(source: Any) -> TensorDict:
    """Return all transitions of a source, [B] in time order, the last of each trajectory terminated or truncated."""
    trajectories = expert_trajectories(source)
    try:
        return TensorDict.cat([_mark_end(transitions) for transitions in trajectories])
    except (RuntimeError, KeyError) as error:
        raise DataError(f"{source_name(source)}: trajectories differ in columns or shapes ({error})") from error


def expert_trajectories(source: Any) -> list[TensorDict]:
    """Return each trajectory of a source as a TensorDict [T]: not empty, finite numbers, in time order."""
    try:
        found = [named for named in _trajectories(source, source_name(source)) if len(named[1])]
    except RecursionError:
        raise DataError(f"{source_name(source)}: a list that contains itself") from None
    if not found:
        raise DataError(f"{source_name(source)}: no transitions in it")
    for name, transitions in found:
        leaves = transitions.items(include_nested=True, leaves_only=True)
        arrays = {key if isinstance(key, str) else ".".join(key): np.asarray(value) for key, value in leaves}
        with errors_named(name):
            check_finite(arrays, "row {}".format)
    return [transitions for _, transitions in found]


def source_name(source: Any) -> str:
    """Return the name of a source in error messages."""
    return str(source) if isinstance(source, (str, Path)) else "expert data"


@contextmanager
def errors_named(name: str) -> Iterator[None]:
    """Begin the message of a DataError that is raised inside with `name`."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _trajectories(source: Any, name: str) -> list[tuple[str, TensorDict]]:
    if isinstance(source, (str, Path)):
        return _from_path(Path(source))
    if isinstance(source, (Episode, StoredEpisode)):
        return [_from_episode(source, name)]
    if isinstance(source, (Tensor, np.ndarray, Mapping)):
        return _from_batch(source if isinstance(source, Mapping) else {"observation": source}, name)
    if callable(source):
        return _trajectories(source(), name)
    if not isinstance(source, Sequence):
        raise DataError(f"{name}: found a {type(source).__name__}; expected a path, episodes, a TensorDict or a list")
    if not len(source) or (isinstance(source[0], Mapping) and not isinstance(source[0], TensorDictBase)):
        return _from_batch(source, name)  # one transition an item
    return [one for i, item in enumerate(source) for one in _trajectories(item, f"{name}, item {i}")]


def _from_path(path: Path) -> list[tuple[str, TensorDict]]:
    if path.suffix == ".pkl" and path.is_file():
        with open_file(path) as file:
            content = unpickle.load(file, str(path))
        if not isinstance(content, dict) or "frames" not in content:
            if isinstance(content, (str, Path)):
                raise DataError(f"{path}: holds the text {excerpt(content)!r}, expected transitions")
            return _trajectories(content, str(path))
    return [_from_episode(episode, "") for episode in read_episodes(path)]


def _from_episode(episode: Episode | StoredEpisode, name: str) -> tuple[str, TensorDict]:
    if isinstance(episode, StoredEpisode):
        return _from_episode(episode.load(), str(episode.path))
    with errors_named(name):
        transitions = episode.transitions()
    return name, _read_batch(transitions, name)


def _from_batch(batch: Any, name: str) -> list[tuple[str, TensorDict]]:
    transitions = _read_batch(batch, name)
    flat = transitions.flatten() if transitions.ndim else transitions.unsqueeze(0)
    ends = {key: flat[key].reshape(-1) for key in ("terminated", "truncated") if key in flat}
    return [(name, flat[rows]) for rows in Rows(ends, tuple(transitions.batch_size) or (1,)).episodes()]


def _read_batch(batch: Any, name: str) -> TensorDict:
    """Return a TensorDict on the CPU with the names of `rewardlab.types`; other columns are left out."""
    with errors_named(name):
        shape = leading_shape(batch)
        found = {column: find(batch, column) for column in _COLUMNS + _RANKS}
        if found["observation"] is None and (shape != (0,) or keys_of(batch)):
            known = ", ".join(str(key) for key in NAMES["observation"])
            raise DataError(f"no observations; found {', '.join(keys_of(batch)) or 'nothing'}, expected {known}")
        try:
            columns = {key: _read(value, key, len(shape)) for key, value in found.items() if value is not None}
            return TensorDict(columns, batch_size=shape)
        except (RuntimeError, TypeError, ValueError) as error:
            raise DataError(f"columns differ in length, or are no numbers ({error})") from error


def _read(value: Any, name: str, batch_axes: int) -> Any:
    if name in OBSERVATIONS:
        parts = read_parts(value, batch_axes=batch_axes)
        return nest_images({part: torch.as_tensor(array).detach().cpu() for part, array in parts.items()})
    tensor = torch.as_tensor(value).detach().cpu()
    return tensor.bool() if name in ("terminated", "truncated") else tensor


def _mark_end(transitions: TensorDict) -> TensorDict:
    """Return the trajectory with its end marked, so that trajectories can be told apart once they are joined."""
    wanted = transitions.select(*_COLUMNS, strict=False)
    none = torch.zeros(len(wanted), dtype=torch.bool)
    for key in ("terminated", "truncated"):
        wanted[key] = wanted[key].reshape(-1).clone() if key in wanted else none.clone()
    wanted["truncated"][-1] = not bool(wanted["terminated"][-1])
    return wanted
