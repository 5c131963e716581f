"""The file beside imported episodes that says what they were made from, so that an import can be continued.

Its first line describes the source and the options; each further one an episode, written before the episode is.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rewardlab.data.imports.source import ImportedEpisode, ImportOptions, Source
from rewardlab.errors import DataError
from rewardlab.limits import excerpt

JOURNAL = "import.jsonl"
VERSION = 1


class Journal:
    """What is known of the import in a directory; `run` names it in the origins of its episodes."""

    def __init__(self, directory: Path, source: Source, options: ImportOptions) -> None:
        self.path = directory / JOURNAL
        self._header = {
            "version": VERSION,
            "source": str(source.path.absolute()),
            "kind": source.kind,
            "grouping": source.grouping,
            "options": _describe(options),
            "files": _fingerprint(source),
        }
        same = {name: self._header[name] for name in ("kind", "options", "files")}
        self.run = "import-" + _digest(same)

    def open(self) -> None:
        """Begin the journal, or check that the import that began it was of the same files, with the same options."""
        lines = _lines(self.path)
        if not lines:
            if any(entry.name != self.path.name and not entry.name.startswith(".") for entry in _entries(self.path)):
                raise DataError(
                    f"{self.path.parent} is not empty, and no import began it; choose a directory that does not exist "
                    "yet, and name both behind `rewardlab train-reward --data`"
                )
            self.path.write_text(json.dumps(self._header) + "\n", encoding="utf-8")
            return
        before, out = lines[0], self.path.parent
        advice = f"Import into another directory, or remove {out} to begin again"
        for name, words in (("version", "by another version of rewardlab"), ("kind", "of another kind of recording")):
            if before.get(name) != self._header[name]:
                raise DataError(f"{out} has an import {words} ({excerpt(before.get(name))}). {advice}")
        if before.get("options") != self._header["options"]:
            raise DataError(f"{out} was imported with {_differences(before.get('options'), self._header)}. {advice}")
        if before.get("files") != self._header["files"]:
            raise DataError(
                f"{out} was imported from {before.get('source')}, whose files are not those of {self._header['source']}"
                f" now: some were added, removed or changed. {advice}"
            )
        if not self.path.read_bytes().endswith(b"\n"):  # killed while it wrote a line
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n")

    def add(self, imported: ImportedEpisode) -> None:
        """Note what was done to an episode, and what of it was left out."""
        line = {"number": imported.number, "notes": imported.notes, "left_out": imported.left_out}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def notes(self, numbers: frozenset[int]) -> tuple[Counter[str], list[tuple[str, str]]]:
        """Return what was done to these episodes, how often, and what of them was left out and why."""
        last = {line["number"]: line for line in _lines(self.path)[1:] if line.get("number") in numbers}
        notes: Counter[str] = Counter()
        for line in last.values():
            notes.update(line["notes"])
        return notes, [(name, why) for line in last.values() for name, why in line["left_out"]]


def read_grouping(paths: Sequence[str | Path]) -> list[str]:
    """Return how the frames in some directories became episodes, where an import had to decide it."""
    found = [(path, line) for path in paths for line in _lines(Path(path, JOURNAL))[:1]]
    return [f"{path}: {excerpt(line['grouping'])}" for path, line in found if line.get("grouping")]


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines that are whole."""
    return list(_whole(path.read_text(encoding="utf-8", errors="replace").splitlines())) if path.is_file() else []


def _whole(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with suppress(ValueError, RecursionError):
            content = json.loads(line)
            if isinstance(content, dict):
                yield content


def _entries(path: Path) -> list[Path]:
    return list(path.parent.iterdir()) if path.parent.is_dir() else []


def _describe(options: ImportOptions) -> dict[str, Any]:
    values = asdict(options)
    if options.labels is not None:
        values["labels"] = hashlib.sha256(options.labels.read_bytes()).hexdigest()[:16]
    return json.loads(json.dumps(values))


def _fingerprint(source: Source) -> str:
    """Return a digest of names, sizes and times of the files: reading them would take as long as importing them."""
    place = source.path if source.path.is_dir() else source.path.parent
    seen = [(file.relative_to(place).as_posix(), file.stat()) for file in source.files()]
    return _digest([[name, status.st_size, status.st_mtime_ns] for name, status in seen])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _differences(before: Any, header: dict[str, Any]) -> str:
    now = header["options"]
    old = before if isinstance(before, dict) else {}
    changed = [f"{name} {json.dumps(old.get(name))[:60]}, not {json.dumps(now[name])[:60]}" for name in now]
    return "; ".join(text for text, name in zip(changed, now, strict=True) if old.get(name) != now[name]) or "others"
