"""Videos, with labels from ranges of time.

A video is cut into episodes where a success is over (what follows is another attempt), and where an episode would get
so long that it fills the memory. A cut is a time that is known before anything is decoded, so that an import that was
stopped continues in the middle of a video.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from rewardlab.data.episodes import UNKNOWN, Episode
from rewardlab.data.imports.blocks import frames_of_a_block
from rewardlab.data.imports.files import find_files
from rewardlab.data.imports.labels import ALIASES, Label, label_columns
from rewardlab.data.imports.source import ImportedEpisode, ImportOptions, Source, camera_name
from rewardlab.data.imports.time_ranges import Timeline, TimeRange, read_ranges
from rewardlab.data.video import BrokenVideo, TimedFrame, VideoFacts, ends_early, is_video, read_facts, read_frames
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_sizes import resize_picture
from rewardlab.keys import IMAGES
from rewardlab.limits import listed

BEYOND = 0.5  # seconds by which a range may end behind its video without a word
END = float("inf")
CLASS_NAMES = {name for names in ALIASES.values() for name in names}


@dataclass(frozen=True)
class _Video:
    path: Path
    name: str  # below the directory
    facts: VideoFacts
    timeline: Timeline
    cuts: tuple[float, ...]  # from 0 to the end; between two of them is an episode


class _Part(NamedTuple):
    """An episode of a video, from one time to another."""

    number: int
    start: float
    end: float


class Videos(Source):
    """A video, or a directory of them."""

    kind: ClassVar[str] = "videos"
    looks_for: ClassVar[str] = "a video (MP4, MKV, AVI, WebM), or a directory of videos"
    reads: ClassVar[frozenset[str]] = frozenset(
        {"success", "failure", "labels", "rest", "every", "unsure_seconds", "cameras"}
    )

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether it is a video, or has some and no more files of other kinds than that."""
        files = find_files(path).files
        return bool(files) and 2 * sum(map(is_video, files)) >= len(files)

    def __init__(self, path: Path, options: ImportOptions) -> None:
        super().__init__(path, options)
        self.options = options
        self.camera = camera_name(options)
        files, self.left_out = find_files(path)
        facts = self._read_headers([file for file in files if is_video(file)])
        self.left_out += [(self._name(file), "not a video") for file in files if not is_video(file)]
        if not facts:
            raise DataError(f"{path}: no video can be read. " + "; ".join(why for _, why in self.left_out[:3]))
        self._videos = self._plan(facts)
        self.grouping = (
            f"videos cut into {len(self)} episodes, where a success is over and where an episode would get too long; a "
            "cut of the second kind has look-alikes on both sides"
        )
        self.remarks += [*filter(None, [options.size.describe(self._recorded)]), *self._remarks()]

    def __len__(self) -> int:
        return sum(len(video.cuts) - 1 for video in self._videos)

    def episodes(self, skip: frozenset[int]) -> Iterator[ImportedEpisode]:
        number = 0
        for video in self._videos:
            spans = enumerate(pairwise(video.cuts), start=number)
            parts = [_Part(part, start, end) for part, (start, end) in spans if part not in skip]
            number += len(video.cuts) - 1
            yield from self._read_video(video, parts)

    def files(self) -> list[Path]:
        return find_files(self.path).files

    def _name(self, file: Path) -> str:
        return file.name if file == self.path else file.relative_to(self.path).as_posix()

    def _read_headers(self, files: list[Path]) -> dict[Path, VideoFacts]:
        found: dict[Path, VideoFacts] = {}
        for file in files:
            try:
                facts = read_facts(file)
            except DataError as error:
                self.left_out.append((self._name(file), str(error)))
                continue
            if not found:
                self._recorded = facts.size
            first = next(iter(found), file)
            self.options.size.check_same(self._recorded, str(first), facts.size, str(file))
            found[file] = facts
        return found

    def _plan(self, facts: dict[Path, VideoFacts]) -> list[_Video]:
        """Return the videos with their labels and cuts."""
        options, names = self.options, {self._name(file): file for file in facts}
        given = {} if options.labels is None else read_ranges(options.labels, list(names))
        whole = _labels_by_name(list(names), options)
        self._unlabelled = [name for name in names if name not in given and name not in whole]
        failures_given = any(part.label == "failure" for parts in given.values() for part in parts)
        self._rest: Label = options.rest or ("unsure" if failures_given or not given else "failure")
        videos = []
        for name, file in names.items():
            ranges = [self._within(part, name, facts[file]) for part in given.get(name, ())]
            rest = whole.get(name, self._rest if name in given or options.rest else "unsure")
            timeline = Timeline(tuple(ranges), rest, options.unsure_seconds or 0.0)
            cuts = _cuts(facts[file], timeline, frames_of_a_block(options.size.of(facts[file].size)) * options.every)
            videos.append(_Video(file, name, facts[file], timeline, cuts))
        return videos

    def _within(self, part: TimeRange, name: str, facts: VideoFacts) -> TimeRange:
        if part.start >= facts.duration:
            raise DataError(f"{part.line}: begins at {part.start:g} s, but {name} ends at {facts.duration:.1f} s")
        if END > part.end > facts.duration + BEYOND:
            self.left_out.append((part.line, f"ends at {part.end:g} s, but {name} ends at {facts.duration:.1f} s"))
        return part

    def _remarks(self) -> Iterator[str]:
        if self.options.labels is not None:
            yield f"outside of the ranges: {self._rest} (--rest success|failure|unsure)"
        if self._unlabelled and self.options.labels is not None and not self.options.rest:
            names = listed(self._unlabelled, 3)
            yield f"unsure, as {self.options.labels.name} does not name them: {names}; --rest failure labels them too"
        classes = {part for name in self._unlabelled for part in Path(name).parts[:-1]} & CLASS_NAMES
        if classes and not self.options.rest:
            yield (
                f"a folder {' or '.join(sorted(classes))} does not label its videos, as a video of a success begins "
                "without one: --failure NAME or --success NAME labels every frame of them"
            )
        if self._unlabelled and self.options.labels is None and not self.options.rest:
            yield "no labels: every frame is unsure. --labels FILE.csv says when success is: video,start,end,label"

    def _read_video(self, video: _Video, parts: list[_Part]) -> Iterator[ImportedEpisode]:
        size, any_size = self.options.size.of(self._recorded), self.options.size.wanted is not None
        reader = _PartReader(video, any_size)
        for part in parts:
            told = reader.problem
            name = f"{video.name}, {part.start:.1f} s to {min(part.end, video.facts.duration):.1f} s"
            frames, times = [], []
            for count, timed in enumerate(reader.read(part.start, part.end)):
                if count % self.options.every == 0:
                    frames.append(resize_picture(timed.pixels(), size))
                    times.append(timed.time)
            if not frames:
                yield ImportedEpisode(part.number, name, None, reader.problem or "no frames in it")
                continue
            left_out = () if reader.problem == told else ((video.name, reader.problem),)
            columns = {
                IMAGES + self.camera: np.stack(frames),
                **label_columns([video.timeline.label(t) for t in times]),
            }
            episode = Episode.from_columns(columns, task=self.options.task or UNKNOWN)
            yield ImportedEpisode(part.number, name, episode, left_out=left_out)


