"""Labels of videos: a CSV or JSON file with ranges of time, and the label of any moment."""

import codecs
import csv
import io
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rewardlab.data.imports.labels import LABELS, Label
from rewardlab.errors import DataError
from rewardlab.input_files import read_file
from rewardlab.limits import excerpt, listed
from rewardlab.registry import nearest_name

EXAMPLE = "video,start,end,label, such as: take1.mp4,0:12.5,0:15,success"


@dataclass(frozen=True)
class TimeRange:
    """A part of a video, in seconds; `end` itself is outside of it. `line` says where it was written."""

    start: float
    end: float
    label: Label
    line: str


@dataclass(frozen=True)
class Timeline:
    """The label of every moment of a video."""

    ranges: tuple[TimeRange, ...]  # by time; they do not overlap
    rest: Label
    unsure_seconds: float = 0.0  # on both sides of each change from success to failure or back

    def label(self, time: float) -> Label:
        """Return the label at a time in seconds."""
        if any(abs(time - change) < self.unsure_seconds for change in self._changes):
            return "unsure"
        return self._marked(time)

    def attempt_ends(self) -> list[float]:
        """Return where a success is over: what follows is another attempt."""
        edges = [edge for part in self.ranges for edge in (part.start, part.end)]
        succeeded, ends = False, []
        for edge in sorted(set(edges)):
            label = self._marked(edge)
            if succeeded and label == "failure":
                ends.append(edge)
            succeeded = label == "success" or (succeeded and label == "unsure")
        return ends

    @property
    def _changes(self) -> list[float]:
        edges = sorted({edge for part in self.ranges for edge in (part.start, part.end)})
        before = [self._marked(edge - 1e-6) for edge in edges]
        changes = [{label, self._marked(edge)} for edge, label in zip(edges, before, strict=True)]
        return [edge for edge, both in zip(edges, changes, strict=True) if both == {"success", "failure"}]

    def _marked(self, time: float) -> Label:
        return next((part.label for part in self.ranges if part.start <= time < part.end), self.rest)


def read_ranges(path: Path, videos: Sequence[str]) -> dict[str, list[TimeRange]]:
    """Return the ranges by the name of their video; a DataError names the line that is wrong, and what it should be.

    A file that names no video is about the only one.
    """
    text = _decode(read_file(path))
    rows = _json_rows(path, text) if path.suffix.lower() == ".json" else _csv_rows(path, text)
    ranges: dict[str, list[TimeRange]] = defaultdict(list)
    for where, row in rows:
        ranges[_video(where, row.get("video"), videos)].append(_read(where, row))
    if not ranges:
        raise DataError(f"{path} has no ranges; expected lines of {EXAMPLE}")
    return {video: _in_order(found) for video, found in ranges.items()}


def seconds(text: str) -> float:
    """Return a time in seconds: "72.5", "1:12.5" or "0:01:12.5"."""
    if not re.fullmatch(r"(\d+:){0,2}\d+(\.\d+)?", text):
        raise ValueError(text)
    total = 0.0
    for part in text.split(":"):
        total = 60 * total + float(part)
    return total


def _decode(content: bytes) -> str:
    spreadsheet = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # Excel's "Unicode text"
    return content.decode("utf-16" if spreadsheet else "utf-8-sig", errors="replace")


def _csv_rows(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    head = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=head.count)
    lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    names = [name.strip().lower() for name in lines[0]] if lines else []
    if missing := [name for name in ("start", "end", "label") if name not in names]:
        raise DataError(f"{path}: no column '{missing[0]}'; found {listed(names) or 'nothing'}, expected {EXAMPLE}")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        cells = [cell.strip() for cell in line]
        if any(cells):
            row = dict(zip(names, cells, strict=False))
            if delimiter == ";":  # spreadsheets that write so have decimal commas
                row |= {name: row.get(name, "").replace(",", ".") for name in ("start", "end")}
            rows.append((f"{path}, line {number}", row))
    return rows


def _json_rows(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({excerpt(error)})") from error
    if isinstance(content, dict):  # by video
        content = [{"video": video, **row} for video, rows in content.items() for row in _dictionaries(path, rows)]
    return [(f"{path}, entry {number}", row) for number, row in enumerate(_dictionaries(path, content), start=1)]


def _dictionaries(path: Path, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        example = '[{"video": "take1.mp4", "start": 12.5, "end": 15, "label": "success"}]'
        raise DataError(f"{path}: found {excerpt(value)}, expected a list such as {example}")
    return value


def _video(where: str, name: Any, videos: Sequence[str]) -> str:
    if name in (None, ""):
        if len(videos) == 1:
            return videos[0]
        raise DataError(f"{where}: names no video, and there are {len(videos)}; expected {EXAMPLE}")
    wanted = _plain(str(name))
    # By the whole name, by the name of the file, and without its suffix; these are compared, never opened.
    for part in (lambda video: video, lambda video: Path(video).name, lambda video: Path(video).stem):
        found = [video for video in videos if _plain(part(video)) == wanted]
        if len(found) == 1:
            return found[0]
        if found:
            raise DataError(f"{where}: '{excerpt(name)}' may be {listed(found)}; write the folder too")
    near = nearest_name(wanted, videos)
    hint = f"; did you mean '{near}'?" if near else ""
    raise DataError(f"{where}: no video '{excerpt(name)}'; found {listed(videos)}{hint}")


def _plain(name: str) -> str:
    """Return a name in one form: file systems and spreadsheets write umlauts differently."""
    return unicodedata.normalize("NFC", name).replace("\\", "/").removeprefix("./")


def _read(where: str, row: dict[str, Any]) -> TimeRange:
    label = str(row.get("label", "")).strip().lower()
    if label not in LABELS:
        raise DataError(f"{where}: label '{excerpt(row.get('label'))}'; expected {', '.join(LABELS)}")
    end = row.get("end")
    start = _time(where, "start", row.get("start"))
    end = _time(where, "end", end) if end not in (None, "") else float("inf")  # until the video ends
    if end <= start:
        raise DataError(f"{where}: ends at {end:g} s, before it begins at {start:g} s")
    return TimeRange(start, end, label, where)


def _time(where: str, name: str, value: Any) -> float:
    try:
        return seconds(str(value).strip())
    except ValueError:
        raise DataError(f"{where}: {name} '{excerpt(value)}'; expected seconds (72.5) or minutes (1:12.5)") from None


def _in_order(ranges: list[TimeRange]) -> list[TimeRange]:
    ordered = sorted(ranges, key=lambda part: (part.start, part.end))
    for one, other in pairwise(ordered):
        if other.start < one.end and other.label != one.label:
            until = f"{one.line} says {one.label} until {one.end:g} s"
            raise DataError(f"{other.line}: {other.label} from {other.start:g} s, but {until}")
    return ordered
