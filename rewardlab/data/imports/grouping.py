"""Which pictures belong to one episode, as their folders, their names or their times tell.

Training and validation are split by episode. Pictures of one scene look alike, so the split is honest only if they stay
together; where nothing says which do, neighbours are put together.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rewardlab.data.imports.files import in_order
from rewardlab.data.imports.labels import Label

PLENTY = 6  # groups: finer ones are not looked for
BLOCKS = 10  # of each class, if nothing tells episodes apart
PAUSE, PAUSE_FACTOR = 2.0, 10  # seconds, and times the usual distance, between the pictures of two episodes


class Picture(NamedTuple):
    """A picture file and what is known without decoding it."""

    path: Path
    folders: tuple[str, ...]  # it lies in, but for that of its class
    label: Label
    time: float  # of modification, in seconds

    @property
    def order(self) -> list[tuple[int, str]]:
        return in_order(self.path.name)


class Grouped(NamedTuple):
    """The pictures of each episode, in order, by a name for it; and in words how they were found."""

    episodes: dict[str, list[Picture]]
    words: str


def group_pictures(pictures: Sequence[Picture]) -> Grouped:
    """Return episodes, in a fixed order."""
    found: list[Grouped] = []
    for candidate in _candidates(pictures):
        if _are_episodes(candidate.episodes, pictures):
            if len(candidate.episodes) >= PLENTY:
                return candidate
            found.append(candidate)
    return max(found, key=lambda candidate: len(candidate.episodes)) if found else _blocks(pictures)


def _candidates(pictures: Sequence[Picture]) -> Iterator[Grouped]:
    example = next((picture for picture in pictures if _prefix(picture.path.stem)), None)
    yield Grouped(_group(pictures, lambda picture: "/".join(picture.folders)), "by their folders")
    if example is not None:
        words = f"by the beginning of their names ({example.path.name} is of '{_prefix(example.path.stem)}')"
        yield Grouped(_group(pictures, lambda picture: "/".join((*picture.folders, _prefix(picture.path.stem)))), words)
    by_time = sorted(pictures, key=lambda picture: (picture.time, picture.order))
    gaps = np.diff([picture.time for picture in by_time])
    pause = max(PAUSE, PAUSE_FACTOR * float(np.median(gaps)) if len(gaps) else 0.0)
    numbers = np.concatenate([[0], np.cumsum(gaps > pause)]).astype(int).tolist()
    episodes: dict[str, list[Picture]] = defaultdict(list)
    for number, picture in zip(numbers, by_time, strict=False):
        episodes[f"block {number}"].append(picture)
    yield Grouped(dict(episodes), f"by time: a pause of {pause:.0f} s between two files begins a new one")


def _prefix(stem: str) -> str:
    """Return what is before the last number of a name: "ep3" of "ep3_0001"."""
    match = re.fullmatch(r"(.*?)[\W_]*\d+", stem)
    return match[1] if match else stem


def _group(pictures: Sequence[Picture], key: Callable[[Picture], Hashable]) -> dict[str, list[Picture]]:
    groups: dict[str, list[Picture]] = defaultdict(list)
    for picture in sorted(pictures, key=lambda picture: picture.order):
        groups[str(key(picture))].append(picture)
    return {name: groups[name] for name in sorted(groups, key=in_order)}


def _are_episodes(groups: dict[str, list[Picture]], pictures: Sequence[Picture]) -> bool:
    """Whether groups could be episodes: several of each class, of several pictures, and none with most of them."""
    for label in {picture.label for picture in pictures} - {"unsure"}:
        if sum(any(picture.label == label for picture in group) for group in groups.values()) < 2:
            return False
    return 2 * len(groups) <= len(pictures) and 2 * max(map(len, groups.values())) <= len(pictures)


def _blocks(pictures: Sequence[Picture]) -> Grouped:
    episodes: dict[str, list[Picture]] = {}
    for label in sorted({picture.label for picture in pictures}):
        same = sorted((picture for picture in pictures if picture.label == label), key=lambda one: one.order)
        for number, part in enumerate(np.array_split(np.arange(len(same)), min(BLOCKS, len(same)))):
            episodes[f"{label}, block {number}"] = [same[int(place)] for place in part]
    return Grouped(
        episodes,
        "by their order alone, as neither names nor times tell episodes apart. Neighbours look alike, so figures on "
        "held-out pictures can be too good where a scene goes on from one block to the next; names such as "
        "ep3_0001.png say which pictures belong together",
    )
