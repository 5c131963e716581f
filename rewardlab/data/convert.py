"""Episodes from one format to another."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rewardlab.data.atomic import replacing
from rewardlab.data.crops import read_crops, write_crops
from rewardlab.data.reader import StoredEpisode, read_episodes
from rewardlab.data.writer import EpisodeWriter
from rewardlab.errors import DataError


def convert_episodes(
    source: str | Path | Sequence[str | Path],
    destination: str | Path,
    format: str = "safetensors",
    progress: Callable[[list[StoredEpisode]], Iterable[StoredEpisode]] = iter,
) -> int:
    """Write all episodes of `source` to the new directory `destination`; it appears when all of them are in it.

    `source` is a path or several; `progress` iterates over the episodes and shows how far it is. What a format has no
    place for (see the formats) is left out, and so are copies of one episode of a run. Returns the number written.
    """
    destination = Path(destination)
    sources = [source] if isinstance(source, (str, Path)) else source
    _check_destination(map(Path, sources), destination)
    episodes = read_episodes(*sources)
    with replacing(destination) as temporary:
        writer = EpisodeWriter(temporary, format, durable=False)
        written = {writer.write(episode.load()) for episode in progress(episodes)}
        if crops := read_crops(sources):
            write_crops(temporary, crops)
    return len(written)


def _check_destination(sources: Iterable[Path], destination: Path) -> None:
    for source in sources:
        if destination.resolve().is_relative_to(source.resolve()):
            raise DataError(
                f"{destination} is inside {source}; its episodes would be counted twice. Choose another place"
            )
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise DataError(f"{destination} is not empty; choose a directory that does not exist yet")
