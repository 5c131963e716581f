"""What `rewardlab score` prints: a table for people, or every frame as JSON or CSV."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from rewardlab.figures.words import share
from rewardlab.pipelines.score import ScoredFile
from rewardlab.screen import PrintableStream, printable

COLUMNS = ("file", "frame", "probability", "verdict", "label")
NONE = "-"
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


def write_csv(out: Out, files: Iterable[ScoredFile]) -> None:
    """Write a header, and a line for each frame; an unknown label is empty."""
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for scored in files:
        writer.writerows(_frame_rows(scored))


def _frame_rows(scored: ScoredFile) -> Iterator[dict[str, Any]]:
    # Python's floats hold a float32 exactly, so that a reader gets back the very bits.
    labels = [None] * len(scored.time) if scored.label is None else [_word(bool(label)) for label in scored.label]
    columns = (scored.time.tolist(), scored.probability.tolist(), scored.success.tolist(), labels)
    for frame, probability, success, label in zip(*columns, strict=True):
        values = (str(scored.path), frame, probability, _word(success), label)
        yield dict(zip(COLUMNS, values, strict=True))


def write_table(out: Out, files: Iterable[ScoredFile], *, every_frame: bool, threshold: str) -> None:
    """Write a line for each picture and each episode, or for each frame, and a summary at the end."""
    counts = Counter[str]()
    verdicts = np.zeros((2, 2), np.int64)  # [label, verdict] -> frames
    header: tuple[str, ...] = ()
    for scored in files:
        counts["picture" if scored.label is None else "episode"] += 1
        if scored.label is not None:
            np.add.at(verdicts, (scored.label.astype(int), scored.success.int().numpy()), 1)
        names, lines = _frame_lines(scored) if scored.label is None or every_frame else _episode_line(scored)
        if names != header:
            header = names
            out.write("  ".join(f"{name:>7}" for name in header) + "  file\n")
        file = printable(scored.path)
        for cells in lines:
            out.write("  ".join(f"{cell:>7}" for cell in cells) + f"  {file}\n")
    if counts:
        found = " and ".join(f"{n:,} {kind}{'s' * (n != 1)}" for kind, n in sorted(counts.items(), reverse=True))
        out.write(f"\n{found}, {threshold}.\n")
    if frames := int(verdicts.sum()):
        (_, false), (missed, _) = verdicts.tolist()
        failures, successes = verdicts.sum(axis=1).tolist()
        out.write(
            f"{share((frames - false - missed) / frames)} of {frames:,} labelled frames judged rightly; called "
            f"success: {false:,} of {failures:,} failures, missed: {missed:,} of {successes:,} successes.\n"
        )


def _frame_lines(scored: ScoredFile) -> Lines:
    rows = _frame_rows(scored)
    cells = [(str(r["frame"]), f"{r['probability']:.4f}", r["verdict"], r["label"] or NONE) for r in rows]
    return ("frame", "p", "verdict", "label"), cells


def _episode_line(scored: ScoredFile) -> Lines:
    assert scored.label is not None
    success = scored.success.numpy()
    cells = (
        f"{len(success):,}",
        f"{success.sum():,}",
        str(scored.time[success.argmax()]) if success.any() else NONE,
        f"{float(scored.probability[-1]):.4f}",
        _word(bool(success[-1])),
        share(float((success == scored.label).mean())),
    )
    return ("frames", "success", "first", "last p", "last", "right"), [cells]


def _word(success: bool) -> str:
    return "success" if success else "failure"
