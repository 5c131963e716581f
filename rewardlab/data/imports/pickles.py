"""Success and failure pickles, as HIL-SERL and SERL record them to train their classifiers.

Each file is a list of transitions of one class, in the order of time. The two lists of a session are put into one
order again: a transition begins with the observation that the one before it ended with. So frames beside a pressed key
are known, and the episodes of the robot. Where the observations of lists do not join, blocks of time are the episodes.
"""

import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rewardlab import unpickle
from rewardlab.data.episodes import UNKNOWN, Array, Columns, Episode
from rewardlab.data.imports.blocks import frames_of_a_block
from rewardlab.data.imports.files import find_files
from rewardlab.data.imports.grouping import PLENTY
from rewardlab.data.imports.labels import Label, label_columns
from rewardlab.data.imports.picture_size import Size
from rewardlab.data.imports.source import ImportedEpisode, ImportOptions, Source
from rewardlab.data.recordings import UNREADABLE, read_observations
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_sizes import resize_picture
from rewardlab.input_files import open_file
from rewardlab.keys import IMAGES
from rewardlab.limits import excerpt, listed

SUFFIXES = (".pkl", ".pickle")
WORDS: dict[Label, str] = {"success": r"success(es)?|goals?", "failure": r"fail(ed|ure|ures)?"}
RATE = 10  # steps a second of both projects' robots; the files do not say it
REACTION = 0.4  # seconds: how long before or after the moment that it judges a key may be pressed
BLOCK = 10 * RATE  # transitions, where observations do not tell episodes apart


class _Step(NamedTuple):
    """A transition in the order of time: of which list, and how it is used."""

    success: bool
    label: Label
    episode: int


@dataclass
class _Session:
    """The lists of one recording, and its transitions in the order of time."""

    name: str
    files: dict[bool, Path]  # by success
    steps: list[_Step] = field(default_factory=list)
    problem: dict[bool, tuple[int, str]] = field(default_factory=dict)  # of a list: its first bad transition, and why


class _Transition(NamedTuple):
    """The pictures of a transition before and after its step."""

    before: dict[str, Array]
    after: dict[str, Array]


