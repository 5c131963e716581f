"""From the rows of a LeRobotDataset to those of an episode. Knows nothing of files and pictures."""

from collections.abc import Iterable

import numpy as np

from rewardlab.data.episodes import Array, Columns, as_action
from rewardlab.data.imports.lerobot_info import Feature
from rewardlab.data.imports.lerobot_labels import OWN, is_own
from rewardlab.data.imports.transition_labels import NEXT, FrameLabels
from rewardlab.data.lerobot_layout import DONE, INDEX_FEATURES, OF_TRANSITIONS, REWARD, SUCCESS, TRUNCATED
from rewardlab.data.transition_rows import arrivals
from rewardlab.errors import DataError
from rewardlab.keys import FRAME_ROWS, INTERVENTION, STATE, UNSURE

_SINGLE = {*OF_TRANSITIONS.values(), DONE, TRUNCATED, SUCCESS, OWN, UNSURE, "timestamp"} - {"action"}
# Names that mean something in an episode, and that a data set of others may use for something else.
_TAKEN = {"reward", "env_reward", "terminated", "truncated", INTERVENTION, FRAME_ROWS}


def numeric_columns(features: dict[str, Feature]) -> list[str]:
    """Return the columns of numbers that an episode has a place for."""
    numbers = [key for key, feature in features.items() if feature.is_number]
    return [key for key in numbers if _has_place(key) and key not in INDEX_FEATURES]


def columns_left_out(features: dict[str, Feature], cameras: Iterable[str]) -> list[str]:
    """Return the features that an episode has no place for, and cameras that are not wanted."""
    known = {*numeric_columns(features), *INDEX_FEATURES, *cameras, SUCCESS} - (
        {OWN} if not is_own(features) else set()
    )
    return [key for key in features if key not in known]


def check_single(rows: Columns) -> None:
    """Raise unless the columns that have one number a row have one."""
    for name in rows.keys() & _SINGLE:
        if rows[name].ndim != 1:
            raise DataError(f"'{name}' has {rows[name].shape[1]} numbers in a row; expected one")


def episode_columns(rows: Columns, labels: FrameLabels, reward_align: str) -> Columns:
    """Return the columns of an episode, but for pictures."""
    columns: Columns = {key: values for key, values in rows.items() if key.startswith("observation.") or "." not in key}
    if STATE in columns:
        columns[STATE] = columns[STATE].reshape(len(labels.success), -1).astype(np.float32)
    if "action" in columns:
        columns["action"] = arrivals(_as_actions(columns["action"]))
    aligned = {theirs: rows[theirs] for theirs in OF_TRANSITIONS.values() if theirs in rows}
    if reward_align == NEXT:
        aligned = {name: arrivals(values) for name, values in aligned.items()}
    for ours, theirs in OF_TRANSITIONS.items():
        if theirs in aligned and ours != "action":
            columns[ours] = aligned[theirs].astype(bool if ours == INTERVENTION else np.float32)
    if REWARD in aligned and "env_reward" not in columns:
        columns["env_reward"] = columns["reward"].copy()
    if "grasp" in columns:
        columns["grasp"] = columns["grasp"].astype(bool)
    columns["success"] = labels.success
    columns.pop(UNSURE, None)
    if labels.unsure.any():
        columns[UNSURE] = labels.unsure
    return columns | _ends(rows, labels.success, reward_align)


def _ends(rows: Columns, success: Array, align: str) -> Columns:
    """Return `terminated` and `truncated`. A recording that stops without an end is cut off in its last frame."""
    never = np.zeros(len(success), bool)
    done, cut = (rows[name].astype(bool) if name in rows else never for name in (DONE, TRUNCATED))
    if align == NEXT:
        done, cut = arrivals(done), arrivals(cut)
    truncated = cut.copy() if TRUNCATED in rows else done & ~success
    terminated = done & ~truncated
    truncated[-1] |= not terminated[-1]
    return {"terminated": terminated, "truncated": truncated}


def _as_actions(actions: Array) -> Array:
    actions = as_action(actions)
    return actions[:, None] if actions.dtype.kind == "f" and actions.ndim == 1 else actions


def _has_place(key: str) -> bool:
    named = "." not in key and key not in _TAKEN
    return named or key.startswith("observation.") or key in {*OF_TRANSITIONS.values(), DONE, TRUNCATED}
