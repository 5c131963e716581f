"""One pickle with a list of transitions (`data.pkl`), to which episodes are appended without writing it again.

`pickle.load` reads the file at any moment, also after the process that writes it was killed: it has all episodes that
were finished, and nothing of the one in flight. For that, an appended episode is written behind the STOP that ends the
pickle, where nobody reads, up to its own STOP; then the one byte of the old STOP is replaced by the episode's first.

This is protocol 3, whose memo has explicit numbers: those of an episode may be used again by the next. (From protocol 4
on, they are counted from the beginning of the file.)
"""

import fcntl
import io
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from rewardlab import unpickle
from rewardlab.data.atomic import sync_directory
from rewardlab.data.episodes import Columns, Episode, Identity
from rewardlab.errors import DataError, StorageError
from rewardlab.keys import IMAGES, INTERVENTION

Transition = dict[str, Any]

RECORDING = "data.pkl"
PROTOCOL = 3
_HEAD = pickle.dumps([], PROTOCOL)[:-1]  # an empty list, into which each episode appends its transitions
_OBSERVATION = "observation."


class TransitionFile:
    """Appends lists of transitions to a file. One process writes to it at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        self._stop = len(_HEAD)  # where the STOP of the pickle is

    def open(self) -> Iterator[Transition]:
        """Begin the file, or yield what it has and go on behind that."""
        new = not self.path.exists()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._lock()
            if os.fstat(self._file).st_size < len(_HEAD) + 1:  # new, or killed in the moment in which it began
                self._write(_HEAD + pickle.STOP, 0)
                os.fsync(self._file)
            if new:
                sync_directory(self.path.parent)
        except OSError as error:
            self.close()
            raise StorageError(f"could not write {self.path}: {error.strerror or error}") from error
        try:
            yield from self._read()
        except BaseException:
            self.close()
            raise

    def append(self, transitions: Sequence[Transition]) -> None:
        """Add transitions; when this returns, they are on the disk. If that fails, the file is as it was."""
        if not transitions:
            return
        content = io.BytesIO()
        pickle.Pickler(content, PROTOCOL).dump(list(transitions))
        chunk = content.getbuffer()[len(_HEAD) :]  # up to and with its STOP
        try:
            self._write(chunk[1:], self._stop + 1)
            os.fsync(self._file)
            self._write(chunk[:1], self._stop)
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):
                self._write(pickle.STOP, self._stop)
                os.ftruncate(self._file, self._stop + 1)
            raise StorageError(
                f"could not write an episode to {self.path}: {error.strerror or error}. Episodes finished before it "
                "are complete and safe; after making room, or with another directory, the command can be run again"
            ) from error
        self._stop += len(chunk) - 1

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(f"{self.path} is being written by another process; wait until it ends") from None

    def _read(self) -> Iterator[Transition]:
        """Yield what is there, and cut off what a killed process left behind it."""
        with self.path.open("rb") as file:
            if file.read(len(_HEAD)) != _HEAD:
                raise DataError(f"{self.path} was not written by rewardlab, which cannot add to it; move it away")
            file.seek(0)
            yield from unpickle.read_list(file, str(self.path), "transitions")
            self._stop = file.tell() - 1
        os.ftruncate(self._file, self._stop + 1)

    def _write(self, content: bytes | memoryview, position: int) -> None:
        rest = memoryview(content)
        while rest:
            written = os.pwrite(self._file, rest, position)
            rest, position = rest[written:], position + written


class RecordingWriter:
    """Writes episodes as transitions into one file, in the place of an EpisodeWriter."""

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory) / RECORDING
        self._file: TransitionFile | None = None
        self.outcomes: list[bool] = []  # of the episodes in the file: success in any frame

    def open(self) -> Self:
        """Begin the file, or go on behind the episodes that it has."""
        if self._file is None:
            self._file, self.outcomes = TransitionFile(self.path), []
            success = False
            for transition in self._file.open():
                infos = transition.get("infos", {}) if isinstance(transition, dict) else {}
                success |= bool(infos.get("success", False) or infos.get("success_before", False))
                if isinstance(transition, dict) and transition.get("dones", False):
                    self.outcomes.append(success)
                    success = False
        return self

    def write(self, episode: Episode) -> Path:
        self.open()
        assert self._file is not None
        self._file.append(transitions_of(episode))
        self.outcomes.append(episode.facts.success)
        return self.path

    def count(self, success: bool) -> int:
        """Return the number of episodes of one outcome in the file."""
        if self._file is None and self.path.exists():
            self.open()
        return self.outcomes.count(success)

    def identities(self, run: str, success: bool) -> list[Identity]:
        """Return nothing: transitions have no place for it."""
        return []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def count_recorded(directory: Path) -> int:
    """Return the number of episodes of the recording in a directory; 0 if there is none."""
    writer = RecordingWriter(directory)
    try:
        return writer.count(True) + writer.count(False)
    finally:
        writer.close()


def transitions_of(episode: Episode) -> list[Transition]:
    """Return the steps of an episode as dictionaries; the picture after a step and before the next is one array."""
    if episode.lacks_pictures:
        raise DataError(f"transitions need a picture of every frame{episode.explain_missing()}")
    columns, facts = episode.columns, episode.facts
    never = np.zeros(len(episode), bool)
    success, terminated, truncated = (columns.get(name, never) for name in ("success", "terminated", "truncated"))
    by_person = columns.get(INTERVENTION, never)
    reward = columns.get("reward", np.zeros(len(episode), np.float32))
    action = columns["action"]
    rows = [{name: column[t] for name, column in _observed(columns).items()} for t in range(len(episode))]
    return [
        {
            "observations": dict(rows[t - 1]),
            "actions": action[t],
            "next_observations": rows[t],
            "rewards": float(reward[t]),
            "masks": 1.0 - float(terminated[t]),
            "dones": bool(terminated[t] | truncated[t]),
            "infos": {
                "success": bool(success[t]),
                "success_before": bool(success[t - 1]),
                "intervention": bool(by_person[t]),
                "task": facts.task,
                "policy": facts.policy,
            },
        }
        for t in range(1, len(episode))
    ]


def _observed(columns: Columns) -> Columns:
    """Return pictures by camera and the other parts of the observation, as SERL names them."""
    return {
        name.removeprefix(IMAGES).removeprefix(_OBSERVATION): column
        for name, column in columns.items()
        if name.startswith(_OBSERVATION)
    }
