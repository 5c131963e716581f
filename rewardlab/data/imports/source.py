"""What each kind of recording must offer to be imported."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from rewardlab.data.episodes import Episode


@dataclass(frozen=True)
class ImportOptions:
    """What the command line says; each kind of source reads what means something to it, and refuses the rest."""

    success: tuple[str, ...] = ()  # names of the folders (or pictures, videos) that are successes
    failure: tuple[str, ...] = ()
    labels: Path | None = None  # a CSV or JSON file with ranges of time
    every: int = 1  # keep every n-th frame
    align: str = "auto"  # same | next | auto: which frame a label of a transition judges
    unsure_seconds: float | None = None  # around a change of label; None = as the source suggests
    cameras: tuple[str, ...] = ()  # of the source, all by default
    task: str | None = None


@dataclass(frozen=True)
class ImportedEpisode:
    """An episode of a source, or why it was left out."""

    number: int  # its place in the source, the same at each reading
    name: str  # in the words of the source: a path, "episode 12"
    episode: Episode | None
    problem: str = ""
    notes: dict[str, int] = field(default_factory=dict)  # what was done to it -> how often, for the summary


class Source(ABC):
    """A recording. Reads one episode at a time; memory does not grow with the size of the recording."""

    kind: ClassVar[str]  # as the summary calls it

    @classmethod
    @abstractmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a file or directory is of this kind, by its content; never raises for damaged content."""

    @abstractmethod
    def __init__(self, path: Path, options: ImportOptions) -> None:
        """Read what is needed to count; raise a DataError for what cannot be imported at all."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of episodes."""

    @abstractmethod
    def episodes(self, skip: frozenset[int]) -> Iterator[ImportedEpisode]:
        """Yield the episodes in order, but for the numbers in `skip`, whose pictures are not decoded."""
