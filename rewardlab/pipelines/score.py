"""Score files: the probability of success of every frame of pictures, videos and episodes, and the verdict on it."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rewardlab.config.schema import RewardConfig
from rewardlab.data import Problem, StoredEpisode, read_episodes
from rewardlab.data.formats import SUFFIXES, is_episode_name
from rewardlab.data.images import IMAGE_SUFFIXES, read_image
from rewardlab.data.reader import episode_paths, walk_files
from rewardlab.data.video import VIDEO_SUFFIXES, BrokenVideo, TimedFrame, is_video, read_facts, read_frames
from rewardlab.errors import ConfigError, DataError
from rewardlab.registry import unknown_name
from rewardlab.rewards import RewardManager, SuccessClassifier
from rewardlab.rewards.classifier import MINI_BATCH
from rewardlab.rewards.manager import RewardTerm
from rewardlab.rewards.trained_tasks import warn_about_episodes

Frame = npt.NDArray[np.uint8]
Snapshot = dict[str, Path]  # one moment: a picture file for each camera

BATCH_BYTES = 128 * 2**20  # of pictures at once; large ones make smaller batches than MINI_BATCH


@dataclass(frozen=True)
class Inputs:
    """What was found under the paths that a user gave; `problems` are paths where nothing was."""

    snapshots: list[Snapshot] = field(default_factory=list)
    episodes: list[StoredEpisode] = field(default_factory=list)
    videos: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.snapshots) + len(self.videos) + len(self.episodes)


@dataclass(frozen=True, eq=False)
class ScoredFile:
    """The frames of a file that have pictures: probability, verdict, and the true label where it is known."""

    path: Path
    time: npt.NDArray[np.int64]  # number of each frame in its episode or video
    probability: Tensor  # float32 [T]
    success: Tensor  # bool [T]: probability > threshold
    label: npt.NDArray[np.bool_] | None = None
    unsure: npt.NDArray[np.bool_] | None = None  # frames without a true label, in an episode that has labels
    second: npt.NDArray[np.float64] | None = None  # of each frame of a video
    strip: tuple[tuple[int, Frame], ...] = ()  # some frames to look at, with their places among the others

    @property
    def kind(self) -> str:
        return "video" if self.second is not None else "picture" if self.label is None else "episode"

    @property
    def labelled(self) -> npt.NDArray[np.bool_]:
        """Which frames have a true label."""
        if self.label is None:
            return np.zeros(len(self.time), bool)
        return np.ones(len(self.time), bool) if self.unsure is None else ~self.unsure


Result = ScoredFile | Problem


def find_inputs(
    paths: Sequence[str | Path], cameras: Sequence[str], by_camera: Mapping[str, str | Path] | None = None
) -> Inputs:
    """Sort paths into pictures, videos and episodes.

    A directory stands for the episodes below it, else for its pictures, else for its videos.

    A model with several cameras needs a picture of each: `by_camera` names the pictures (a file or a directory) of
    every camera, and the k-th of each belong together.
    """
    inputs = Inputs()
    for path in map(Path, paths):
        try:
            pictures, videos, episodes = _below(path)
        except DataError as error:
            inputs.problems.append(Problem(path, str(error)))
            continue
        if pictures and len(cameras) > 1:
            example = " ".join(f"--camera {camera}=IMAGE" for camera in cameras)
            raise ConfigError(
                f"{pictures[0]} is one picture, but the model looks at {len(cameras)} cameras: expected {example}"
            )
        if videos and len(cameras) > 1:
            raise ConfigError(
                f"{videos[0]} shows one camera, but the model looks at {len(cameras)}: expected pictures or episodes"
            )
        inputs.snapshots.extend({cameras[0]: picture} for picture in pictures)
        inputs.videos.extend(videos)
        inputs.episodes.extend(episodes)
    if by_camera:
        inputs.snapshots.extend(_paired(by_camera, cameras))
    return inputs


def _below(path: Path) -> tuple[list[Path], list[Path], list[StoredEpisode]]:
    if path.suffix.lower() in IMAGE_SUFFIXES and not path.is_dir():
        return [path], [], []
    if path.is_dir() and not episode_paths(path):
        pictures, videos = _pictures(path), sorted(filter(is_video, walk_files(path)))
        if not (pictures or videos):
            suffixes = ", ".join((*IMAGE_SUFFIXES, *VIDEO_SUFFIXES))
            raise DataError(f"{path}: neither episodes nor pictures nor videos ({suffixes}) there or below")
        return pictures, [] if pictures else videos, []
    if path.is_file() and not is_episode_name(path):
        if is_video(path):
            return [], [path], []
        suffixes = ", ".join((*IMAGE_SUFFIXES, *VIDEO_SUFFIXES, *SUFFIXES))
        raise DataError(f"{path} is neither a picture, a video nor an episode; expected a file ending in {suffixes}")
    return [], [], list(read_episodes(path))


def _pictures(path: Path) -> list[Path]:
    return sorted(file for file in walk_files(path) if file.suffix.lower() in IMAGE_SUFFIXES)


def _some_pictures(path: Path) -> list[Path]:
    if not (found := _pictures(path)):
        raise DataError(f"{path}: no pictures ({', '.join(IMAGE_SUFFIXES)}) there or below")
    return found


def _paired(by_camera: Mapping[str, str | Path], cameras: Sequence[str]) -> list[Snapshot]:
    for camera in by_camera:
        if camera not in cameras:
            raise ConfigError(f"--camera: {unknown_name('camera', camera, cameras)}")
    missing = next((camera for camera in cameras if camera not in by_camera), None)
    if missing is not None:
        raise ConfigError(f"--camera: found {', '.join(by_camera)}; the model also looks at '{missing}'")
    pictures = {
        camera: _some_pictures(Path(path)) if Path(path).is_dir() else [Path(path)]
        for camera, path in by_camera.items()
    }
    counts = {camera: len(found) for camera, found in pictures.items()}
    if len(set(counts.values())) > 1:
        raise DataError(f"--camera: different numbers of pictures: {counts}; the k-th of each camera belong together")
    return [dict(zip(pictures, together, strict=True)) for together in zip(*pictures.values(), strict=True)]


def score_files(
    model: SuccessClassifier,
    inputs: Inputs,
    *,
    threshold: float | None = None,
    strip: int = 0,
    every: int = 1,
    progress: Callable[[float], None] = lambda files: None,
) -> Iterator[ScoredFile | Problem]:
    """Score pictures, videos and episodes, one result a file.

    A file that cannot be read is a Problem, as is a path without files. `threshold=None` is the model's own. `strip`
    frames of each episode and video are handed out with its scores; of a video, every n-th frame is scored. `progress`
    is told how many files are done, in fractions. Memory holds one batch of pictures and the numbers of one file.
    """
    (term,) = RewardManager(model, RewardConfig(reward_threshold=threshold)).terms
    yield from inputs.problems
    done = 0
    for done, result in enumerate(_score_snapshots(model, inputs.snapshots, term), start=1):
        yield result
        progress(done)
    for number, video in enumerate(inputs.videos, start=done):
        done = number + 1
        try:
            yield _score_video(model, video, term, strip, every, progress, number)
        except DataError as error:
            yield Problem(video, str(error))
        progress(done)
    tasks = set()
    for number, episode in enumerate(inputs.episodes, start=done):
        try:
            yield _score_episode(model, episode, term, strip, progress, number)
            tasks.add(episode.facts.task)
        except DataError as error:
            yield Problem(episode.path, str(error))
        progress(number + 1)
    warn_about_episodes(model.tasks, tasks)


class _Pictures(NamedTuple):
    """A snapshot that was read, under its first file's name, or why it could not be read."""

    path: Path
    by_camera: dict[str, Frame]
    problem: str = ""

    def shapes(self) -> list[tuple[int, ...]]:
        return [picture.shape for picture in self.by_camera.values()]


