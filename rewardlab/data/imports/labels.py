"""The three states of a label, as names and as columns of an episode."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from rewardlab.data.episodes import Columns
from rewardlab.keys import UNSURE

Label: TypeAlias = Literal["success", "failure", "unsure"]
LABELS: tuple[Label, ...] = get_args(Label)
# What folders of a class are called.
ALIASES: dict[Label, tuple[str, ...]] = {
    "success": ("success", "positive"),
    "failure": ("failure", "fail", "negative"),
    "unsure": ("unsure",),
}


def label_columns(labels: Sequence[Label]) -> Columns:
    """Return the columns of an episode that say how its frames are labelled."""
    columns: Columns = {"success": np.array([label == "success" for label in labels], bool)}
    unsure = np.array([label == "unsure" for label in labels], bool)
    return {**columns, UNSURE: unsure} if unsure.any() else columns
