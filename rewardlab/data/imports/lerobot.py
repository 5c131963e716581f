"""LeRobotDatasets of versions 2.0, 2.1 and 3.0, read without the lerobot package.

Rows become arrivals: row t of an episode has frame t and the action that led to it, which LeRobot has in row t-1. The
action of the last row led to a frame that was not recorded, and has no place.
"""

from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from rewardlab.data.episodes import Array, Columns, Episode
from rewardlab.data.images import decode_image
from rewardlab.data.imports.lerobot_episodes import EpisodeEntry, VideoSegment, list_episodes, read_lines
from rewardlab.data.imports.lerobot_info import LeRobotInfo
from rewardlab.data.imports.lerobot_labels import find_labelling
from rewardlab.data.imports.lerobot_rows import check_single, columns_left_out, episode_columns, numeric_columns
from rewardlab.data.imports.parquet_rows import EpisodeRows, as_array
from rewardlab.data.imports.picture_size import CameraSizes
from rewardlab.data.imports.source import ImportedEpisode, ImportOptions, Source
from rewardlab.data.imports.video_segments import VideoReader
from rewardlab.data.lerobot_layout import FACTS, INFO, SUCCESS
from rewardlab.errors import DataError
from rewardlab.frame_sizes import resize_picture
from rewardlab.keys import FRAME_ROWS, IMAGES
from rewardlab.limits import check_file_size, excerpt, listed

_FRAMES_OFF = 2  # by which the times of an episode in a shared video may differ from its number of rows


