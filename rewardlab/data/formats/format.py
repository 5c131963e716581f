"""What a file format must know. A format that can do better than reading the whole file overrides the last nine."""

import hashlib
import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rewardlab.data.episodes import (
    Array,
    Columns,
    Episode,
    EpisodeFacts,
    EpisodeOrigin,
    check_episode,
    content_digest,
    frame_rows,
    unsure_rows,
)
from rewardlab.errors import ConfigError, DataError
from rewardlab.input_files import read_file
from rewardlab.keys import FRAME_ROWS, IMAGES
from rewardlab.limits import excerpt, listed

Buffer: TypeAlias = bytes | memoryview
TRAILER, TRAILER_BYTES = b"\nrewardlab.origin ", 1024
Ints: TypeAlias = npt.NDArray[np.int64]
FrameRows: TypeAlias = tuple[dict[str, npt.NDArray[np.uint8]], npt.NDArray[np.bool_]]


class EpisodeFormat(ABC):
    """One file per episode, in one of two folders by its outcome."""

    name: str
    suffix: str
    success_folder: str = "success"
    failure_folder: str = "failure"
    stem: str = "episode_{:06d}"
    shared_counter: bool = True  # one numbering for both folders, or one each

    @abstractmethod
    def encode(self, episode: Episode) -> list[Buffer]:
        """The file of a checked episode, in pieces."""

    @abstractmethod
    def decode(self, path: Path) -> Episode:
        """Read everything; any DataError may leave out the file's name."""

    def read(self, path: Path) -> Episode:
        """The whole episode, checked."""
        with naming(path):
            episode = self.decode(path)
            check_episode(episode)
            return episode

    def facts(self, path: Path) -> EpisodeFacts:
        return self.read(path).facts

    def identity(self, path: Path) -> str:
        """Tells the contents of episodes apart, wherever their files are."""
        with naming(path):
            return hashlib.sha256(read_file(path)).hexdigest()[:16]

    def origin(self, path: Path) -> EpisodeOrigin | None:
        """The run, worker and number of the episode; None if the file does not say."""
        with naming(path):
            return read_trailer(path)

    def digest(self, path: Path) -> str:
        """Of the columns alone: equal for copies of an episode."""
        origin = self.origin(path)
        return content_digest(self.read(path).checksums) if origin is None else origin.digest

    def labels(self, path: Path) -> npt.NDArray[np.bool_]:
        """Success per frame, whether it has pictures or not."""
        return self.read(path).columns["success"]

    def unsure(self, path: Path) -> npt.NDArray[np.bool_]:
        """Which frames are neither a success nor a failure."""
        return unsure_rows(self.read(path).columns)

    def frame_rows(self, path: Path) -> Ints:
        """The frames that have pictures; all of an episode without cameras."""
        return self.read(path).frame_rows

    def read_frame(self, path: Path, camera: str, t: int) -> npt.NDArray[np.uint8]:
        """Frame t (negative: from the end) as uint8 [H, W, 3]."""
        columns = self.read(path).columns
        with naming(path):
            frames = columns.get(IMAGES + camera)
            if frames is None:
                raise no_camera(camera, columns)
            return np.asarray(frames[picture_index(t, len(columns["success"]), columns.get(FRAME_ROWS))])

    def read_batches(self, path: Path, cameras: Sequence[str], size: int) -> Iterator[FrameRows]:
        """Pictures with their labels, `size` at a time: by camera, uint8 [n, H, W, 3], and bool [n]."""
        columns = self.read(path).columns
        with naming(path):
            for camera in cameras:
                if IMAGES + camera not in columns:
                    raise no_camera(camera, columns)
        labels = columns["success"][frame_rows(columns)]
        for start in range(0, len(labels), size):
            rows = slice(start, start + size)
            yield {camera: columns[IMAGES + camera][rows] for camera in cameras}, labels[rows]


def trailer(episode: Episode) -> list[Buffer]:
    """Return the origin as bytes behind a pickle. Readers of pickles ignore what follows the pickled object."""
    return [] if episode.origin is None else [TRAILER + episode.origin.to_json().encode() + b"\n"]


def read_trailer(path: Path) -> EpisodeOrigin | None:
    """Return the origin that `trailer` put at the end of a file, or None if there is none."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(-min(file.tell(), TRAILER_BYTES), os.SEEK_END)
        end = file.read(TRAILER_BYTES)
    _, mark, text = end.rpartition(TRAILER)
    if mark and text.endswith(b"}\n"):
        return EpisodeOrigin.from_json(text)
    if mark or any(end.endswith(pickle.STOP + TRAILER[:length]) for length in range(1, len(TRAILER))):
        raise DataError("is cut short: the origin of the episode is not complete")
    return None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name in front of whatever is wrong with it."""
    try:
        yield
    except DataError as error:
        if str(path) in str(error):
            raise
        raise DataError(f"{path}: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except ConfigError:  # not about this file
        raise
    # One odd file must not take down a look at ten thousand others.
    except Exception as error:
        raise DataError(f"{path} is damaged or not an episode ({type(error).__name__}: {excerpt(error)})") from error


def no_camera(camera: str, columns: Columns | list[str]) -> DataError:
    cameras = [name.removeprefix(IMAGES) for name in columns if name.startswith(IMAGES)]
    return DataError(f"no camera '{camera}'; this episode has {listed(cameras) or 'no images'}")


def picture_index(t: int, length: int, rows: Ints | None) -> int:
    """Return the place of frame t (negative: from the end) among the pictures, which are of `rows`; None: of all."""
    if not -length <= t < length:
        raise DataError(f"no frame {t}; the episode has {length} frames")
    if rows is None:
        return t % length
    place = int(np.searchsorted(rows, t % length))
    if place == len(rows) or rows[place] != t % length:
        raise DataError(f"frame {t} has no picture; {len(rows)} of {length} frames have one (data.collection.frames)")
    return place


def told_by_folder(path: Path) -> bool:
    """Whether the folder says success, as it does also where only the environment's `success_once` is set."""
    return path.parent.name in ("positive", "success")


def as_labels(values: Array) -> npt.NDArray[np.bool_]:
    """0 / 1 labels of any number type as bool; from 0.5 on a label counts as success."""
    if not np.isfinite(values).all() or values.min(initial=0) < 0 or values.max(initial=0) > 1:
        raise DataError("labels outside [0, 1]")
    return np.asarray(values >= 0.5)
