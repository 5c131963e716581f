"""What `rewardlab score` prints: a table for people, or every frame as JSON or CSV."""

import csv
import json
from collections.abc import Iterator
from typing import IO, Any, Protocol

import numpy as np

from rewardlab.figures.words import share
from rewardlab.pipelines.score import ScoredFile

COLUMNS = ("file", "frame", "probability", "verdict", "label")
NONE = "-"


class Rows(Protocol):
    """Takes scored files one by one, and writes them as they come."""

    def add(self, scored: ScoredFile) -> None: ...

    def end(self) -> None: ...


class JsonRows:
    """One JSON list with an object for each frame."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._before = "[\n"

    def add(self, scored: ScoredFile) -> None:
        for row in _frame_rows(scored):
            self._out.write(self._before + json.dumps(row))
            self._before = ",\n"

    def end(self) -> None:
        self._out.write("[]\n" if self._before == "[\n" else "\n]\n")


class CsvRows:
    """A header, and a line for each frame; an unknown label is empty."""

    def __init__(self, out: IO[str]) -> None:
        self._writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        self._writer.writeheader()

    def add(self, scored: ScoredFile) -> None:
        self._writer.writerows(_frame_rows(scored))

    def end(self) -> None:
        pass


def _frame_rows(scored: ScoredFile) -> Iterator[dict[str, Any]]:
    # Python's floats hold a float32 exactly, so that a reader gets back the very bits.
    for frame, (probability, success) in enumerate(
        zip(scored.probability.tolist(), scored.success.tolist(), strict=True)
    ):
        label = None if scored.label is None else _word(bool(scored.label[frame]))
        values = (str(scored.path), frame, probability, _word(success), label)
        yield dict(zip(COLUMNS, values, strict=True))


class TableRows:
    """A line for each picture and each episode, or for each frame; a summary at the end."""

    EPISODES = ("frames", "success", "first", "last p", "last", "right")
    FRAMES = ("frame", "p", "verdict", "label")

    def __init__(self, out: IO[str], *, every_frame: bool, threshold: str) -> None:
        self._out = out
        self._every_frame = every_frame
        self._threshold = threshold
        self._header: tuple[str, ...] | None = None
        self._pictures = self._episodes = 0
        self._verdicts = np.zeros((2, 2), np.int64)  # [label, verdict] -> frames

    def add(self, scored: ScoredFile) -> None:
        if scored.label is None:
            self._pictures += 1
        else:
            self._episodes += 1
            np.add.at(self._verdicts, (scored.label.astype(int), scored.success.int().numpy()), 1)
        if scored.label is None or self._every_frame:
            for row in _frame_rows(scored):
                cells = (str(row["frame"]), f"{row['probability']:.4f}", row["verdict"], row["label"] or NONE)
                self._line(self.FRAMES, cells, row["file"])
        else:
            self._line(self.EPISODES, _summary(scored), str(scored.path))

    def _line(self, header: tuple[str, ...], cells: tuple[str, ...], file: str) -> None:
        if header != self._header:
            self._out.write("  ".join(f"{name:>7}" for name in header) + "  file\n")
            self._header = header
        # Names come from files: no terminal codes.
        name = "".join(c if c.isprintable() else "?" for c in file)
        self._out.write("  ".join(f"{cell:>7}" for cell in cells) + f"  {name}\n")

    def end(self) -> None:
        counts = [f"{n:,} {name}{'s' * (n != 1)}" for n, name in _nonzero(self._pictures, self._episodes)]
        if not counts:
            return
        self._out.write(f"\n{' and '.join(counts)}, {self._threshold}.\n")
        if frames := int(self._verdicts.sum()):
            (_, false), (missed, _) = self._verdicts.tolist()
            failures, successes = self._verdicts.sum(axis=1).tolist()
            right = share((frames - false - missed) / frames)
            self._out.write(
                f"{right} of {frames:,} labelled frames judged rightly; called success: {false:,} of {failures:,} "
                f"failures, missed: {missed:,} of {successes:,} successes.\n"
            )


def _nonzero(pictures: int, episodes: int) -> list[tuple[int, str]]:
    return [(n, name) for n, name in ((pictures, "picture"), (episodes, "episode")) if n]


def _summary(scored: ScoredFile) -> tuple[str, ...]:
    assert scored.label is not None
    success = scored.success.numpy()
    return (
        f"{len(success):,}",
        f"{success.sum():,}",
        str(success.argmax()) if success.any() else NONE,
        f"{float(scored.probability[-1]):.4f}",
        _word(bool(success[-1])),
        share(float((success == scored.label).mean())),
    )


def _word(success: bool) -> str:
    return "success" if success else "failure"
