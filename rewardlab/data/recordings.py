"""Recordings of robots in one pickle (`data.pkl`), a list of transitions, as episodes.

Three forms are read, whose names may be mixed:

    SERL, HIL-SERL  {"observations", "next_observations", "actions", "rewards", "masks", "dones", "infos"}
    RLinf           {"transitions": {"obs", "next_obs"}, "action", "rewards", "dones", "terminations", "truncations"}
    flat            {"obs", "next_obs", "action", "reward", "done", "terminated", "truncated"}

An episode ends where a transition is terminated, truncated or done, where the next one begins in another state than it
ended in, and where the recording does. A frame is a success if the infos say so; without infos, if the reward for it is
at least 0.5. An episode with a transition that cannot be read is damaged as a whole: the ones around it are not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rewardlab import unpickle
from rewardlab.data.episodes import UNKNOWN, Columns, Episode, as_action
from rewardlab.data.images import to_uint8_hwc
from rewardlab.errors import DataError
from rewardlab.input_files import open_file
from rewardlab.keys import IMAGES, INTERVENTION, STATE, SUCCESS_KEYS
from rewardlab.limits import excerpt
from rewardlab.observations import IMAGE_PART, is_image, read_parts, to_numpy

_NAMES = {
    "before": ("obs", "observations", "observation"),
    "after": ("next_obs", "next_observations", "next_observation"),
    "action": ("action", "actions"),
    "reward": ("rewards", "reward"),
    "done": ("dones", "done"),
    "terminated": ("terminations", "terminated"),
    "truncated": ("truncations", "truncated"),
    "mask": ("masks", "mask"),
    "infos": ("infos", "info"),
}
# What NumPy and our own checks raise for values of transitions, which may be anything.
UNREADABLE = (DataError, ValueError, TypeError, KeyError, OverflowError)
_PLACES = ("before", "after")


@dataclass(frozen=True)
class RecordedEpisode:
    """An episode of a recording, or why it cannot be used."""

    first: int  # numbers of its transitions in the recording
    last: int
    episode: Episode | None
    problem: str = ""
    gap: bool = False  # it ends because the next transition begins in another state

    @property
    def place(self) -> str:
        return f"transition {self.first}" if self.first == self.last else f"transitions {self.first} to {self.last}"


class _Step(NamedTuple):
    before: Columns  # the row before the action, as after a reset
    after: Columns
    ended: bool
    facts: dict[str, str]


def read_recording(path: str | Path) -> Iterator[RecordedEpisode]:
    """Yield the episodes of a recording one after the other; a file that is cut short ends with a damaged one."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no recording {path}")
    running = _Running(0)
    number = -1
    with open_file(path) as file:
        try:
            for number, transition in enumerate(unpickle.read_list(file, str(path), "transitions")):
                step = running.read(transition)
                if step is not None and running.leaves_a_gap(step):
                    yield replace(running.finish(number - 1), gap=True)
                    running = _Running(number)
                if running.add(step, transition):
                    yield running.finish(number)
                    running = _Running(number + 1)
        except DataError as error:
            if number < 0:
                raise
            yield RecordedEpisode(running.first, number + 1, None, f"the file is cut short here: {error}")
            return
    if number < 0:
        raise DataError(f"{path}: found a list of 0, expected a list of transitions")
    if running.first <= number:
        yield running.finish(number)


