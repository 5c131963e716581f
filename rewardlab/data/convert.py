"""Episodes from one format to another."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rewardlab.data.atomic import replacing
from rewardlab.data.crops import read_crops, write_crops
from rewardlab.data.episodes import EpisodeOrigin
from rewardlab.data.reader import StoredEpisode, read_episodes
from rewardlab.data.writer import EpisodeWriter
from rewardlab.errors import DataError

Paths: TypeAlias = str | Path | Sequence[str | Path]
Progress: TypeAlias = Callable[[list[StoredEpisode]], Iterable[StoredEpisode]]

LEROBOT = "lerobot"  # a data set of its own, not a file an episode


@dataclass(frozen=True)
class Exported:
    """What was written, and what had no place there: in words, with the number of episodes."""

    episodes: int
    without_place: dict[str, int]


def convert_episodes(
    source: Paths,
    destination: str | Path,
    format: str = "safetensors",
    progress: Progress = iter,
) -> int:
    """Write all episodes of `source` to the new directory `destination`; it appears when all of them are in it.

    `source` is a path or several; `progress` iterates over the episodes and shows how far it is. What a format has no
    place for (see the formats) is left out, and so are copies of one episode of a run. Returns the number written.
    """
    with _converting(source, Path(destination)) as (episodes, temporary):
        writer = EpisodeWriter(temporary, format, durable=False)
        return len({writer.write(episode.load()) for episode in progress(episodes)})


def export_lerobot(
    source: Paths, destination: str | Path, *, fps: int | None = None, video: bool = False, progress: Progress = iter
) -> Exported:
    """Write all episodes of `source` as a LeRobotDataset v3.0 to the new directory `destination`.

    Pictures are stored as they are, or with `video` as videos, which are smaller and not exact. `fps` are frames a
    second (default 10), which episodes do not know. Needs `rewardlab[import]`.
    """
    from rewardlab.data.exports.lerobot import DEFAULT_FPS, LeRobotWriter

    with _converting(source, Path(destination)) as (episodes, temporary):
        writer = LeRobotWriter(temporary, fps=fps or DEFAULT_FPS, video=video)
        origins: set[EpisodeOrigin] = set()
        written = 0
        for stored in progress(episodes):
            episode = stored.load()
            if episode.origin not in origins:
                try:
                    writer.write(episode)
                except DataError as error:
                    raise DataError(f"{stored.path}: {error}") from error
                written += 1
            if episode.origin is not None:
                origins.add(episode.origin)
        writer.close()
    return Exported(written, {words: count for words, count in writer.remarks.items() if count})


@contextmanager
def _converting(source: Paths, destination: Path) -> Iterator[tuple[list[StoredEpisode], Path]]:
    """Yield the episodes and the place for a directory that becomes `destination` at the end; adds the crops."""
    sources = [source] if isinstance(source, (str, Path)) else source
    _check_destination(map(Path, sources), destination)
    episodes = read_episodes(*sources)
    with replacing(destination) as temporary:
        yield episodes, temporary
        if crops := read_crops(sources):
            write_crops(temporary, crops)


def _check_destination(sources: Iterable[Path], destination: Path) -> None:
    for source in sources:
        if destination.resolve().is_relative_to(source.resolve()):
            raise DataError(
                f"{destination} is inside {source}; its episodes would be counted twice. Choose another place"
            )
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise DataError(f"{destination} is not empty; choose a directory that does not exist yet")
