"""What a directory of episodes holds, and what in it is damaged."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rewardlab.data.atomic import leftover_of
from rewardlab.data.reader import StoredEpisode, read_episodes, walk_files
from rewardlab.errors import DataError


class Problem(NamedTuple):
    """A file, and what is wrong with it."""

    path: Path
    problem: str

    @property
    def sentence(self) -> str:
        return self.problem if str(self.path) in self.problem else f"{self.path}: {self.problem}"


@dataclass
class DatasetSummary:
    """Counts over all readable episodes; `damaged` names the others. Of episodes with cameras, frames are pictures."""

    success_episodes: int = 0
    failure_episodes: int = 0
    unsure_episodes: int = 0  # of which every frame is
    success_frames: int = 0
    failure_frames: int = 0
    unsure_frames: int = 0  # that nobody could judge; nothing is trained or measured on them
    without_picture: int = 0  # rows of episodes that have pictures of other rows
    bytes: int = 0
    cameras: Counter[str] = field(default_factory=Counter)  # "base_camera 64x64" -> episodes
    formats: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    policies: Counter[str] = field(default_factory=Counter)
    copies: int = 0  # episodes with the content of another one
    damaged: list[Problem] = field(default_factory=list)

    @property
    def episodes(self) -> int:
        return self.success_episodes + self.failure_episodes + self.unsure_episodes

    @property
    def frames(self) -> int:
        return self.success_frames + self.failure_frames + self.unsure_frames


def summarize(path: str | Path) -> DatasetSummary:
    """Count episodes, frames and labels per class. In the default format only headers and labels are read."""
    summary = DatasetSummary()
    contents: set[str] = set()
    for episode in read_episodes(path):
        try:
            facts, labels, rows, digest = episode.facts, episode.labels(), episode.frame_rows(), episode.digest
            unsure = int(episode.unsure()[rows].sum())
        except DataError as error:
            summary.damaged.append(Problem(episode.path, str(error)))
            continue
        summary.copies += digest in contents
        contents.add(digest)
        summary.success_episodes += facts.success
        without_labels = not facts.success and unsure == len(rows)
        summary.unsure_episodes += without_labels
        summary.failure_episodes += not facts.success and not without_labels
        successes = int(labels[rows].sum())
        summary.success_frames += successes
        summary.failure_frames += len(rows) - successes - unsure
        summary.unsure_frames += unsure
        summary.without_picture += facts.length - len(rows)
        summary.bytes += episode.path.stat().st_size
        summary.cameras.update(f"{name} {height}x{width}" for name, (height, width) in facts.cameras.items())
        summary.formats[episode.format.name] += 1
        summary.tasks[facts.task] += 1
        summary.policies[facts.policy] += 1
    return summary


def verify(path: str | Path) -> list[Problem]:
    """Read every byte of every episode; also name what killed processes left half-written."""
    problems = []
    for episode in read_episodes(path):
        try:
            _check_outcome(episode)
        except DataError as error:
            problems.append(Problem(episode.path, str(error)))
    if Path(path).is_dir():
        for file in walk_files(Path(path)):
            if process := leftover_of(file):
                text = (
                    f"half-written by process {process}, which does not run here; not part of the data. Delete it, "
                    "unless a collector on another machine is writing it"
                )
                problems.append(Problem(file, text))
    return problems


def _check_outcome(episode: StoredEpisode) -> None:
    facts, file_format, folder = episode.load().facts, episode.format, episode.path.parent.name
    expected = file_format.success_folder if facts.success else file_format.failure_folder
    if folder in (file_format.success_folder, file_format.failure_folder) and folder != expected:
        outcome = "success" if facts.success else "failure"
        raise DataError(f"{episode.path} is a {outcome}, but in the folder '{folder}'; expected '{expected}'")
