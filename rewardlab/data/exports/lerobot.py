"""Episodes as a LeRobotDataset v3.0, written without the lerobot package.

A row has frame t, its label (`success`, `unsure`), the action taken in it and, in `next.*`, what came of that action.
The last frame of an episode has no action; see `transition_rows.departures`.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.data.episodes import Array, Columns, Episode, check_episode
from rewardlab.data.exports.lerobot_pictures import VideoWriter, encode_png
from rewardlab.data.exports.lerobot_stats import Stats, merge_stats, number_stats, picture_stats
from rewardlab.data.lerobot_layout import (
    DATA_PATH,
    DONE,
    EPISODES,
    FACTS,
    INDEX_FEATURES,
    INFO,
    OF_TRANSITIONS,
    STATS,
    SUCCESS,
    TASKS,
    TRUNCATED,
    VIDEO_PATH,
)
from rewardlab.data.packages import need
from rewardlab.data.transition_rows import departures
from rewardlab.errors import DataError
from rewardlab.keys import IMAGES, UNSURE

FILES_PER_CHUNK, DATA_MEGABYTES, VIDEO_MEGABYTES = 1000, 100, 200
DEFAULT_FPS = 10
_EPISODES_AT_ONCE = 100  # rows of the table of episodes that are kept in memory


class LeRobotWriter:
    """Writes the episodes, at least one, of a new data set; it is complete after `close`.

    `remarks` are what had no place in it, with the number of episodes that it was in.
    """

    def __init__(self, directory: Path, *, fps: int = DEFAULT_FPS, video: bool = False) -> None:
        self._root, self._fps, self._video = directory, fps, video
        self._parquet = need("pyarrow.parquet", "writing a LeRobotDataset")
        self.remarks: Counter[str] = Counter()
        self._forms: dict[str, tuple[str, tuple[int, ...]]] = {}  # of the features: dtype and shape of a row
        self._tasks: dict[str, int] = {}
        self._episodes = self._frames = 0
        self._data: Any = None
        self._data_file = -1
        self._data_path = directory
        self._table: Any = None
        self._waiting: list[dict[str, Any]] = []
        self._totals: list[dict[str, Stats]] = []
        self._facts: list[str] = []
        self._cameras: dict[str, VideoWriter] = {}

    def write(self, episode: Episode) -> None:
        check_episode(episode)
        columns = self._check_columns(self._convert(episode))
        length = len(episode)
        task = self._tasks.setdefault(episode.facts.task, len(self._tasks))
        counted = np.arange(length)
        columns |= {
            "timestamp": (counted / self._fps).astype(np.float32),
            "frame_index": counted,
            "episode_index": np.full(length, self._episodes),
            "index": self._frames + counted,
            "task_index": np.full(length, task),
        }
        place = self._write_rows(columns) | self._write_videos(columns)
        stats = {key: (picture_stats if _is_picture(key) else number_stats)(v) for key, v in columns.items()}
        self._note_episode(episode, place, stats)
        self._episodes += 1
        self._frames += length

    def close(self) -> None:
        """Write the metadata."""
        for writer in self._cameras.values():
            writer.close()
        if self._data is not None:
            self._data.close()
        self._write_waiting()
        if self._table is not None:
            self._table.close()
        self._write_tasks()
        totals = {key: merge_stats(part[key] for part in self._totals) for key in self._totals[0]}
        self._write_json(STATS, {key: {name: v.tolist() for name, v in stats.items()} for key, stats in totals.items()})
        self._write_json(INFO, self._info())
        (self._root / FACTS).write_text("".join(line + "\n" for line in self._facts))

    def _convert(self, episode: Episode) -> Columns:
        """Return the columns of an episode under their names in the data set, in its rows."""
        if episode.lacks_pictures:
            raise DataError(f"a LeRobotDataset has a picture in every row, and an episode{episode.explain_missing()}")
        own = dict(episode.columns)
        columns: Columns = {UNSURE: episode.unsure, "success": own["success"], SUCCESS: departures(own["success"])}
        ends = {name: own.pop(name, np.zeros(len(episode), bool)) for name in ("terminated", "truncated")}
        columns[DONE] = departures(ends["terminated"] | ends["truncated"])
        columns[TRUNCATED] = departures(ends["truncated"])
        both = (ends["terminated"] & ends["truncated"]).any()
        self.remarks["an end that is terminated and truncated at once, which is read back as truncated"] += bool(both)
        for ours, theirs in OF_TRANSITIONS.items():
            if ours in own:
                values = own.pop(ours)
                self.remarks[f"a {ours} in the reset frame, which no action led to"] += bool(values[0].any())
                columns[theirs] = departures(values)
        self.remarks["the run that collected it (its origin)"] += episode.origin is not None
        for name, values in own.items():
            if "/" in name:
                raise DataError(f"column '{name}': LeRobot allows no '/' in names")
            if name in INDEX_FEATURES or (values.ndim > 2 and not _is_picture(name)):
                self.remarks[f"column {name} {list(values.shape[1:])}"] += 1
            else:
                columns.setdefault(name, values)
        return columns

    def _check_columns(self, columns: Columns) -> Columns:
        """Return the columns that all episodes have; the first one decides which these are."""
        forms = {name: (values.dtype.name, values.shape[1:]) for name, values in columns.items()}
        if not self._forms:
            self._forms = forms
        for name, form in self._forms.items():
            if forms.get(name) != form:
                found = "is missing" if name not in forms else f"is {_describe(forms[name])}"
                raise DataError(
                    f"episode {self._episodes}: '{name}' {found}, in the first episode it is {_describe(form)}. All "
                    "episodes of a LeRobotDataset have the same columns"
                )
        for name in forms.keys() - self._forms.keys():
            self.remarks[f"column {name}, which the first episode does not have"] += 1
        return {name: columns[name] for name in self._forms}

    def _write_rows(self, columns: Columns) -> dict[str, int]:
        """Write an episode as one row group, into the next file if this one is full."""
        import pyarrow as pa

        arrays = {name: _arrow(values) for name, values in columns.items() if not (self._video and _is_picture(name))}
        table = pa.table(arrays)
        if self._data is None or self._data_path.stat().st_size >= DATA_MEGABYTES * 2**20:
            if self._data is not None:
                self._data.close()
            self._data_file += 1
            self._data_path = self._root / DATA_PATH.format(**_place(self._data_file))
            self._data_path.parent.mkdir(parents=True, exist_ok=True)
            self._data = self._parquet.ParquetWriter(self._data_path, table.schema, compression="snappy")
        self._data.write_table(table, row_group_size=len(table))
        return {f"data/{name}": number for name, number in _place(self._data_file).items()}

    def _write_videos(self, columns: Columns) -> dict[str, Any]:
        place: dict[str, Any] = {}
        for name, frames in columns.items() if self._video else ():
            if _is_picture(name):
                if name not in self._cameras:
                    self._cameras[name] = VideoWriter(self._root, name, self._fps, FILES_PER_CHUNK)
                place |= self._cameras[name].write(frames)
        return place

    def _note_episode(self, episode: Episode, place: dict[str, Any], stats: dict[str, Stats]) -> None:
        facts = episode.facts
        row = {"episode_index": self._episodes, "tasks": [facts.task], "length": len(episode), **place}
        row |= {"dataset_from_index": self._frames, "dataset_to_index": self._frames + len(episode)}
        row |= {f"meta/episodes/{name}": number for name, number in _place(0).items()}
        row |= {f"stats/{key}/{name}": v.tolist() for key, part in stats.items() for name, v in part.items()}
        self._waiting.append(row)
        self._totals.append(stats)
        if len(self._totals) >= _EPISODES_AT_ONCE:
            self._totals = [{key: merge_stats(part[key] for part in self._totals) for key in stats}]
        known = {"policy": facts.policy, "seed": facts.seed, "success": facts.success}
        self._facts.append(json.dumps({"episode_index": self._episodes, **known}))
        if len(self._waiting) >= _EPISODES_AT_ONCE:
            self._write_waiting()

    def _write_waiting(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        if self._table is None:
            table = pa.Table.from_pylist(self._waiting)
            path = self._root / EPISODES / "chunk-000" / "file-000.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._table = self._parquet.ParquetWriter(path, table.schema, compression="snappy")
        self._table.write_table(pa.Table.from_pylist(self._waiting, self._table.schema))
        self._waiting = []

    def _write_tasks(self) -> None:
        """Write the table of tasks, which readers expect to be indexed by task, as pandas does it."""
        import pyarrow as pa

        forms = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
        columns = [
            {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
            for name, (kind, numpy) in forms.items()
        ]
        pandas = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.2.0"}
        table = pa.table({"task_index": list(self._tasks.values()), "task": list(self._tasks)})
        table = table.cast(pa.schema([("task_index", pa.int64()), ("task", pa.string())]))
        path = self._root / TASKS
        path.parent.mkdir(parents=True, exist_ok=True)
        self._parquet.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)

    def _write_json(self, name: str, values: dict[str, Any]) -> None:
        (self._root / name).write_text(json.dumps(values, indent=4) + "\n")

    def _info(self) -> dict[str, Any]:
        features: dict[str, Any] = {}
        for name, (dtype, shape) in self._forms.items():
            features[name] = {"dtype": dtype, "shape": list(shape) or [1], "names": None}
            if _is_picture(name):
                kind = {"dtype": "video" if self._video else "image", "names": ["height", "width", "channels"]}
                features[name] |= kind
                if self._video:
                    features[name]["info"] = self._cameras[name].describe(*shape[:2])
        features |= {name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in INDEX_FEATURES.items()}
        return {
            "codebase_version": "v3.0",
            "fps": self._fps,
            "features": features,
            "total_episodes": self._episodes,
            "total_frames": self._frames,
            "total_tasks": len(self._tasks),
            "chunks_size": FILES_PER_CHUNK,
            "data_files_size_in_mb": DATA_MEGABYTES,
            "video_files_size_in_mb": VIDEO_MEGABYTES,
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if self._video else None,
            "robot_type": None,
            "splits": {"train": f"0:{self._episodes}"},
        }


def _arrow(values: Array) -> Any:
    """Return a column: numbers, lists of a fixed length, or PNG files."""
    import pyarrow as pa

    if values.ndim == 4:
        form = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        return pa.array([encode_png(frame, row) for row, frame in enumerate(values)], form)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    single = values.ndim == 1 or values.shape[1] == 1
    return flat if single else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _is_picture(name: str) -> bool:
    return name.startswith(IMAGES)


def _place(file: int) -> dict[str, int]:
    return {"chunk_index": file // FILES_PER_CHUNK, "file_index": file % FILES_PER_CHUNK}


def _describe(form: tuple[str, tuple[int, ...]]) -> str:
    return f"{form[0]} {list(form[1])}"
