"""What `rewardlab score` prints: a table for people, or every frame as JSON or CSV."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rewardlab.figures.words import share
from rewardlab.keys import UNSURE
from rewardlab.pipelines.score import ScoredFile
from rewardlab.screen import PrintableStream, printable

COLUMNS = ("file", "frame", "probability", "verdict", "label")
SECOND = "second"  # one more column, where there are videos
NONE = "-"
KINDS = ("picture", "video", "episode")
Out = IO[str] | PrintableStream
Lines = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]  # names of the cells, and the cells of each line


def write_json(out: Out, files: Iterable[ScoredFile]) -> None:
    """Write one JSON list with an object for each frame."""
    before = "[\n"
    for scored in files:
        for row in _frame_rows(scored):
            out.write(before + json.dumps(row))
            before = ",\n"
    out.write("[]\n" if before == "[\n" else "\n]\n")


def write_csv(out: Out, files: Iterable[ScoredFile], *, videos: bool = False) -> None:
    """Write a header, and a line for each frame; an unknown label is empty, as is the second of what is no video."""
    writer = csv.DictWriter(out, (*COLUMNS, SECOND) if videos else COLUMNS, lineterminator="\n")
    writer.writeheader()
    for scored in files:
        writer.writerows(_frame_rows(scored))


def _frame_rows(scored: ScoredFile) -> Iterator[dict[str, Any]]:
    # Python's floats hold a float32 exactly, so that a reader gets back the very bits.
    labels = [None] * len(scored.time) if scored.label is None else _words(scored.label, scored.labelled)
    columns = (scored.time.tolist(), scored.probability.tolist(), scored.success.tolist(), labels)
    seconds = [{}] * len(labels) if scored.second is None else [{SECOND: round(t, 3)} for t in scored.second.tolist()]
    for (frame, probability, success, label), second in zip(zip(*columns, strict=True), seconds, strict=True):
        values = (str(scored.path), frame, probability, _word(success), label)
        yield {**dict(zip(COLUMNS, values, strict=True)), **second}


def write_table(out: Out, files: Iterable[ScoredFile], *, every_frame: bool, threshold: str) -> None:
    """Write a line for each picture, video and episode, or for each frame, and a summary at the end."""
    counts = Counter[str]()
    verdicts = np.zeros((2, 2), np.int64)  # [label, verdict] -> frames
    header: tuple[str, ...] = ()
    for scored in files:
        counts[scored.kind] += 1
        if scored.label is not None:
            known = scored.labelled
            np.add.at(verdicts, (scored.label[known].astype(int), scored.success.int().numpy()[known]), 1)
        names, lines = _frame_lines(scored) if scored.kind == "picture" or every_frame else _episode_line(scored)
        if names != header:
            header = names
            out.write("  ".join(f"{name:>7}" for name in header) + "  file\n")
        file = printable(scored.path)
        for cells in lines:
            out.write("  ".join(f"{cell:>7}" for cell in cells) + f"  {file}\n")
    if counts:
        kinds = [f"{counts[kind]:,} {kind}{'s' * (counts[kind] != 1)}" for kind in KINDS if counts[kind]]
        found = " and ".join(filter(None, [", ".join(kinds[:-1]), kinds[-1]]))
        out.write(f"\n{found}, {threshold}.\n")
    if frames := int(verdicts.sum()):
        (_, false), (missed, _) = verdicts.tolist()
        failures, successes = verdicts.sum(axis=1).tolist()
        out.write(
            f"{share((frames - false - missed) / frames)} of {frames:,} labelled frames judged rightly; called "
            f"success: {false:,} of {failures:,} failures, missed: {missed:,} of {successes:,} successes.\n"
        )


def _frame_lines(scored: ScoredFile) -> Lines:
    rows = list(_frame_rows(scored))
    cells = [(str(r["frame"]), f"{r['probability']:.4f}", r["verdict"], r["label"] or NONE) for r in rows]
    if scored.second is None:
        return ("frame", "p", "verdict", "label"), cells
    seconds = [f"{row[SECOND]:.2f}" for row in rows]
    return ("second", "frame", "p", "verdict", "label"), [(s, *cell) for s, cell in zip(seconds, cells, strict=True)]


def _episode_line(scored: ScoredFile) -> Lines:
    success, known = scored.success.numpy(), scored.labelled
    first = NONE
    if success.any():
        place = success.argmax()
        first = str(scored.time[place]) if scored.second is None else f"{scored.second[place]:.2f} s"
    cells = (
        f"{len(success):,}",
        f"{success.sum():,}",
        first,
        f"{float(scored.probability[-1]):.4f}",
        _word(bool(success[-1])),
        share(float((success == scored.label)[known].mean())) if known.any() else NONE,
    )
    return ("frames", "success", "first", "last p", "last", "right"), [cells]


def _words(labels: npt.NDArray[np.bool_], known: npt.NDArray[np.bool_]) -> list[str]:
    return [_word(bool(label)) if sure else UNSURE for label, sure in zip(labels, known, strict=True)]


def _word(success: bool) -> str:
    return "success" if success else "failure"
