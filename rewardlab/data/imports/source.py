"""What each kind of recording must offer to be imported."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from rewardlab.data.episodes import Episode
from rewardlab.data.imports.labels import Label
from rewardlab.data.imports.picture_size import REDUCED, PictureSize
from rewardlab.data.reader import walk_files
from rewardlab.errors import ConfigError
from rewardlab.keys import DEFAULT_CAMERA


@dataclass(frozen=True)
class ImportOptions:
    """What the command line says. A kind of source names those that it reads (`Source.reads`); others are refused."""

    success: tuple[str, ...] = ()  # names of the folders (or pictures, videos) that are successes
    failure: tuple[str, ...] = ()
    labels: Path | None = None  # a CSV or JSON file with ranges of time
    rest: Label | None = None  # success | failure | unsure: what is outside of all ranges
    every: int = 1  # keep every n-th frame
    align: str = "auto"  # same | next | auto: which frame a label of a transition judges
    unsure_seconds: float | None = None  # around a change of label; None = as the source suggests
    cameras: tuple[str, ...] = ()  # of the source, all by default
    task: str | None = None
    size: PictureSize = REDUCED  # of the pictures in the episodes; every source brings its pictures to it


@dataclass(frozen=True)
class ImportedEpisode:
    """An episode of a source, or why it was left out."""

    number: int  # its place in the source, the same at each reading
    name: str  # in the words of the source: a path, "episode 12"
    episode: Episode | None
    problem: str = ""
    notes: dict[str, int] = field(default_factory=dict)  # what was done to it -> how often, for the summary
    left_out: tuple[tuple[str, str], ...] = ()  # parts of it that are missing, by name, and why


class Source(ABC):
    """A recording. Reads one episode at a time; memory does not grow with the size of the recording."""

    kind: ClassVar[str]  # as the summary calls it
    looks_for: ClassVar[str]  # what a recording of this kind has, for the error about one of no known kind
    reads: ClassVar[frozenset[str]]  # the names of the ImportOptions that mean something to it, but for task and size

    @classmethod
    @abstractmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a file or directory is of this kind, by its content; never raises for damaged content."""

    @abstractmethod
    def __init__(self, path: Path, options: ImportOptions) -> None:
        """Read what is needed to count; raise a DataError for what cannot be imported at all."""
        self.path = path
        self.grouping = ""  # how frames became episodes, where the source has none: training data are split by episode
        self.remarks: list[str] = []  # more lines for the summary
        self.left_out: list[tuple[str, str]] = []  # files that are in no episode, and why

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of episodes, those that will turn out to be damaged or empty included."""

    @abstractmethod
    def episodes(self, skip: frozenset[int]) -> Iterator[ImportedEpisode]:
        """Yield the episodes in order, but for the numbers in `skip`, whose pictures are not decoded."""

    def files(self) -> list[Path]:
        """Return the files that it consists of: if one of them changes, an import cannot be continued."""
        return [self.path] if self.path.is_file() else sorted(walk_files(self.path))


def camera_name(options: ImportOptions) -> str:
    """Return what the only camera of a source shall be called."""
    if len(options.cameras) > 1:
        raise ConfigError(f"--camera: found {', '.join(options.cameras)}, but the source has one camera; name it once")
    if options.cameras == ("",):
        raise ConfigError("--camera: found an empty name")
    return options.cameras[0] if options.cameras else DEFAULT_CAMERA