class LeRobotSource(Source):
    kind = "LeRobotDataset"
    looks_for = f"a LeRobotDataset has {INFO}"
    reads = frozenset({"every", "align", "unsure_seconds", "cameras"})

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return (path / INFO).is_file()

    def __init__(self, path: Path, options: ImportOptions) -> None:
        super().__init__(path, options)
        self._options = options
        self._info = LeRobotInfo.read(path)
        self._cameras = self._info.cameras(options.cameras)
        self._entries = list_episodes(self._info, self._cameras)
        files = dict.fromkeys(entry.data for entry in self._entries)
        self._labelling = find_labelling(self._info, files, options)
        self._facts = _read_facts(self._info)
        self._columns = [*numeric_columns(self._info.features), *self._more_columns()]
        self._rows: EpisodeRows | None = None
        self._videos = {camera: VideoReader(self._info.fps, options.size) for camera in self._videos_of_cameras()}
        self._sizes = CameraSizes(options.size)
        self._remark()

    def __len__(self) -> int:
        return len(self._entries)

    def episodes(self, skip: frozenset[int]) -> Iterator[ImportedEpisode]:
        try:
            for entry in self._entries:
                if entry.number not in skip:
                    yield self._read(entry)
        finally:
            self._close()

    def _remark(self) -> None:
        why = self._labelling.why
        labelled = self._labelling.column is not None
        self.remarks += why if labelled else [f"NO LABELS: {why[0]}; all frames are unsure"]
        cameras = [key for key, feature in self._info.features.items() if feature.is_camera]
        left = columns_left_out(self._info.features, cameras)
        if left:
            self.remarks.append(f"columns left out, episodes have no place for them: {listed(left)}")
        if not self._cameras:
            self.remarks.append("the data set has no cameras; a classifier needs pictures")

    def _more_columns(self) -> list[str]:
        images = [key for key in self._cameras.values() if self._info.features[key].dtype == "image"]
        success = [SUCCESS] if self._labelling.column == SUCCESS else []
        return ["timestamp", *success, *images]

    def _videos_of_cameras(self) -> list[str]:
        return [camera for camera, key in self._cameras.items() if self._info.features[key].dtype == "video"]

    def _read(self, entry: EpisodeEntry) -> ImportedEpisode:
        name = f"episode {entry.number}"
        try:
            return self._read_whole(entry, name)
        except DataError as error:
            return ImportedEpisode(entry.number, name, None, str(error))

    def _read_whole(self, entry: EpisodeEntry, name: str) -> ImportedEpisode:
        table = self._rows_of(entry.data).read(entry.number)
        length = len(table)
        if length != entry.length:
            raise DataError(f"{entry.data} has {length} rows of it; the metadata say {entry.length}")
        names = [key for key in self._columns if not self._is_picture(key)]
        missing = [key for key in names if key not in table.column_names]
        if missing:
            raise DataError(f"{entry.data}: no column '{missing[0]}'; found {listed(table.column_names)}")
        rows: Columns = {key: as_array(table[key], key) for key in names}
        check_single(rows)
        labels = self._labelling.read(rows, length)
        times = rows.pop("timestamp").astype(np.float64)
        columns = episode_columns(rows, labels, self._labelling.reward_align)
        columns |= self._pictures(entry, table, times)
        facts = {"policy": "recorded", "success": labels.success_after, **self._facts.get(entry.number, {})}
        episode = Episode.from_columns(columns, task=self._options.task or entry.task, **facts)
        return ImportedEpisode(entry.number, name, episode, notes=labels.notes)

    def _pictures(self, entry: EpisodeEntry, table: Any, times: Array) -> Columns:
        if not self._cameras:
            return {}
        rows = np.arange(len(times))
        if self._options.every > 1:
            rows = np.union1d(rows[:: self._options.every], rows[-1:])
        check_file_size(self._picture_bytes(entry, len(rows)), f"the pictures of episode {entry.number}")
        columns: Columns = {FRAME_ROWS: rows} if len(rows) < len(times) else {}
        for camera, key in self._cameras.items():
            if camera in self._videos:
                self._check_video(camera, entry.videos[camera], len(times))
                columns[IMAGES + camera] = self._videos[camera].read(entry.videos[camera], times[rows])
            else:
                columns[IMAGES + camera] = self._images(table[key], rows, f"{entry.data}: {key}", camera)
        return columns

    def _check_video(self, camera: str, segment: VideoSegment, rows: int) -> None:
        reader = self._videos[camera]
        self.remarks += self._sizes.check(camera, reader.recorded_size(segment.path), segment.path.name)
        frames = reader.count(segment)
        if frames is not None and abs(frames - rows) > (0 if segment.stop is None else _FRAMES_OFF):
            raise DataError(f"{segment.path} has {frames} frames of it, its rows are {rows}: which belong together?")

    def _picture_bytes(self, entry: EpisodeEntry, rows: int) -> int:
        sizes = [self._videos[camera].recorded_size(entry.videos[camera].path) for camera in self._videos]
        return sum(rows * height * width * 3 for height, width in map(self._options.size.of, sizes))

    def _images(self, column: Any, rows: Array, name: str, camera: str) -> Array:
        frames: Array | None = None
        for place, row in enumerate(rows):
            cell = column[int(row)].as_py()
            content = cell.get("bytes") if isinstance(cell, dict) else None
            if not content:
                path = excerpt(repr(cell.get("path") if isinstance(cell, dict) else cell))
                raise DataError(f"{name} of row {row} has no picture in the file (path {path})")
            frame = decode_image(content, f"{name} of row {row}")
            recorded = (frame.shape[0], frame.shape[1])
            self.remarks += self._sizes.check(camera, recorded, f"row {row}")
            size = self._options.size.of(recorded)
            if frames is None:
                check_file_size(len(rows) * size[0] * size[1] * 3, name)
                frames = np.empty((len(rows), *size, 3), np.uint8)
            frames[place] = resize_picture(frame, size)
        assert frames is not None  # an episode has rows
        return frames

    def _is_picture(self, key: str) -> bool:
        return self._info.features[key].dtype == "image" if key in self._info.features else False

    def _rows_of(self, path: Path) -> EpisodeRows:
        if self._rows is None or self._rows.path != path:
            self._close_rows()
            self._rows = EpisodeRows(path, self._columns)
        return self._rows

    def _close_rows(self) -> None:
        if self._rows is not None:
            self._rows.close()
        self._rows = None

    def _close(self) -> None:
        self._close_rows()
        for reader in self._videos.values():
            reader.close()


def _read_facts(info: LeRobotInfo) -> dict[int, dict[str, Any]]:
    """Return seed, policy and success of each episode, if rewardlab has written the data set."""
    path = info.inside(FACTS, FACTS)
    facts: dict[int, dict[str, Any]] = {}
    for row in read_lines(path) if path.is_file() else ():
        kinds = {"episode_index": int, "policy": str, "success": bool, "seed": (int, NoneType)}
        for name, kind in kinds.items():
            if not isinstance(row.get(name), kind):  # type: ignore[arg-type]
                raise DataError(f"{path}: {name} is {excerpt(repr(row.get(name)))} in one of its lines")
        facts[row["episode_index"]] = {name: row[name] for name in ("policy", "success", "seed")}
    return facts
