"""Score files: the probability of success of every frame of pictures and episodes, and the verdict on it."""

import math
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
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.snapshots) + len(self.episodes)


@dataclass(frozen=True, eq=False)
class ScoredFile:
    """The frames of a file that have pictures: probability, verdict, and the true label where it is known."""

    path: Path
    time: npt.NDArray[np.int64]  # of each frame in its episode
    probability: Tensor  # float32 [T]
    success: Tensor  # bool [T]: probability > threshold
    label: npt.NDArray[np.bool_] | None = None
    strip: tuple[tuple[int, Frame], ...] = ()  # some frames to look at, with their places among the others


Result = ScoredFile | Problem


def find_inputs(
    paths: Sequence[str | Path], cameras: Sequence[str], by_camera: Mapping[str, str | Path] | None = None
) -> Inputs:
    """Sort paths into pictures and episodes. A directory stands for the episodes below it, else for its pictures.

    A model with several cameras needs a picture of each: `by_camera` names the pictures (a file or a directory) of
    every camera, and the k-th of each belong together.
    """
    inputs = Inputs()
    for path in map(Path, paths):
        try:
            pictures, episodes = _below(path)
        except DataError as error:
            inputs.problems.append(Problem(path, str(error)))
            continue
        if pictures and len(cameras) > 1:
            example = " ".join(f"--camera {camera}=IMAGE" for camera in cameras)
            raise ConfigError(
                f"{pictures[0]} is one picture, but the model looks at {len(cameras)} cameras: expected {example}"
            )
        inputs.snapshots.extend({cameras[0]: picture} for picture in pictures)
        inputs.episodes.extend(episodes)
    if by_camera:
        inputs.snapshots.extend(_paired(by_camera, cameras))
    return inputs


def _below(path: Path) -> tuple[list[Path], list[StoredEpisode]]:
    if path.suffix.lower() in IMAGE_SUFFIXES and not path.is_dir():
        return [path], []
    if path.is_dir() and not episode_paths(path):
        return _pictures(path), []
    if path.is_file() and not is_episode_name(path):
        suffixes = ", ".join((*IMAGE_SUFFIXES, *SUFFIXES))
        raise DataError(f"{path} is neither a picture nor an episode; expected a file ending in {suffixes}")
    return [], list(read_episodes(path))


def _pictures(path: Path) -> list[Path]:
    found = sorted(file for file in walk_files(path) if file.suffix.lower() in IMAGE_SUFFIXES)
    if not found:
        raise DataError(f"{path}: neither episodes nor pictures ({', '.join(IMAGE_SUFFIXES)}) there or below")
    return found


def _paired(by_camera: Mapping[str, str | Path], cameras: Sequence[str]) -> list[Snapshot]:
    for camera in by_camera:
        if camera not in cameras:
            raise ConfigError(f"--camera: {unknown_name('camera', camera, cameras)}")
    missing = next((camera for camera in cameras if camera not in by_camera), None)
    if missing is not None:
        raise ConfigError(f"--camera: found {', '.join(by_camera)}; the model also looks at '{missing}'")
    pictures = {
        camera: _pictures(Path(path)) if Path(path).is_dir() else [Path(path)] for camera, path in by_camera.items()
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
    progress: Callable[[float], None] = lambda files: None,
) -> Iterator[ScoredFile | Problem]:
    """Score pictures and episodes, one result a file; one that cannot be read is a Problem, as are paths without files.

    `threshold=None` is the model's own. `strip` frames of each episode are handed out with its scores. `progress` is
    told how many files are done, in fractions. Memory holds one batch of pictures and the numbers of one episode.
    """
    (term,) = RewardManager(model, RewardConfig(reward_threshold=threshold)).terms
    yield from inputs.problems
    done = 0
    for done, result in enumerate(_score_snapshots(model, inputs.snapshots, term), start=1):
        yield result
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
    return ScoredFile(
        episode.path, time, probability, term.predicts_success(probability), np.concatenate(labels), tuple(frames)
    )


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
