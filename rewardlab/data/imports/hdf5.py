"""HDF5 files as robomimic and LIBERO write them: `data/demo_0/obs/<camera>_image`, `actions`, `rewards`, `dones`.

Robomimic has in row t the observation *before* action t, and the reward after it; `next_obs`, if it is there, has the
last frame. LIBERO, though its files look alike, has the observation *after* the action.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rewardlab.data.episodes import UNKNOWN, Array, Columns, Episode, as_action
from rewardlab.data.imports.hdf5_file import SUFFIXES, child, is_hdf5, numbers, opened, subgroup
from rewardlab.data.imports.picture_size import CameraSizes
from rewardlab.data.imports.source import ImportedEpisode, ImportOptions, Source
from rewardlab.data.imports.transition_labels import (
    NEXT,
    SAME,
    FrameLabels,
    choose_align,
    label_frames,
    no_labels,
)
from rewardlab.data.transition_rows import arrivals
from rewardlab.errors import DataError
from rewardlab.frame_sizes import resize_picture
from rewardlab.keys import FRAME_ROWS, IMAGES, UNSURE
from rewardlab.limits import check_file_size, check_pixels, excerpt, listed
from rewardlab.registry import nearest_name

_PICTURES = re.compile(r"^(.+)_(?:image|rgb)$")
_DEFAULT_HZ = 20.0  # robosuite's
# LIBERO's last row alone has a reward, and its demonstrations end when success has lasted for 10 steps.
_HELD_STEPS = 10
_BLOCK = 64  # pictures that are read at once
_ADD_PICTURES = "; robomimic's dataset_states_to_obs.py adds observations to a file of states"


class _Demo(NamedTuple):
    path: Path
    name: str


class _FileFacts(NamedTuple):
    """What the attributes of a file say of all its episodes."""

    is_libero: bool
    task: str
    hz: float


class Hdf5Source(Source):
    kind = "HDF5 file"
    looks_for = "an HDF5 file has data/demo_0/obs (robomimic, LIBERO)"
    reads = frozenset({"every", "align", "unsure_seconds", "cameras"})

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if path.is_dir():
            return any(map(is_hdf5, _files_in(path)))
        return is_hdf5(path)

    def __init__(self, path: Path, options: ImportOptions) -> None:
        super().__init__(path, options)
        self._options = options
        self._sizes = CameraSizes(options.size)
        self._facts: dict[Path, _FileFacts] = {}
        self._demos: list[_Demo] = []
        self._rewarded = False
        self._several = path.is_dir()
        choose_align(options.align, SAME)  # a wrong word is said before anything is read
        for file in _files_in(path) if self._several else [path]:
            try:
                self._list(file)
            except DataError as error:
                if not self._several:
                    raise
                self.left_out.append((file.name, str(error)))
        self._remark()

    def __len__(self) -> int:
        return len(self._demos)

    def episodes(self, skip: frozenset[int]) -> Iterator[ImportedEpisode]:
        for number, demo in enumerate(self._demos):
            if number not in skip:
                name = f"{demo.path.name}: {demo.name}" if self._several else demo.name
                yield self._read(number, name, demo)

    def files(self) -> list[Path]:
        return _files_in(self.path) if self._several else [self.path]

    def _list(self, path: Path) -> None:
        with opened(path) as file:
            data = subgroup(file, "data")
            demos = sorted((name for name in data if name.startswith("demo")), key=_number)
            if not demos:
                raise DataError(f"no 'demo_0' in /data; it has {listed(data) or 'nothing'}")
            self._facts[path] = _file_facts(data)
            if "mask" in file:
                sizes = (f"{name} ({len(numbers_of)})" for name, numbers_of in subgroup(file, "mask").items())
                self.remarks.append(f"{path.name} names parts of itself: {listed(sizes)}; all episodes are imported")
            self._rewarded = self._rewarded or any(_has_reward(data, name, path) for name in demos)
            first = data[demos[0]]
            if self._options.cameras and "obs" in first:  # a wrong name is said before anything is read
                _choose_cameras(subgroup(first, "obs"), self._options.cameras)
        self._demos += [_Demo(path, name) for name in demos]

    def _remark(self) -> None:
        if not self._rewarded:
            self.remarks.append("NO LABELS: no reward in it is other than 0; all frames are unsure")
        if any(facts.is_libero for facts in self._facts.values()):
            self.remarks.append("LIBERO stores its pictures upside down; they are imported as they are")
            self.remarks.append("LIBERO: observations are those after the action; the last one alone is labelled")

    def _read(self, number: int, name: str, demo: _Demo) -> ImportedEpisode:
        try:
            with opened(demo.path) as file:
                return self._read_group(number, name, subgroup(file["data"], demo.name), demo.path)
        except DataError as error:
            return ImportedEpisode(number, name, None, str(error))

    def _read_group(self, number: int, name: str, group: Any, path: Path) -> ImportedEpisode:
        facts = self._facts[path]
        observations = subgroup(group, "obs", _ADD_PICTURES)
        actions = numbers(group, "actions", path)
        steps = len(actions)
        align = choose_align(self._options.align, SAME if facts.is_libero else NEXT)
        # The frame after the last action, which `next_obs` has: a picture of the success that ended the episode.
        last = subgroup(group, "next_obs") if align == NEXT and "next_obs" in group else None
        labels = self._label(group, path, steps, align, facts, extended=last is not None)
        rows = len(labels.success)
        rewards = _steps_of(group, "rewards", path, steps)
        columns: Columns = {"action": _at_arrival(as_action(actions), rows, SAME if facts.is_libero else NEXT)}
        columns["action"][0] = 0
        if rewards is not None:
            columns["reward"] = _at_arrival(rewards.astype(np.float32), rows, align)
            columns["env_reward"] = columns["reward"].copy()
        columns |= _ends(_steps_of(group, "dones", path, steps), labels.success, align)
        columns |= {"success": labels.success} | ({UNSURE: labels.unsure} if labels.unsure.any() else {})
        columns |= self._vectors(observations, last, path, steps)
        columns |= self._pictures(observations, last, path, steps)
        task = self._options.task or facts.task
        episode = Episode.from_columns(columns, task=task, policy="recorded", success=labels.success_after)
        return ImportedEpisode(number, name, episode, notes=labels.notes)

    def _label(
        self, group: Any, path: Path, steps: int, align: str, facts: _FileFacts, *, extended: bool
    ) -> FrameLabels:
        rewards = _steps_of(group, "rewards", path, steps)
        rows = steps + extended
        if rewards is None:
            near = nearest_name("rewards", group)
            return no_labels(rows, "there are no 'rewards'" + (f"; did you mean '{near}'?" if near else ""))
        if not self._rewarded:
            return no_labels(rows, "rewards are 0 in the whole source")
        seconds = self._options.unsure_seconds
        band = (_HELD_STEPS if facts.is_libero else 0) if seconds is None else round(seconds * facts.hz)
        verdicts = np.append(rewards >= 0.5, np.zeros(int(extended), bool))
        labels = label_frames(verdicts, align, band, "rewards")
        if between := int(((rewards != 0) & (rewards != 1)).sum()):
            labels.notes["frames whose reward is neither 0 nor 1: from 0.5 on it counts as success"] = between
        return labels

    def _vectors(self, observations: Any, last: Any, path: Path, steps: int) -> Columns:
        columns: Columns = {}
        for name in observations:
            dataset = child(observations, name)
            if getattr(dataset, "ndim", 0) not in (1, 2) or dataset.dtype.kind not in "biuf":
                continue
            values = _of_length(numbers(observations, name, path), steps, name)
            if last is not None:
                values = np.concatenate([values, numbers(last, name, path)[-1:]])
            columns[f"observation.{name}"] = values.astype(np.float32)
        return columns

    def _pictures(self, observations: Any, last: Any, path: Path, steps: int) -> Columns:
        cameras = _choose_cameras(observations, self._options.cameras)
        rows = np.arange(steps + (last is not None))
        chosen = rows
        if self._options.every > 1 and cameras:
            chosen = np.union1d(rows[:: self._options.every], rows[-1:])
        columns: Columns = {FRAME_ROWS: chosen} if len(chosen) < len(rows) else {}
        for camera, key in cameras.items():
            _of_length(child(observations, key), steps, key)
            places = [(observations, int(row)) if row < steps else (last, steps - 1) for row in chosen]
            columns[IMAGES + camera] = self._frames(camera, key, places, path)
        return columns

    def _frames(self, camera: str, key: str, places: list[tuple[Any, int]], path: Path) -> Array:
        """Return the pictures at (group, row); rows of one group are read in blocks."""
        dataset = child(places[0][0], key)
        recorded = (int(dataset.shape[1]), int(dataset.shape[2]))
        check_pixels(*recorded, f"{path}: {dataset.name}")
        self.remarks += self._sizes.check(camera, recorded, dataset.name)
        size = self._options.size.of(recorded)
        check_file_size(len(places) * size[0] * size[1] * 3, f"{path}: the pictures of {dataset.name}")
        frames = np.empty((len(places), *size, 3), np.uint8)
        block, begin, of = np.empty(0), -1, None
        for place, (group, row) in enumerate(places):
            if group is not of or not begin <= row < begin + len(block):
                block, begin, of = child(group, key)[row : row + _BLOCK], row, group
            frames[place] = resize_picture(np.ascontiguousarray(block[row - begin]), size)
        return frames


def _files_in(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES and path.is_file())


def _number(name: str) -> tuple[int, str]:
    digits = re.search(r"(\d{1,9})$", name)
    return (int(digits[1]) if digits else -1, name)


def _file_facts(data: Any) -> _FileFacts:
    env = _json_attribute(data, "env_args")
    settings = env.get("env_kwargs")
    hz = settings.get("control_freq") if isinstance(settings, dict) else None
    language = _json_attribute(data, "problem_info").get("language_instruction")
    names = (language, env.get("env_name"), data.attrs.get("env_name"))
    task = next((str(name) for name in names if name), UNKNOWN)
    is_libero = "bddl_file_name" in data.attrs or "problem_info" in data.attrs
    good = isinstance(hz, (int, float)) and 0 < hz < 10_000
    return _FileFacts(is_libero, excerpt(task), float(hz) if good else _DEFAULT_HZ)  # type: ignore[arg-type]


def _json_attribute(group: Any, name: str) -> dict[str, Any]:
    """Return the object in an attribute with JSON; an empty one for anything else."""
    try:
        found = json.loads(group.attrs.get(name, "{}"))
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _has_reward(data: Any, name: str, path: Path) -> bool:
    try:
        return bool(np.any(numbers(subgroup(data, name), "rewards", path) != 0))
    except (DataError, OSError, KeyError, RuntimeError, ValueError):  # said of this episode, when it is read
        return False


def _steps_of(group: Any, name: str, path: Path, steps: int) -> Array | None:
    """Return a dataset with one number a step; None if there is none."""
    if name not in group:
        return None
    return _of_length(numbers(group, name, path), steps, name).reshape(steps, -1)[:, 0]


def _of_length(values: Any, steps: int, name: str) -> Any:
    found = values.shape[0] if getattr(values, "shape", None) else 0
    if found != steps:
        raise DataError(f"'{name}' has {found} rows, 'actions' has {steps}")
    return values


def _at_arrival(values: Array, rows: int, align: str) -> Array:
    """Return the numbers of steps in the rows of frames."""
    padded = np.concatenate([values, np.zeros((rows - len(values), *values.shape[1:]), values.dtype)])
    return arrivals(padded) if align == NEXT else padded


def _ends(dones: Array | None, success: Array, align: str) -> Columns:
    done = np.zeros(len(success), bool)
    if dones is not None:
        done = _at_arrival(dones.astype(bool), len(success), align)
    truncated = done & ~success
    terminated = done & success
    truncated[-1] |= not terminated[-1]
    return {"terminated": terminated, "truncated": truncated}


def _choose_cameras(observations: Any, wanted: tuple[str, ...]) -> dict[str, str]:
    """Return the keys of the cameras' pictures by camera."""
    keys = [name for name in observations if _is_camera(child(observations, name))]
    short = {key: match[1] if (match := _PICTURES.match(key)) else key for key in keys}
    cameras = {name if list(short.values()).count(name) == 1 else key: key for key, name in short.items()}
    if not cameras:
        raise DataError(f"no pictures (uint8 [steps, height, width, 3]) in {observations.name}; it has "
                        f"{listed(observations) or 'nothing'}{_ADD_PICTURES}")  # fmt: skip
    for name in wanted:
        if name not in cameras and name not in keys:
            near = nearest_name(name, [*cameras, *keys])
            hint = f" Did you mean '{near}'?" if near else ""
            raise DataError(f"--camera {name}: no such camera in {observations.name}.{hint} It has {listed(cameras)}")
    return {name: key for name, key in cameras.items() if not wanted or {name, key} & set(wanted)}


def _is_camera(dataset: Any) -> bool:
    return getattr(dataset, "ndim", 0) == 4 and dataset.dtype == np.uint8 and dataset.shape[-1] == 3