class _PartReader:
    """Reads a video part by part; parts that follow each other are decoded in one go.

    `problem` says why there are no more frames before the video should end.
    """

    def __init__(self, video: _Video, any_size: bool) -> None:
        self.problem = ""
        self._video, self._any_size = video, any_size
        self._frames: Iterator[TimedFrame] = iter(())
        self._waiting: list[TimedFrame] = []  # was decoded, and belongs to the next part
        self._at = -1.0  # where the decoder is
        self._last = 0.0

    def read(self, start: float, end: float) -> Iterator[TimedFrame]:
        if self.problem:
            return
        if start != self._at:
            self._frames, self._waiting, self._last = read_frames(self._video.path, start), [], start
        self._at = end
        try:
            for timed in chain(self._waiting, self._frames):
                self._waiting = []
                if timed.time >= end:
                    self._waiting = [timed]
                    return
                if self._has_another_size(timed):
                    return
                self._last = timed.time
                yield timed
        except BrokenVideo as error:
            self.problem = f"ends early: {error}"
            return
        if ends_early(self._video.facts, self._last):
            self.problem = f"ends early: {self._last:.1f} of {self._video.facts.duration:.1f} s could be read"

    def _has_another_size(self, timed: TimedFrame) -> bool:
        if timed.size == self._video.facts.size or self._any_size:
            return False
        sizes = "{}x{} to {}x{}".format(*self._video.facts.size, *timed.size)
        self.problem = f"changes its frame size from {sizes} at {timed.time:.1f} s; what follows is left out"
        return True


def _cuts(facts: VideoFacts, timeline: Timeline, most: int) -> tuple[float, ...]:
    """Return where a video is cut into episodes of at most `most` frames, its beginning and its end included.

    An attempt that is too long is cut from its end, where the success is, so that a success is torn last.
    """
    behind = facts.duration - 1.5 / facts.rate  # no frames begin there
    attempts = [0.0, *(end for end in timeline.attempt_ends() if 0 < end < behind), facts.duration]
    cuts = [0.0]
    for start, end in pairwise(attempts):
        pieces = max(1, ceil((end - start) * facts.rate / most))
        cuts += [end - number * most / facts.rate for number in reversed(range(pieces))]
    return (*cuts[:-1], END)


def _labels_by_name(videos: list[str], options: ImportOptions) -> dict[str, Label]:
    """Return the labels of whole videos, for those that the command line names by file or folder."""
    found: dict[str, Label] = {}
    named: dict[Label, tuple[str, ...]] = {"success": options.success, "failure": options.failure}
    for label, names in named.items():
        for name in names:
            same = [video for video in videos if name in {*Path(video).parts, Path(video).stem}]
            if not same:
                raise ConfigError(f"--{label}: no video or folder is called '{name}'; found {listed(videos)}")
            if both := [video for video in same if found.get(video, label) != label]:
                raise ConfigError(f"'{both[0]}' is named by both --success and --failure")
            found |= dict.fromkeys(same, label)
    return found
