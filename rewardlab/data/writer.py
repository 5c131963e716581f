"""Episodes to disk: one at a time, or from a thread behind a bounded queue."""

import itertools
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rewardlab.data.atomic import remove_leftovers, write_new
from rewardlab.data.episodes import Episode, EpisodeOrigin, Identity, check_episode
from rewardlab.data.formats import FORMATS, format_of, is_episode_name
from rewardlab.errors import DataError, StorageError

_NUMBERED = re.compile(r"^(?:episode_)?(\d{6,})$")


class EpisodeWriter:
    """Writes each episode as one file, in the folder of its outcome, under a number that no other file has.

    >>> writer = EpisodeWriter("data/mine")
    >>> path = writer.write(Episode.from_frames(frames, success=labels, task="peg in hole"))

    >>> writer = EpisodeWriter("data/mine")
    >>> path = writer.write(Episode.from_frames(frames, success=labels, task="peg in hole"))

    Several writers, also in several processes, may share a directory. `success_dir` and `failure_dir` replace the
    folders that the format would make inside `directory`. Directories are made when the first episode is written.

    A killed process never leaves half an episode. `durable` waits for the disk as well (some milliseconds a file), so
    that a power cut does not either; without it, one can damage what was written in the last half minute.
    """

    def __init__(
        self,
        directory: str | Path,
        format: str = "safetensors",
        *,
        success_dir: str | Path | None = None,
        failure_dir: str | Path | None = None,
        durable: bool = True,
    ) -> None:
        self.format = FORMATS[format]
        self.directory = Path(directory)
        self.success_dir = Path(success_dir) if success_dir else self.directory / self.format.success_folder
        self.failure_dir = Path(failure_dir) if failure_dir else self.directory / self.format.failure_folder
        self.durable = durable
        self._next_number: dict[bool, int] = {}  # by outcome, or True for both

    def write(self, episode: Episode) -> Path:
        """Check and write; the file is there, complete, when this returns.

        An episode that is there already, by its origin, is not written again; its path is returned.
        """
        check_episode(episode)
        if episode.origin is None:
            return self._write(episode)
        written = self._written
        if episode.origin not in written:
            written[episode.origin] = self._write(episode)
        return written[episode.origin]

    def _write(self, episode: Episode) -> Path:
        success = episode.facts.success
        folder, other = (self.success_dir, self.failure_dir) if success else (self.failure_dir, self.success_dir)
        elsewhere = other if self.format.shared_counter else None
        counter = success or self.format.shared_counter
        try:
            if counter not in self._next_number:
                self._next_number[counter] = _first_free_number(folder, elsewhere)
            names = self._names(folder, self._next_number[counter])
            path = write_new(names, self.format.encode(episode), elsewhere=elsewhere, durable=self.durable)
        except OSError as error:
            raise StorageError(
                f"could not write an episode to {folder}: {error.strerror or error}. Episodes finished before it are "
                "complete and safe; after making room, or with another directory, the command can be run again"
            ) from error
        self._next_number[counter] = _number(path) + 1
        return path

    def count(self, success: bool) -> int:
        """Episodes of one outcome that are in the directory already, whoever wrote them."""
        folder = self.success_dir if success else self.failure_dir
        return sum(is_episode_name(path) for path in folder.iterdir()) if folder.is_dir() else 0

    def identities(self, run: str, success: bool) -> list[Identity]:
        """Return run, worker and number of the episodes of one outcome that a run has in the directory already."""
        folder = self.success_dir if success else self.failure_dir
        return [origin.identity for origin, path in self._written.items() if (origin.run, path.parent) == (run, folder)]

    def close(self) -> None:
        """Do nothing: each episode is a file by itself."""

    @cached_property
    def _written(self) -> dict[EpisodeOrigin, Path]:
        """The episodes in the directory that say their origin; the first use reads it from every file."""
        return dict(_find_origins(self.success_dir, self.failure_dir))

    def _names(self, folder: Path, number: int) -> Iterator[Path]:
        for n in itertools.count(number):
            yield folder / f"{self.format.stem.format(n)}{self.format.suffix}"


def _first_free_number(*folders: Path | None) -> int:
    """One more than the highest number in the folders, which are made where missing."""
    highest = -1
    for folder in folders:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(folder)
            highest = max([highest, *map(_number, folder.iterdir())])
    return highest + 1


def _find_origins(*folders: Path) -> Iterator[tuple[EpisodeOrigin, Path]]:
    for path in sorted({path for folder in folders if folder.is_dir() for path in folder.iterdir()}):
        if is_episode_name(path):
            with suppress(DataError):  # a damaged file is not the episode that it was
                if origin := format_of(path).origin(path):
                    yield origin, path


def _number(path: Path) -> int:
    match = _NUMBERED.match(path.stem)
    return int(match[1]) if match else -1


class WritesEpisodes(Protocol):
    """What episodes are given to: an EpisodeWriter, or the writer of a recording."""

    def write(self, episode: Episode) -> Path:
        """Check and write; the episode is there, complete, when this returns."""

    def count(self, success: bool) -> int:
        """Return the number of episodes of one outcome that are there already."""

    def identities(self, run: str, success: bool) -> list[Identity]:
        """Return run, worker and number of the episodes of one outcome that a run has there already."""

    def close(self) -> None:
        """Let go of what is open; a `write` after it opens it again."""


class BackgroundWriter:
    """Builds and writes episodes in a thread, at most `capacity` waiting, so that memory stays flat.

    `submit` blocks while the queue is full. An error in the thread is raised by the next `submit`, `flush` or `close`;
    the episodes behind the failed one are still tried. After Ctrl-C anywhere, `close` writes what was submitted; if
    nobody calls it, the interpreter waits for the thread at exit.
    """

    def __init__(self, writer: WritesEpisodes, capacity: int = 64) -> None:
        self.writer = writer
        self._slots = threading.Semaphore(capacity)
        self._errors: list[BaseException] = []
        self._thread = _new_thread()

    def submit(self, build: Callable[[], Episode]) -> None:
        """Queue an episode; `build` runs in the thread. An earlier error is raised when this one is safely queued."""
        self._slots.acquire()
        failed_before = bool(self._errors)
        self._thread.submit(self._write, build)
        if failed_before:
            self._raise_pending()

    def flush(self) -> None:
        """Wait until everything submitted so far is on disk."""
        self._thread.submit(lambda: None).result()
        self._raise_pending()

    def close(self) -> None:
        """Write what is queued, then end the thread. May be called again, also after an interrupted call."""
        self._thread.shutdown()
        self._thread = _new_thread()
        self.writer.close()
        self._raise_pending()

    def _write(self, build: Callable[[], Episode]) -> None:
        try:
            self.writer.write(build())
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._slots.release()

    def _raise_pending(self) -> None:
        if self._errors:
            first, self._errors = self._errors[0], []
            raise first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except DataError as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # the first error is what the user must see


def _new_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "episode-writer")  # starts when something is submitted