def _read(snapshot: Snapshot) -> _Pictures:
    path = next(iter(snapshot.values()))
    try:
        return _Pictures(path, {camera: read_image(file) for camera, file in snapshot.items()})
    except DataError as error:
        return _Pictures(path, {}, str(error))


def _score_snapshots(model: SuccessClassifier, snapshots: list[Snapshot], term: RewardTerm) -> Iterator[Result]:
    """Score pictures, those of one size in a row together."""
    for shapes, group in groupby(map(_read, snapshots), key=_Pictures.shapes):
        while batch := list(islice(group, _frames_at_once(sum(map(math.prod, shapes))))):
            yield from _score_batch(model, batch, term)


def _score_batch(model: SuccessClassifier, batch: list[_Pictures], term: RewardTerm) -> list[ScoredFile | Problem]:
    if batch[0].problem:
        return [Problem(read.path, read.problem) for read in batch]
    pictures = {camera: np.stack([read.by_camera[camera] for read in batch]) for camera in batch[0].by_camera}
    try:
        scores = _probabilities(model, pictures)
    except DataError as error:  # such as pictures three pixels wide
        return [Problem(read.path, str(error)) for read in batch]
    return [
        ScoredFile(read.path, np.zeros(1, np.int64), p[None], term.predicts_success(p[None]))
        for read, p in zip(batch, scores, strict=True)
    ]


