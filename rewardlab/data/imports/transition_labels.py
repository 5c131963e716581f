"""Labels of recordings that label transitions: which frame each judges, and which frames nobody can be sure of.

A transition goes from one frame to the next, and recordings differ in which of the two its label judges. A person's
key is read before the step: it judges the frame that the person saw, after the time that it took to press it. A
simulator's reward comes after the step: it judges the next frame.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rewardlab.data.transition_rows import arrivals
from rewardlab.errors import ConfigError

Bools = npt.NDArray[np.bool_]

SAME, NEXT, AUTO = "same", "next", "auto"
REACTION_SECONDS = 0.4  # from what a person sees to the key


@dataclass(frozen=True)
class FrameLabels:
    """Labels of frames; `notes` counts what was done to those of the recording."""

    success: Bools
    unsure: Bools
    notes: dict[str, int] = field(default_factory=dict)
    success_after: bool = False  # in a frame after the last one, which was not recorded


def choose_align(wanted: str, suggested: str) -> str:
    """Return `same` or `next`: what the user wants, or with `auto` what the recording suggests."""
    if wanted not in (SAME, NEXT, AUTO):
        raise ConfigError(f"--align: found '{wanted}', expected {SAME}, {NEXT} or {AUTO}")
    return suggested if wanted == AUTO else wanted


def label_frames(verdicts: Bools, align: str, band: int, name: str) -> FrameLabels:
    """Return the labels of the frames of one episode from the verdicts in its rows.

    `band` is the number of frames before an onset of success that are unsure; the frames after a success of a single
    frame are so as well: there, a key was pressed once, and the success may have lasted. `name` is what notes call the
    verdicts.
    """
    notes: dict[str, int] = {}
    success = verdicts.copy()
    if align == NEXT:
        success = arrivals(verdicts)
        notes[f"frames whose label changed: {name} judges the frame after its row (--align next)"] = int(
            (success != verdicts).sum()
        )
        if verdicts[-1]:
            notes[f"successes without a frame: {name} of the last row judges one that was not recorded"] = 1
    unsure = near_onsets(success, band)
    notes[f"frames left unsure, within {band} frames of an onset of success"] = int(unsure.sum())
    after = bool(align == NEXT and verdicts[-1])
    return FrameLabels(success, unsure, {words: count for words, count in notes.items() if count}, after)


def no_labels(rows: int, why: str) -> FrameLabels:
    """Return the labels of frames that nobody has judged."""
    return FrameLabels(np.zeros(rows, bool), np.ones(rows, bool), {f"frames without a label: {why}": rows})


def near_onsets(success: Bools, band: int) -> Bools:
    """Return which frames are beside an onset of success, and no success themselves."""
    padded = np.concatenate([[False], success, [False]])
    starts, stops = np.flatnonzero(padded[1:] & ~padded[:-1]), np.flatnonzero(~padded[1:] & padded[:-1])
    near = np.zeros(len(success), bool)
    for start, stop in zip(starts, stops, strict=True):
        near[max(start - band, 0) : start] = True
        if stop - start == 1:
            near[stop : stop + band] = True
    return near & ~success
