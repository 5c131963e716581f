"""Imports a recording: writes its episodes to a directory, and says what was taken, what was left out, and why."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rewardlab.data.atomic import remove_leftovers
from rewardlab.data.directory_lock import locked
from rewardlab.data.imports.journal import Journal
from rewardlab.data.imports.kinds import open_source
from rewardlab.data.imports.source import ImportOptions
from rewardlab.data.inspection import DatasetSummary, summarize
from rewardlab.data.writer import EpisodeWriter
from rewardlab.errors import DataError


@dataclass
class Imported:
    """What became of a recording."""

    source: Path
    directory: Path
    kind: str
    episodes: int  # of the source
    written_before: int = 0  # by an import that was stopped
    grouping: str = ""  # how frames became episodes, where the source has none
    remarks: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)  # what was done to the episodes -> how often
    dropped: list[tuple[str, str]] = field(default_factory=list)  # episodes that are not there, and why
    left_out: list[tuple[str, str]] = field(default_factory=list)  # parts and files that are in no episode, and why
    summary: DatasetSummary = field(default_factory=DatasetSummary)  # of everything that is in the directory now


def import_recording(
    source: str | Path,
    out: str | Path,
    options: ImportOptions | None = None,
    *,
    progress: Callable[[int, int], None] = lambda episodes, total: None,
) -> Imported:
    """Write the episodes of a recording to `out`; one is in memory at a time.

    Called again after it was stopped, it continues: episodes that are there are not decoded again. `progress` is told
    how many episodes of how many are done.
    """
    options, path, directory = options or ImportOptions(), Path(source), Path(out)
    if directory.resolve().is_relative_to(path.resolve()):
        raise DataError(f"{directory} is inside {path}, which is imported; choose another place for the episodes")
    recording = open_source(path, options)
    with locked(directory, "an import", "Wait until it ends, or choose another directory"):
        remove_leftovers(directory, whoever=True)
        journal = Journal(directory, recording, options)
        journal.open()
        writer = EpisodeWriter(directory, durable=False)
        there = {number for success in (True, False) for _, _, number in writer.identities(journal.run, success)}
        result = Imported(path, directory, recording.kind, len(recording), len(there))
        result.grouping, result.remarks = recording.grouping, recording.remarks
        progress(len(there), len(recording))
        for imported in recording.episodes(frozenset(there)):
            if imported.episode is None:
                result.dropped.append((imported.name, imported.problem))
            else:
                journal.add(imported)
                writer.write(imported.episode.with_origin(journal.run, 0, imported.number))
                there.add(imported.number)
            progress(len(there) + len(result.dropped), len(recording))
        if not there:
            journal.path.unlink()
            raise DataError(f"{path}: no episode of it can be used. {_reasons(result)}")
        result.notes, parts = journal.notes(frozenset(there))
        result.left_out = [*recording.left_out, *parts]
        result.summary = summarize(directory)
    return result


def _reasons(result: Imported) -> str:
    return "; ".join(f"{name}: {why}" for name, why in result.dropped[:3])
