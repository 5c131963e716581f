"""Turns a recording of a robot into episodes to train a classifier on, and says what was kept, what not, and why."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewardlab.data.atomic import replacing
from rewardlab.data.crops import draw_crops, write_crops
from rewardlab.data.episodes import Episode
from rewardlab.data.recordings import RecordedEpisode, read_recording
from rewardlab.data.screening import find_standstill
from rewardlab.data.writer import EpisodeWriter
from rewardlab.errors import DataError
from rewardlab.frame_crops import Crop, crop_box

PROCESSED = "collected_data"  # the directory beside the recording
DAMAGED, STATIC, NO_PICTURES = "damaged", "static", "without pictures"


@dataclass
class Processed:
    """What became of a recording."""

    source: Path
    directory: Path
    transitions: int = 0
    gaps: int = 0  # transitions that begin in another state than the one before them ended in
    kept: Counter[bool] = field(default_factory=Counter)  # episodes by outcome
    frames: Counter[bool] = field(default_factory=Counter)  # of the kept episodes, by label
    dropped: list[tuple[str, str, str]] = field(default_factory=list)  # kind, which, why
    crops: dict[str, Crop] = field(default_factory=dict)  # in pixels, by camera
    pictures: list[Path] = field(default_factory=list)


def process_recording(
    path: str | Path, out: str | Path | None = None, *, crops: Mapping[str, Sequence[float]] | None = None
) -> Processed:
    """Write the usable episodes of a recording to a new directory, by default `collected_data` beside the file.

    `crops` are the parts of each camera's pictures that a classifier shall look at: top, left, height and width. The
    pictures are kept whole; the directory records the crops for `train-reward`, and has a picture of each.
    """
    source = Path(path)
    directory = source.parent / PROCESSED if out is None else Path(out)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise DataError(f"{directory} is not empty; move it away, or choose a directory that does not exist yet")
    result = Processed(source, directory)
    shown: Episode | None = None
    with replacing(directory) as temporary:
        writer = EpisodeWriter(temporary, durable=False)
        for recorded in read_recording(source):
            result.transitions = recorded.last + 1
            result.gaps += recorded.gap
            episode, problem = _screen(recorded)
            if episode is None:
                result.dropped.append(problem)
                continue
            if shown is None:
                result.crops = _boxes(crops or {}, episode)
            if shown is None or (episode.facts.success_at_end and not shown.facts.success_at_end):
                shown = episode
            writer.write(episode)
            result.kept[episode.facts.success] += 1
            labels = episode.columns["success"]
            result.frames.update({True: int(labels.sum()), False: int((~labels).sum())})
        if shown is None:
            raise DataError(f"{source}: no episode of it can be used. {_reasons(result)}")
        if result.crops:
            write_crops(temporary, result.crops)
            result.pictures = [directory / drawn.name for drawn in draw_crops(temporary, shown, result.crops)]
    return result


def _screen(recorded: RecordedEpisode) -> tuple[Episode | None, tuple[str, str, str]]:
    """Return the episode if it can be used, else what is wrong with it: kind, place, reason."""
    episode = recorded.episode
    if episode is None:
        return None, (DAMAGED, recorded.place, recorded.problem)
    if not episode.facts.cameras:
        return None, (NO_PICTURES, recorded.place, "it has no pictures, which a classifier looks at")
    if reason := find_standstill(episode):
        return None, (STATIC, recorded.place, reason)
    return episode, ("", "", "")


def _boxes(crops: Mapping[str, Sequence[float]], episode: Episode) -> dict[str, Crop]:
    """Return the crops in pixels of the recorded frames."""
    for camera in crops:
        if camera not in episode.facts.cameras:
            raise DataError(f"--crop: no camera '{camera}'; the recording has {', '.join(episode.facts.cameras)}")
    sizes = episode.facts.cameras
    return {camera: crop_box(crop, *sizes[camera], f"--crop {camera}") for camera, crop in crops.items()}


def _reasons(result: Processed) -> str:
    return "; ".join(f"{place} ({kind}): {why}" for kind, place, why in result.dropped[:3])