class Pickles(Source):
    """Pickles of successes and of failures."""

    kind: ClassVar[str] = "success and failure pickles"
    looks_for: ClassVar[str] = "lists of transitions in *success*.pkl and *failure*.pkl (HIL-SERL, SERL)"
    reads: ClassVar[frozenset[str]] = frozenset({"success", "failure", "align", "unsure_seconds", "cameras"})

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether there are pickles whose names say a class, and the first is a list of transitions."""
        files = [file for file in find_files(path).files if file.suffix in SUFFIXES]
        if path.is_dir():
            files = [file for file in files if _class_of(file, (), ())] or files
        return bool(files) and _has_transitions(files[0])

    def __init__(self, path: Path, options: ImportOptions) -> None:
        super().__init__(path, options)
        self.options = options
        files, self.left_out = find_files(path)
        self._sizes: dict[str, Size] = {}
        self._sessions = self._pair(files)
        first = 0
        for session in self._sessions:
            first = self._plan(session, first)
        self._count = first
        if not first:
            raise DataError(f"{path}: no transition can be read. " + "; ".join(why for _, why in self.left_out[:3]))
        self.remarks += filter(None, map(options.size.describe, self._sizes.values()))
        self.remarks.append(f"a success is what a transition of {self._words()} shows; --align same|next chooses")

    def __len__(self) -> int:
        return self._count

    def episodes(self, skip: frozenset[int]) -> Iterator[ImportedEpisode]:
        for session in self._sessions:
            lists = {success: self._read(file, session, success) for success, file in session.files.items()}
            running: list[tuple[_Step, dict[str, Array]]] = []
            for step in session.steps:
                transition = next(lists[step.success])
                if running and step.episode != running[0][0].episode:
                    yield self._episode(session, running)
                    running = []
                if step.episode not in skip:
                    later = step.success and self._uses_next(session)
                    running.append((step, transition.after if later else transition.before))
            if running:
                yield self._episode(session, running)

    def _pair(self, files: list[Path]) -> list[_Session]:
        """Return the sessions: of files whose names differ in the class, and in a count, alone."""
        found: dict[str, dict[bool, list[Path]]] = defaultdict(lambda: defaultdict(list))
        for file in files:
            label = _class_of(file, self.options.success, self.options.failure)
            if file.suffix not in SUFFIXES or label is None:
                why = "not a pickle" if file.suffix not in SUFFIXES else "its name says neither success nor failure"
                self.left_out.append((self._name(file), why))
                continue
            found[_session_name(file)][label == "success"].append(file)
        if not found:
            raise DataError(
                f"{self.path}: no pickle's name says success or failure; say it by --success or --failure NAME"
            )
        sessions = []
        for name, lists in found.items():
            for number in range(max(map(len, lists.values()))):
                chosen = {key: paths[number] for key, paths in lists.items() if number < len(paths)}
                sessions.append(_Session(name, chosen))
        return sessions

    def _name(self, file: Path) -> str:
        return file.name if file == self.path else file.relative_to(self.path).as_posix()

    def _uses_next(self, session: _Session) -> bool:
        """Whether the picture after the step is the success: SERL trains on that one, HIL-SERL on the one before."""
        if self.options.align != "auto":
            return self.options.align == "next"
        return True in session.files and bool(re.search("goal", session.files[True].stem, re.IGNORECASE))

    def _words(self) -> str:
        later = {self._uses_next(session) for session in self._sessions}
        words = {False: "'observations' (as HIL-SERL)", True: "'next_observations' (as SERL, whose files say 'goal')"}
        return " or ".join(words[one] for one in sorted(later))

    def _plan(self, session: _Session, first: int) -> int:
        """Work out the order, the labels and the episodes of a session; return the number of the next episode."""
        marks = {success: list(self._marks(file, session, success)) for success, file in session.files.items()}
        for success, (number, why) in session.problem.items():
            name = self._name(session.files[success])
            self.left_out.append((f"{name}, from transition {number}", why))
        order, joined = _in_time(marks.get(False, []), marks.get(True, []))
        if not order:
            return first
        labels = self._label(order, joined)
        numbers = _episodes(joined, frames_of_a_block(self.options.size.of(next(iter(self._sizes.values())))))
        session.steps = [
            _Step(success, label, first + number) for success, label, number in zip(order, labels, numbers, strict=True)
        ]
        if True in session.files and False in session.files and not _is_placed(order):
            self.remarks.append(f"{session.name}: successes and failures do not join in time: none is unsure for that")
        return first + numbers[-1] + 1

    def _label(self, order: list[bool], joined: list[bool]) -> list[Label]:
        given = self.options.unsure_seconds
        band = round((REACTION if given is None else given) * RATE)
        labels: list[Label] = ["success" if success else "failure" for success in order]
        for place in (place for place, success in enumerate(order) if success):
            for direction in (-1, 1):
                for distance in range(1, band + 1):
                    other = place + direction * distance
                    # A step is joined to the one before it.
                    if not 0 <= other < len(order) or not joined[other if direction > 0 else other + 1]:
                        break
                    if not order[other]:
                        labels[other] = "unsure"
        return labels

    def _marks(self, file: Path, session: _Session, success: bool) -> Iterator[tuple[int, int]]:
        for transition in self._read(file, session, success):
            yield _checksum(transition.before), _checksum(transition.after)

    def _read(self, file: Path, session: _Session, success: bool) -> Iterator[_Transition]:
        """Yield the pictures of a list; what is behind a transition that cannot be read is left out."""
        number = 0
        try:
            with open_file(file) as opened:
                for number, content in enumerate(unpickle.read_list(opened, str(file), "transitions")):
                    yield self._pictures(content, f"{file}, transition {number}")
        except DataError as error:
            if "--" in str(error):  # of all files, and the user can do something
                raise
            session.problem[success] = (number, excerpt(error))
        except UNREADABLE as error:
            session.problem[success] = (number, excerpt(error))

    def _pictures(self, content: Any, name: str) -> _Transition:
        before, after = (
            {key.removeprefix(IMAGES): value for key, value in columns.items() if key.startswith(IMAGES)}
            for columns in read_observations(content)
        )
        cameras = self.options.cameras or tuple(before)
        for camera in cameras:
            if camera not in before:
                raise ConfigError(f"--camera: no camera '{camera}' in {name}; found {listed(before) or 'no pictures'}")
        if not cameras:
            raise DataError(f"{name} has no pictures")
        for pictures in (before, after):
            for camera in cameras:
                size = pictures[camera].shape[:2]
                recorded = self._sizes.setdefault(camera, size)
                self.options.size.check_same(recorded, f"'{camera}' of the first transition", size, name)
        return _Transition({name: before[name] for name in cameras}, {name: after[name] for name in cameras})

    def _episode(self, session: _Session, steps: list[tuple[_Step, dict[str, Array]]]) -> ImportedEpisode:
        columns: Columns = label_columns([step.label for step, _ in steps])
        for camera in steps[0][1]:
            size = self.options.size.of(self._sizes[camera])
            columns[IMAGES + camera] = np.stack([resize_picture(pictures[camera], size) for _, pictures in steps])
        episode = Episode.from_columns(columns, task=self.options.task or UNKNOWN)
        number = steps[0][0].episode
        unsure = sum(step.label == "unsure" for step, _ in steps)
        notes = {"failures beside a success, now unsure": unsure} if unsure else {}
        return ImportedEpisode(number, f"{session.name}, episode {number}", episode, notes=notes)


def _in_time(failures: list[tuple[int, int]], successes: list[tuple[int, int]]) -> tuple[list[bool], list[bool]]:
    """Put two lists into one order. Return of each transition whether it is a success, and joins the one before it.

    The lists have a mark of the observation before, and after, each transition.
    """
    order: list[bool] = []
    joined: list[bool] = []
    end: int | None = None  # the mark after the last transition
    waiting = 0  # the next success

    def add(success: bool, marks: tuple[int, int]) -> None:
        nonlocal end
        order.append(success)
        joined.append(marks[0] == end)
        end = marks[1]

    for marks in failures:
        while waiting < len(successes) and _comes_before(successes[waiting], marks, end):
            add(True, successes[waiting])
            waiting += 1
        add(False, marks)
    for marks in successes[waiting:]:
        add(True, marks)
    return order, joined


def _comes_before(success: tuple[int, int], failure: tuple[int, int], end: int | None) -> bool:
    """Whether a success follows what ended with `end`, or leads to where a failure begins."""
    return success[0] == end or (failure[0] != end and success[1] == failure[0])


def _is_placed(order: list[bool]) -> bool:
    """Whether a failure follows a success, as where they were put into one order."""
    return any(one and not other for one, other in pairwise(order))


def _episodes(joined: list[bool], most: int) -> list[int]:
    """Return the number of the episode of each transition: one begins where transitions do not join, if most do."""
    starts = [place for place, joins in enumerate(joined) if not joins]
    longest = most
    if 2 * len(starts) > len(joined):
        starts, longest = [0], min(BLOCK, most)
    elif len(starts) < PLENTY:
        longest = min(BLOCK, most)
    numbers: list[int] = []
    for start, end in zip(starts, [*starts[1:], len(joined)], strict=True):
        first = numbers[-1] + 1 if numbers else 0
        pieces = -(-(end - start) // longest)
        numbers += [first + place * pieces // (end - start) for place in range(end - start)]
    return numbers


def _checksum(pictures: dict[str, Array]) -> int:
    mark = 0
    for frame in pictures.values():
        mark = zlib.crc32(np.ascontiguousarray(frame).data, mark)
    return mark


def _class_of(file: Path, success: tuple[str, ...], failure: tuple[str, ...]) -> Label | None:
    """Return the class of a file, as the command line or its name says it."""
    given: dict[Label, tuple[str, ...]] = {"success": success, "failure": failure}
    for label, names in given.items():
        if file.name in names or file.stem in names:
            return label
    found = [label for label, word in WORDS.items() if any(re.fullmatch(word, part) for part in _parts(file))]
    return found[0] if len(found) == 1 else None


def _parts(file: Path) -> list[str]:
    return re.split(r"[_\W]+", file.stem.lower())


def _session_name(file: Path) -> str:
    """Return what the names of the files of a session have in common: no class, and no number of transitions."""
    parts = re.split(r"_", file.stem)
    words = "|".join(WORDS.values())
    kept = [part for part in parts if not re.fullmatch(words, part.lower()) and not re.fullmatch(r"\d{1,6}", part)]
    return "_".join(kept) or file.stem


def _has_transitions(file: Path) -> bool:
    try:
        with open_file(file) as opened:
            first = next(iter(unpickle.read_list(opened, str(file), "transitions")), None)
            return isinstance(first, Mapping) and bool(list(read_observations(first)))
    except (OSError, ConfigError, *UNREADABLE):
        return False
