"""Where each episode of a LeRobotDataset is: rows of which parquet file, from when to when of which videos."""

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewardlab.data.episodes import UNKNOWN
from rewardlab.data.imports.lerobot_info import LeRobotInfo
from rewardlab.data.imports.parquet_rows import read_columns
from rewardlab.data.lerobot_layout import EPISODES
from rewardlab.errors import DataError
from rewardlab.input_files import read_file
from rewardlab.limits import excerpt, listed

EPISODES_V2 = "meta/episodes.jsonl"


@dataclass(frozen=True)
class VideoSegment:
    """The part of a video that is one episode."""

    path: Path
    start: float  # seconds
    stop: float | None  # None: at the end of the video


@dataclass(frozen=True)
class EpisodeEntry:
    """An episode as the metadata lists it."""

    number: int
    length: int
    task: str
    data: Path
    videos: dict[str, VideoSegment] = field(default_factory=dict)  # by camera


def list_episodes(info: LeRobotInfo, cameras: dict[str, str]) -> list[EpisodeEntry]:
    """Return the episodes in order, with the videos of the given cameras (keys by name)."""
    videos = {name: key for name, key in cameras.items() if info.features[key].dtype == "video"}
    entries = _list_v3(info, videos) if info.version.startswith("v3") else _list_v2(info, videos)
    entries.sort(key=lambda entry: entry.number)
    for entry, after in itertools.pairwise(entries):
        if entry.number == after.number:
            raise DataError(f"{info.root}: its metadata list episode {entry.number} twice")
    return entries


def _list_v3(info: LeRobotInfo, videos: dict[str, str]) -> list[EpisodeEntry]:
    """Many episodes in one parquet file and in one video, listed in tables."""
    paths = sorted((info.root / EPISODES).glob("*/*.parquet"))
    if not paths:
        raise DataError(f"{info.root / EPISODES} has no parquet files; a LeRobotDataset v3.0 lists its episodes there")
    wanted = ["episode_index", "length", "tasks", "data/chunk_index", "data/file_index"]
    parts = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
    wanted += [f"videos/{key}/{part}" for key in videos.values() for part in parts]
    entries = []
    for path in paths:
        info.inside(path.relative_to(info.root).as_posix(), EPISODES)
        table = read_columns(path, wanted)
        missing = [name for name in wanted if name not in table.column_names and name != "tasks"]
        if missing:
            raise DataError(f"{path}: no column '{missing[0]}'; found {listed(table.column_names)}")
        entries += [_entry_v3(row, info, videos, path) for row in table.to_pylist()]
    return entries


def _entry_v3(row: dict[str, Any], info: LeRobotInfo, videos: dict[str, str], path: Path) -> EpisodeEntry:
    number, length = _count(row, "episode_index", path), _count(row, "length", path)
    place = {part: _count(row, f"data/{part}", path) for part in ("chunk_index", "file_index")}
    segments = {}
    for camera, key in videos.items():
        file = {part: _count(row, f"videos/{key}/{part}", path) for part in ("chunk_index", "file_index")}
        start, stop = (_seconds(row, f"videos/{key}/{part}_timestamp", path) for part in ("from", "to"))
        segments[camera] = VideoSegment(info.file("video_path", video_key=key, **file), start, stop)
    return EpisodeEntry(number, length, _task(row), info.file("data_path", **place), segments)


def _list_v2(info: LeRobotInfo, videos: dict[str, str]) -> list[EpisodeEntry]:
    """One parquet file and one video an episode, listed in lines of JSON."""
    path = info.inside(EPISODES_V2, EPISODES_V2)
    entries = []
    for row in read_lines(path):
        number, length = _count(row, "episode_index", path), _count(row, "length", path)
        place = {"episode_chunk": number // info.chunks_size, "episode_index": number}
        segments = {
            camera: VideoSegment(info.file("video_path", video_key=key, **place), 0.0, None)
            for camera, key in videos.items()
        }
        entries.append(EpisodeEntry(number, length, _task(row), info.file("data_path", **place), segments))
    if not entries:
        raise DataError(f"{path} lists no episodes")
    return entries


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a file with one a line."""
    try:
        rows = [json.loads(line) for line in read_file(path).splitlines() if line.strip()]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; a LeRobotDataset v2 lists its episodes there") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON, one object a line ({excerpt(error)})") from error
    if odd := next((row for row in rows if not isinstance(row, dict)), None):
        raise DataError(f"{path} has a line with {excerpt(repr(odd))}; expected an object")
    return rows


def _task(row: dict[str, Any]) -> str:
    tasks = row.get("tasks")
    return str(tasks[0]) if isinstance(tasks, list) and tasks else UNKNOWN


def _count(row: dict[str, Any], name: str, path: Path) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**40:
        raise DataError(f"{path}: {name} is {excerpt(repr(value))}; expected a whole number")
    return value


def _seconds(row: dict[str, Any], name: str, path: Path) -> float:
    value = row.get(name)
    if not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise DataError(f"{path}: {name} is {excerpt(repr(value))}; expected seconds")
    return float(value)
