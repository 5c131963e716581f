"""Which column of a LeRobotDataset labels frames, and which frame each of its values judges."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rewardlab.data.episodes import Array
from rewardlab.data.imports.lerobot_info import Feature, LeRobotInfo
from rewardlab.data.imports.parquet_rows import as_array, read_columns
from rewardlab.data.imports.source import ImportOptions
from rewardlab.data.imports.transition_labels import (
    NEXT,
    REACTION_SECONDS,
    SAME,
    FrameLabels,
    choose_align,
    label_frames,
    no_labels,
)
from rewardlab.data.lerobot_layout import REWARD, SUCCESS
from rewardlab.errors import DataError
from rewardlab.keys import UNSURE

OWN = "success"  # the column of data sets that rewardlab has written: the label of the frame in the same row
# Of robot types of simulators, whose rewards come after the step.
_SIMULATORS = ("gym", "isaac", "libero", "maniskill", "metaworld", "mujoco", "pusht", "robocasa", "robosuite", "sim")


@dataclass(frozen=True)
class Labelling:
    """How the labels of a data set are read."""

    column: str | None  # None: nothing labels its frames
    align: str  # of the labels: same | next
    reward_align: str  # of rewards and ends
    band: int  # frames
    why: tuple[str, ...]  # lines for the summary

    def read(self, columns: dict[str, Array], rows: int) -> FrameLabels:
        """Return the labels of an episode, whose columns are as in the file."""
        if self.column is None:
            return no_labels(rows, self.why[0])
        values = columns[self.column]
        labels = label_frames(values >= 0.5, self.align, self.band, self.column)
        between = int(((values != 0) & (values != 1)).sum())
        if between:
            labels.notes[f"frames whose {self.column} is neither 0 nor 1: from 0.5 on it counts as success"] = between
        if self.column == OWN and UNSURE in columns:
            unsure = (labels.unsure | (columns[UNSURE] >= 0.5)) & ~labels.success
            return replace(labels, unsure=unsure)
        return labels


def is_own(features: Mapping[str, Feature]) -> bool:
    """Return whether the labels are rewardlab's. A lone `success` is often the outcome of the episode, in every row."""
    return _has_numbers(features, OWN) and _has_numbers(features, UNSURE)


def find_labelling(info: LeRobotInfo, data: Iterable[Path], options: ImportOptions) -> Labelling:
    """Return how to read the labels; `data` are the parquet files, to see whether any reward is not 0."""
    if is_own(info.features):
        align = choose_align(options.align, SAME)
        return _labelling(OWN, align, NEXT, 0.0, info, options)
    if _has_numbers(info.features, SUCCESS):
        align = choose_align(options.align, NEXT)
        return _labelling(SUCCESS, align, align, 0.0, info, options)
    simulated = any(word in info.robot_type.lower() for word in _SIMULATORS)
    align = choose_align(options.align, NEXT if simulated else SAME)
    if not _has_numbers(info.features, REWARD):
        return Labelling(None, align, align, 0, (f"the data set has no {SUCCESS} and no {REWARD}",))
    if not any(map(_has_reward, data)):
        return Labelling(None, align, align, 0, (f"{REWARD} is 0 in the whole data set",))
    return _labelling(REWARD, align, align, REACTION_SECONDS if align == SAME else 0.0, info, options)


def _has_numbers(features: Mapping[str, Feature], name: str) -> bool:
    return name in features and features[name].is_number


def _labelling(
    column: str, align: str, reward_align: str, seconds: float, info: LeRobotInfo, options: ImportOptions
) -> Labelling:
    seconds = seconds if options.unsure_seconds is None else options.unsure_seconds
    judged = "its own row" if align == SAME else "the row after it"
    lines = [f"labels: {column} judges the frame in {judged} (--align {align})"]
    if seconds:
        lines.append(f"frames up to {seconds:g} s before an onset of success are unsure (--unsure-seconds)")
    return Labelling(column, align, reward_align, round(seconds * info.fps), tuple(lines))


def _has_reward(path: Path) -> bool:
    with suppress(DataError):  # said of the episodes in this file, when they are read
        table = read_columns(path, [REWARD])
        return REWARD in table.column_names and bool(np.any(as_array(table[REWARD], REWARD) != 0))
    return False
