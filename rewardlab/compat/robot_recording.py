"""Recordings of a robot in one pickle (`data.pkl`), as RLinf's collection wrote them: a list of transitions.

A transition is {"transitions": {"obs", "next_obs"}, "action", "rewards", "dones", "terminations", "truncations"};
`obs` and `next_obs` may also be beside the others, and names may be singular. An episode ends where a transition is
terminated, truncated or done, or where the recording does. A frame is a success if the reward for it is at least 0.5.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab import unpickle
from rewardlab.data import Episode, EpisodeWriter
from rewardlab.data.atomic import replacing
from rewardlab.data.episodes import Array, Columns, as_action
from rewardlab.data.images import to_uint8_hwc
from rewardlab.errors import DataError
from rewardlab.input_files import open_file
from rewardlab.keys import IMAGES, STATE
from rewardlab.observations import IMAGE_PART, is_image, read_parts, to_numpy

_NAMES = {
    "action": ("action", "actions"),
    "reward": ("rewards", "reward"),
    "done": ("dones", "done"),
    "terminated": ("terminations", "terminated"),
    "truncated": ("truncations", "truncated"),
}


def convert_recording(path: str | Path, destination: str | Path | None = None, format: str = "safetensors") -> Path:
    """Write the episodes of a recording to a new directory, by default `collected_data` beside the file."""
    path = Path(path)
    destination = path.parent / "collected_data" if destination is None else Path(destination)
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise DataError(f"{destination} is not empty; move it away, or choose a directory that does not exist yet")
    if not path.is_file():
        raise DataError(f"there is no recording {path}")
    with open_file(path) as file:
        content = unpickle.load(file, str(path))
    if not isinstance(content, list) or not content:
        raise DataError(f"{path}: found {_describe(content)}, expected a list of transitions")
    with replacing(destination) as temporary:
        writer = EpisodeWriter(temporary, format, durable=False)
        for episode in read_recording(content, str(path)):
            writer.write(episode)
    return destination


def read_recording(transitions: list[Any], name: str) -> Iterator[Episode]:
    """Yield the episodes of a recording; `name` is what errors call it."""
    running: list[Columns] = []
    for number, transition in enumerate(transitions):
        try:
            before, after, ended = _read(transition)
        except DataError as error:
            raise DataError(f"{name}, transition {number}: {error}") from error
        running += [after] if running else [before, after]
        if ended or number == len(transitions) - 1:
            yield _join(running, f"{name}, transition {number}")
            running = []


def _read(transition: Any) -> tuple[Columns, Columns, bool]:
    """Return the row before the action, as after a reset, the row after it, and whether the episode ends with it."""
    if not isinstance(transition, Mapping):
        raise DataError(f"found {_describe(transition)}, expected a dictionary")
    pair = transition.get("transitions", transition)
    if not isinstance(pair, Mapping) or "obs" not in pair or "next_obs" not in pair:
        raise DataError(f"no 'obs' and 'next_obs'; found {', '.join(sorted(map(str, transition)))}")
    action = as_action(np.atleast_1d(np.squeeze(to_numpy(_find(transition, "action")))))
    reward = np.float32(np.sum(to_numpy(_find(transition, "reward"))))
    flags = {name: bool(np.any(to_numpy(_find(transition, name, 0)))) for name in ("done", "terminated", "truncated")}
    terminated = flags["terminated"] or (flags["done"] and not flags["truncated"])
    arrival: Columns = {
        "action": action,
        "reward": np.asarray(reward),
        "env_reward": np.asarray(reward),
        "success": np.asarray(reward >= 0.5),
        "terminated": np.asarray(terminated),
        "truncated": np.asarray(flags["truncated"] and not terminated),
    }
    start = {name: np.zeros_like(value) for name, value in arrival.items()}
    return {**_observation(pair["obs"]), **start}, {**_observation(pair["next_obs"]), **arrival}, any(flags.values())


def _find(transition: Mapping[str, Any], name: str, default: Any = None) -> Any:
    found = next((transition[key] for key in _NAMES[name] if key in transition), default)
    if found is None:
        raise DataError(f"no '{_NAMES[name][0]}'; found {', '.join(sorted(map(str, transition)))}")
    return found


def _observation(observation: Any) -> Columns:
    columns: Columns = {}
    for part, value in read_parts(observation, batch_axes=0).items():
        array = to_numpy(value)
        if part.startswith(IMAGE_PART) or is_image(array.shape):
            columns[IMAGES + part.removeprefix(IMAGE_PART)] = to_uint8_hwc(array, part)
        elif f"observation.{part}" == STATE:
            columns[STATE] = array.reshape(-1).astype(np.float32)
    return columns


def _join(rows: list[Columns], name: str) -> Episode:
    try:
        columns: dict[str, Array] = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        return Episode.from_columns(columns, policy="recorded")
    except (KeyError, ValueError, DataError) as error:
        raise DataError(f"{name}: the episode that ends here is not uniform ({error})") from error


def _describe(value: Any) -> str:
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (list, dict)) else "")