class _Running:
    """The episode that is being read."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._rows: list[Columns] = []
        self._facts: dict[str, str] = {}
        self._problem = ""
        self._number = first - 1

    def read(self, transition: Any) -> _Step | None:
        self._number += 1
        try:
            return _read(transition)
        except UNREADABLE as error:
            self._problem = self._problem or f"transition {self._number}: {excerpt(error)}"
            return None

    def leaves_a_gap(self, step: _Step) -> bool:
        if not self._rows or self._problem or STATE not in step.before or STATE not in self._rows[-1]:
            return False
        return not np.array_equal(self._rows[-1][STATE], step.before[STATE], equal_nan=True)

    def add(self, step: _Step | None, transition: Any) -> bool:
        """Add a step and return whether the episode ends with it."""
        if step is None:
            return _ends(transition)
        self._rows += [step.after] if self._rows else [step.before, step.after]
        self._facts = step.facts
        return step.ended

    def finish(self, last: int) -> RecordedEpisode:
        if self._problem:
            return RecordedEpisode(self.first, last, None, self._problem)
        try:
            for row in self._rows[1:]:
                if row.keys() != self._rows[0].keys():
                    odd = ", ".join(sorted(row.keys() ^ self._rows[0].keys()))
                    raise DataError(f"{odd} is in some of its transitions only")
            columns: Columns = {key: np.stack([row[key] for row in self._rows]) for key in self._rows[0]}
            episode = Episode.from_columns(columns, **self._facts)  # type: ignore[arg-type]
        except UNREADABLE as error:
            problem = f"transition {last}: the episode that ends here is not uniform ({excerpt(error)})"
            return RecordedEpisode(self.first, last, None, problem)
        return RecordedEpisode(self.first, last, episode)


def _read(transition: Any) -> _Step:
    before, after = read_observations(transition)
    action = as_action(np.atleast_1d(np.squeeze(to_numpy(_require(transition, "action")))))
    reward = np.float32(np.sum(to_numpy(_require(transition, "reward"))))
    infos = _find(transition, "infos")
    infos = infos if isinstance(infos, Mapping) else {}
    terminated, truncated = _flags(transition)
    said = next((infos[key] for key in SUCCESS_KEYS if key in infos), None)
    arrival: Columns = {
        "action": action,
        "reward": np.asarray(reward),
        "env_reward": np.asarray(reward),
        "success": np.asarray(reward >= 0.5 if said is None else _is_set(said)),
        "terminated": np.asarray(terminated),
        "truncated": np.asarray(truncated),
    }
    start = {name: np.zeros_like(value) for name, value in arrival.items()}
    start["success"] = np.asarray(_is_set(infos.get("success_before", False)))
    if INTERVENTION in infos:
        arrival[INTERVENTION], start[INTERVENTION] = np.asarray(_is_set(infos[INTERVENTION])), np.asarray(False)
    facts = {name: str(infos.get(name, default)) for name, default in (("task", UNKNOWN), ("policy", "recorded"))}
    return _Step({**before, **start}, {**after, **arrival}, terminated or truncated, facts)


def read_observations(transition: Any) -> tuple[Columns, Columns]:
    """Return the pictures and the state of a transition before and after its step, as columns without a time axis."""
    if not isinstance(transition, Mapping):
        raise DataError(f"found {_describe(transition)}, expected a dictionary")
    pair = transition.get("transitions", transition)
    if not isinstance(pair, Mapping) or any(_find(pair, place) is None for place in _PLACES):
        raise DataError(f"no 'obs' and 'next_obs'; found {', '.join(sorted(map(str, transition)))}")
    before, after = (_observation(_find(pair, place)) for place in _PLACES)
    return before, after


def _flags(transition: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a transition is terminated, and whether it is truncated."""
    done, terminated, truncated = (_is_set(_find(transition, name, 0)) for name in ("done", "terminated", "truncated"))
    mask = _find(transition, "mask")
    goes_on = truncated or (mask is not None and _is_set(mask))  # the value of what follows counts
    terminated = terminated or (done and not goes_on)
    return terminated, (done or truncated) and not terminated


def _ends(transition: Any) -> bool:
    try:
        return isinstance(transition, Mapping) and any(_flags(transition))
    except UNREADABLE:
        return False


def _is_set(value: Any) -> bool:
    return bool(np.any(to_numpy(value)))


def _find(transition: Mapping[str, Any], name: str, default: Any = None) -> Any:
    return next((transition[key] for key in _NAMES[name] if key in transition), default)


def _require(transition: Mapping[str, Any], name: str) -> Any:
    found = _find(transition, name)
    if found is None:
        raise DataError(f"no '{_NAMES[name][0]}'; found {', '.join(sorted(map(str, transition)))}")
    return found


def _observation(observation: Any) -> Columns:
    columns: Columns = {}
    for part, value in read_parts(observation, batch_axes=0).items():
        array = to_numpy(value)
        if array.ndim == 4 and len(array) == 1:  # SERL stacks the frames of an observation, by default one
            array = array[0]
        if part.startswith(IMAGE_PART) or is_image(array.shape):
            columns[IMAGES + part.removeprefix(IMAGE_PART)] = to_uint8_hwc(array, part)
        elif f"observation.{part}" == STATE:
            columns[STATE] = array.reshape(-1).astype(np.float32)
    return columns


def _describe(value: Any) -> str:
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (list, dict)) else "")
