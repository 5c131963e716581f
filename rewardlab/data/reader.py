"""Episodes from disk. Opening a data set lists names; files are read when something in them is asked for."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rewardlab.data.episodes import Episode, EpisodeFacts, EpisodeOrigin
from rewardlab.data.formats import SUFFIXES, EpisodeFormat, FrameRows, format_of, is_episode_name
from rewardlab.errors import DataError
from rewardlab.input_files import nearest_path


@dataclass(frozen=True)
class StoredEpisode:
    """An episode on disk; can be sent to data-loading processes."""

    path: Path

    @property
    def format(self) -> EpisodeFormat:
        return format_of(self.path)

    @cached_property
    def facts(self) -> EpisodeFacts:
        return self.format.facts(self.path)

    @property
    def identity(self) -> str:
        """Tells the contents of episodes apart, wherever their files are."""
        return self.format.identity(self.path)

    @property
    def origin(self) -> EpisodeOrigin | None:
        """The run, worker and number of the episode; None if the file does not say."""
        return self.format.origin(self.path)

    @property
    def digest(self) -> str:
        """Of the columns alone: equal for copies of an episode, whatever their facts and formats."""
        return self.format.digest(self.path)

    @property
    def length(self) -> int:
        return self.facts.length

    def labels(self) -> npt.NDArray[np.bool_]:
        """Success per frame, whether it has pictures or not."""
        return self.format.labels(self.path)

    def unsure(self) -> npt.NDArray[np.bool_]:
        """Which frames are neither a success nor a failure; nothing is trained or measured on them."""
        return self.format.unsure(self.path)

    def frame_rows(self) -> npt.NDArray[np.int64]:
        """The frames that have pictures (see `data.collection.frames`); all of an episode without cameras."""
        return self.format.frame_rows(self.path)

    def frame(self, camera: str, t: int) -> npt.NDArray[np.uint8]:
        """The picture of frame t, uint8 [H, W, 3]; in the default format its cost does not depend on the length."""
        return self.format.read_frame(self.path, camera, t)

    def batches(self, cameras: Sequence[str], size: int = 256) -> Iterator[FrameRows]:
        """All pictures with their labels, verified, `size` at a time; in the default format memory holds one batch."""
        return self.format.read_batches(self.path, cameras, size)

    def load(self) -> Episode:
        """Everything, verified."""
        return self.format.read(self.path)


def read_episodes(*paths: str | Path) -> list[StoredEpisode]:
    """List the episodes in directories, searched to the bottom, or in single files; formats may be mixed.

    >>> episode = read_episodes("data/mine")[0]
    >>> episode.facts.task, episode.facts.success, episode.labels()
    >>> last_frame = episode.frame("base_camera", episode.length - 1)

    Nothing but names is read before it is asked for.
    """
    found: set[Path] = set()
    for path in map(Path, paths):
        names = episode_paths(path)
        if not names:
            raise DataError(f"no episodes in {path}: looked for files ending in {', '.join(SUFFIXES)} there and below")
        found.update(names)
    # Collectors number successes and failures together, so that sorting by name gives the order of collection.
    return [StoredEpisode(path) for path in sorted(found, key=lambda path: (path.name, path))]


def episode_paths(path: Path) -> list[Path]:
    """The files of the episodes in a directory, of whatever format, or the one file itself."""
    if path.is_file():
        format_of(path)
        return [path]
    if not path.is_dir():
        raise DataError(
            f"{path} does not exist{nearest_path(path)}; expected a directory of episodes or a file ending in "
            f"{', '.join(SUFFIXES)}"
        )
    return [file for file in walk_files(path) if is_episode_name(file)]


def walk_files(directory: Path) -> Iterator[Path]:
    """All files below, except in hidden directories."""
    for folder, subfolders, names in os.walk(directory):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        # Regular files only: reading a pipe or a device never ends.
        yield from (path for name in names if (path := Path(folder, name)).is_file())