def _score_episode(
    model: SuccessClassifier,
    episode: StoredEpisode,
    term: RewardTerm,
    strip: int,
    progress: Callable[[float], None],
    number: int,
) -> ScoredFile:
    facts, time = episode.facts, episode.frame_rows()
    shown = _middles(len(time), strip)
    scores, labels, frames = [], [], []
    start = 0
    size = _frames_at_once(sum(3 * height * width for height, width in facts.cameras.values()))
    for pictures, label in episode.batches(model.image_keys, size):
        scores.append(_probabilities(model, pictures))
        labels.append(label)
        end = start + len(label)
        frames += [(t, pictures[model.image_keys[0]][t - start].copy()) for t in shown if start <= t < end]
        start = end
        progress(number + start / len(time))
    probability = torch.cat(scores)
    success, unsure = term.predicts_success(probability), episode.unsure()[time]
    return ScoredFile(
        episode.path,
        time,
        probability,
        success,
        np.concatenate(labels),
        unsure=unsure if unsure.any() else None,
        strip=tuple(frames),
    )


def _score_video(
    model: SuccessClassifier,
    path: Path,
    term: RewardTerm,
    strip: int,
    every: int,
    progress: Callable[[float], None],
    number: int,
) -> ScoredFile:
    """Score every n-th frame; of a video that ends early, the frames before are scored, with a warning."""
    facts = read_facts(path)
    expected = max(1, int(facts.duration * facts.rate) // every)
    shown = set(_middles(expected, strip))
    chosen = islice(enumerate(_until_broken(path)), 0, None, every)
    size = _frames_at_once(3 * facts.size[0] * facts.size[1])
    scores, frames = [], []
    times: list[int] = []
    seconds: list[float] = []
    while batch := [(t, timed.time, timed.pixels()) for t, timed in islice(chosen, size)]:
        pictures = np.stack([pixels for *_, pixels in batch])
        places = enumerate(batch, start=len(times))
        # The first too, if the video turns out shorter than its header says: a plot has at least one.
        frames += [(place, pixels) for place, (*_, pixels) in places if place in shown or (strip and place == 0)]
        scores.append(_probabilities(model, {model.image_keys[0]: pictures}))
        times += [t for t, *_ in batch]
        seconds += [second for _, second, _ in batch]
        progress(number + min(1.0, len(times) / expected))
    probability = torch.cat(scores)
    success = term.predicts_success(probability)
    kept = frames if len(frames) <= min(strip, expected) else frames[1:]
    return ScoredFile(path, np.array(times), probability, success, second=np.array(seconds), strip=tuple(kept))


def _until_broken(path: Path) -> Iterator[TimedFrame]:
    """Yield the frames of a video that can be read and that have the size of the first."""
    size: tuple[int, int] | None = None
    try:
        for timed in read_frames(path):
            size = size or timed.size
            if timed.size != size:
                warnings.warn(
                    f"{path} changes its frame size at {timed.time:.1f} s; the rest is not scored", stacklevel=2
                )
                return
            yield timed
    except BrokenVideo as error:
        warnings.warn(f"{error}; the frames before are scored", stacklevel=2)


def _middles(length: int, count: int) -> list[int]:
    """The middles of `count` equal parts of an episode; each frame at most once."""
    count = min(count, length)
    return [int((k + 0.5) * length / count) for k in range(count)]


def _frames_at_once(bytes_each: int) -> int:
    return max(1, min(MINI_BATCH, BATCH_BYTES // max(1, bytes_each)))


def _probabilities(model: SuccessClassifier, pictures: Mapping[str, Frame]) -> Tensor:
    probability = model.probabilities(pictures)
    if probability.isnan().any():
        raise ConfigError("the model gives NaN: its weights are broken; use another checkpoint")
    return probability
