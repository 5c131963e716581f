"""What meta/info.json of a LeRobotDataset says: version, rate, features, and where its files are."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardlab.data.lerobot_layout import INFO
from rewardlab.errors import DataError
from rewardlab.input_files import read_file
from rewardlab.limits import excerpt, listed
from rewardlab.registry import nearest_name

VERSIONS = ("v2.0", "v2.1", "v3.0")
CAMERA_PREFIXES = ("observation.images.", "observation.")
_PLACE = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")


@dataclass(frozen=True)
class Feature:
    """A column, or the pictures of a camera."""

    dtype: str
    shape: tuple[int, ...]
    is_depth: bool = False

    @property
    def is_number(self) -> bool:
        return self.dtype.startswith(("float", "int", "uint", "bool"))

    @property
    def is_camera(self) -> bool:
        return self.dtype in ("image", "video") and not self.is_depth


@dataclass(frozen=True)
class LeRobotInfo:
    """A checked meta/info.json."""

    root: Path
    version: str
    fps: float
    robot_type: str
    features: dict[str, Feature]
    chunks_size: int
    templates: dict[str, str]

    @classmethod
    def read(cls, root: Path) -> "LeRobotInfo":
        path = root / INFO
        values = read_json(path)
        version = values.get("codebase_version")
        if version not in VERSIONS:
            raise DataError(
                f"{path}: codebase_version is {excerpt(repr(version))}; this rewardlab reads {', '.join(VERSIONS)}. "
                "lerobot has scripts that convert older versions"
            )
        fps, chunks = values.get("fps"), values.get("chunks_size", 1000)
        if not isinstance(fps, (int, float)) or isinstance(fps, bool) or not 0 < fps <= 10_000:
            raise DataError(f"{path}: fps is {excerpt(repr(fps))}; expected frames a second, above 0")
        if not isinstance(chunks, int) or chunks < 1:
            raise DataError(f"{path}: chunks_size is {excerpt(repr(chunks))}; expected a number of files, above 0")
        templates = {name: values[name] for name in ("data_path", "video_path") if values.get(name) is not None}
        for name, template in templates.items():
            if not isinstance(template, str):
                raise DataError(f"{path}: {name} is {excerpt(repr(template))}; expected a path")
        features = _read_features(values.get("features"), path)
        return cls(root, version, float(fps), str(values.get("robot_type") or ""), features, chunks, templates)

    def cameras(self, wanted: tuple[str, ...]) -> dict[str, str]:
        """Return the keys of the cameras' features, by camera; `wanted` are cameras or keys, all if empty."""
        keys = [key for key, feature in self.features.items() if feature.is_camera]
        names = camera_names(keys)
        for name in wanted:
            if name in names or name in keys:
                continue
            if name in self.features:
                feature = self.features[name]
                kind = "depth" if feature.is_depth else f"{feature.dtype} {list(feature.shape)}"
                raise DataError(f"--camera {name}: is no camera ({kind}). The cameras are {listed(names) or 'none'}")
            near = nearest_name(name, [*names, *keys])
            hint = f" Did you mean '{near}'?" if near else ""
            raise DataError(f"--camera {name}: no such camera.{hint} The cameras are {listed(names) or 'none'}")
        return {name: key for name, key in names.items() if not wanted or {name, key} & set(wanted)}

    def file(self, template: str, **numbers: int | str) -> Path:
        """Return the path of a file of the data set, which is inside its directory."""
        pattern = self.templates.get(template)
        if pattern is None:
            raise DataError(f"{self.root / INFO}: no {template}, and there are files to be found by it")
        return self.inside(_fill(pattern, numbers, f"{self.root / INFO}: {template}"), f"{INFO}: {template}")

    def inside(self, relative: str, said_by: str) -> Path:
        """Return the path of a file below the root; raise for one that leaves it, by its name or as a link."""
        path = self.root / relative
        normal = os.path.normpath(relative)
        if normal.startswith("..") or Path(relative).is_absolute() or not _is_allowed(self.root, path):
            raise DataError(f"{said_by} leads to {excerpt(relative)}, which is outside of {self.root}: refused")
        return path


def camera_names(keys: list[str]) -> dict[str, str]:
    """Return the keys by the names that cameras get: without what LeRobot puts in front, where that is unique."""
    short = {key: _without_prefix(key) for key in keys}
    unique = {key: name if list(short.values()).count(name) == 1 else key for key, name in short.items()}
    return {name: key for key, name in unique.items()}


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    try:
        values = json.loads(read_file(path))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; a LeRobotDataset has it") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({excerpt(error)})") from error
    if not isinstance(values, dict):
        raise DataError(f"{path} has a {type(values).__name__}; expected an object with keys")
    return values


def _read_features(values: Any, path: Path) -> dict[str, Feature]:
    if not isinstance(values, dict) or not values:
        raise DataError(f"{path}: no features; found {', '.join(map(excerpt, values)) if values else 'nothing'}")
    features = {}
    for key, feature in values.items():
        dtype, shape = (feature.get("dtype"), feature.get("shape")) if isinstance(feature, dict) else (None, None)
        if not isinstance(dtype, str):
            raise DataError(f"{path}: feature '{excerpt(key)}' has no dtype")
        sides = shape if isinstance(shape, list) and all(isinstance(side, int) for side in shape) else []
        features[key] = Feature(dtype, tuple(sides), _is_depth(feature))
    return features


def _is_depth(feature: Mapping[str, Any]) -> bool:
    places = [feature.get("info"), feature.get("video_info")]
    marks = ("is_depth_map", "video.is_depth_map")
    return any(bool(place.get(mark)) for place in places if isinstance(place, dict) for mark in marks)


def _without_prefix(key: str) -> str:
    prefix = next((prefix for prefix in CAMERA_PREFIXES if key.startswith(prefix) and key != prefix), "")
    return key.removeprefix(prefix)


def _fill(pattern: str, numbers: Mapping[str, int | str], said_by: str) -> str:
    """Fill in a template. Not by `str.format`, with which a file from others could read attributes of objects."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in numbers:
            raise DataError(f"{said_by} has '{{{match[1]}}}'; expected {', '.join(numbers)}")
        return str(numbers[match[1]]).rjust(int(match[2] or 0), "0")

    return _PLACE.sub(value, pattern)


def _is_allowed(root: Path, path: Path) -> bool:
    """Return whether a file is really below the root, or where the cache of the Hugging Face Hub links it to."""
    real, below = path.resolve(), root.resolve()
    if real.is_relative_to(below):
        return True
    return below.parent.name == "snapshots" and real.is_relative_to(below.parent.parent / "blobs")
