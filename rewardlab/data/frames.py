"""From episodes to frames to learn from: which frames, with which labels, in which split.

A frame's label is the success of that very frame. Frames of which nobody was sure are in no table. Splits are made by
episode, because the frames of one episode are near copies of each other: one in each split would make validation a test
of memory.
"""

import os
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rewardlab.data.reader import StoredEpisode
from rewardlab.errors import DataError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FrameTable:
    """Row k is frame `time[k]` of `episodes[episode[k]]`. Holds numbers, never pixels."""

    episodes: tuple[StoredEpisode, ...]
    episode: Ints
    time: Ints
    label: Bools
    unsure: int = 0  # frames of all these episodes that were left out, since nobody could judge them

    def __len__(self) -> int:
        return len(self.label)

    def rows(self, chosen: Ints | Bools) -> "FrameTable":
        return replace(self, episode=self.episode[chosen], time=self.time[chosen], label=self.label[chosen])

    @property
    def successes(self) -> int:
        return int(self.label.sum())

    @property
    def failures(self) -> int:
        return len(self) - self.successes

    def missing_label(self) -> str | None:
        """Return the label that no frame has, if there is one."""
        return "success" if self.successes == 0 else "failure" if self.failures == 0 else None

    def episode_names(self) -> tuple[str, ...]:
        """Return the path of each episode below the directory of all: "success/episode_000001"."""
        paths = [episode.path for episode in self.episodes]
        top = os.path.commonpath([path.absolute().parent.parent for path in paths]) if paths else ""
        return tuple(path.absolute().relative_to(top).with_suffix("").as_posix() for path in paths)

    def describe(self) -> str:
        episodes = len(np.unique(self.episode))
        return f"{len(self):,} frames ({self.successes:,} success, {self.failures:,} failure) of {episodes:,} episodes"


def tabulate(episodes: Sequence[StoredEpisode]) -> FrameTable:
    """List every frame of the episodes that has pictures and a label, in order. Reads labels, not pictures."""
    pictured = [episode.frame_rows() for episode in episodes]
    times = [rows[~episode.unsure()[rows]] for episode, rows in zip(episodes, pictured, strict=True)]
    labels = [episode.labels()[rows] for episode, rows in zip(episodes, times, strict=True)]
    return FrameTable(
        tuple(episodes),
        np.repeat(np.arange(len(episodes)), [len(rows) for rows in times]),
        np.concatenate([np.zeros(0, np.int64), *times]),
        np.concatenate([np.zeros(0, bool), *labels]),
        unsure=sum(map(len, pictured)) - sum(map(len, times)),
    )


def split_by_episode(table: FrameTable, val_fraction: float, seed: int) -> tuple[FrameTable, FrameTable]:
    """Training and validation frames, from different episodes, with successful episodes in both.

    Stratified by whether an episode shows success in any frame; each side gets at least one such episode. Copies of an
    episode stay on one side.
    """
    shows_success = np.zeros(len(table.episodes), bool)
    shows_success[table.episode[table.label]] = True
    original = _group_copies(table.episodes, shows_success)
    distinct = original == np.arange(len(original))
    distinct &= np.isin(np.arange(len(original)), original[table.episode])  # not those of which every frame is unsure
    _require_both_classes(table, shows_success & distinct)
    rng = np.random.default_rng(seed)
    held_out = np.zeros(len(table.episodes), bool)
    for outcome in (True, False):
        members = rng.permutation(np.flatnonzero((shows_success == outcome) & distinct))
        count = round(val_fraction * len(members))
        if len(members) >= 2:
            count = min(max(count, 1), len(members) - 1)
        held_out[members[:count]] = True
    validation = held_out[original][table.episode]
    sides = table.rows(~validation), table.rows(validation)
    for name, side in zip(("training", "validation"), sides, strict=True):
        if missing := side.missing_label():
            raise DataError(f"the {name} split has no {missing} frame: {side.describe()}. Collect more {missing}es")
    return sides


def _group_copies(episodes: Sequence[StoredEpisode], shows_success: Bools) -> Ints:
    """Return the original of each episode, and warn if there are copies."""
    numbers = np.arange(len(episodes))
    original = find_originals(episodes)
    copies = int((original != numbers).sum())
    if not copies:
        return original
    text = f"{copies} of the {len(episodes)} episodes are copies of others, or other versions of them"
    classes = [original[shows_success == outcome] for outcome in (True, False)]
    if any(np.unique(members).size < 2 <= members.size for members in classes):
        # Data without variety: nothing would be left to validate with.
        warnings.warn(f"{text}, and too few are not: validation repeats what was trained on", stacklevel=3)
        return find_originals(episodes, by_content=False)
    warnings.warn(f"{text}; they stay on the same side of the split", stacklevel=3)
    return original


def find_originals(episodes: Sequence[StoredEpisode], *, by_content: bool = True) -> Ints:
    """Return for each episode the first that it is a copy of, by its identity or its content, else itself.

    A run that was resumed with other settings has other episodes of the same identity, which begin alike.
    """
    original = np.arange(len(episodes))
    seen: dict[Hashable, int] = {}
    for number, episode in enumerate(episodes):
        origin = episode.origin
        marks: list[Hashable] = [] if origin is None else [origin.identity]
        if by_content:
            marks.append(episode.digest)
        same = [original[seen[mark]] for mark in marks if mark in seen]
        if same:
            original[number] = min(same)
            original[np.isin(original, same)] = min(same)
        for mark in marks:
            seen.setdefault(mark, number)
    return original


def _require_both_classes(table: FrameTable, shows_success: Bools) -> None:
    if missing := table.missing_label():
        if table.unsure and not len(table):
            raise DataError(
                f"none of the {table.unsure:,} frames is labelled: all are unsure. Say which show success and which do "
                "not (of videos: `rewardlab data import VIDEO NEW_DIR --labels FILE.csv`)"
            )
        unsure = f" and {table.unsure:,} unsure ones" if table.unsure else ""
        raise DataError(
            f"no frame is labelled {missing}: {table.describe()}{unsure}. A classifier needs both; collect more"
        )
    if shows_success.sum() < 2:
        raise DataError(
            f"only {int(shows_success.sum())} of {len(shows_success)} episodes shows success, and one is needed for "
            "training and another one for validation. Collect more successes"
        )


def sample_per_episode(table: FrameTable, count: int, seed: int) -> FrameTable:
    """At most `count` frames of each episode (0: all), its last one always among them."""
    if count == 0:
        return table
    rng = np.random.default_rng(seed)
    keep = []
    for rows in np.split(np.arange(len(table)), np.flatnonzero(np.diff(table.episode)) + 1):
        others = rng.permutation(rows[:-1])[: count - 1]
        keep.append(np.sort(np.append(others, rows[-1])))
    return table.rows(np.concatenate(keep))


def limit_failures(table: FrameTable, fail_success_ratio: float | None, seed: int) -> FrameTable:
    """Return at most `fail_success_ratio` failure frames per success frame (None: all), for training only.

    The loader repeats frames where there are too few; here, surplus ones are dropped, so that an epoch is shorter.
    """
    if fail_success_ratio is None:
        return table
    failures = np.flatnonzero(~table.label)
    wanted = max(1, round(fail_success_ratio * table.successes))
    kept = np.random.default_rng(seed).permutation(failures)[:wanted]
    return table.rows(np.sort(np.concatenate([np.flatnonzero(table.label), kept])))
