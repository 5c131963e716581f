"""Metrics of several success classifiers on the same held-out frames, and how far they differ from the first one's.

The difference of two models is resampled, not the two metrics: both are measured on the same episodes, and what makes
an episode hard for one often makes it hard for the other. Its interval is narrower than the two of the metrics.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.figures.metrics import (
    FIGURES,
    Bools,
    Estimate,
    FrameScores,
    Resampled,
    frame_figures,
    interval,
    resample_figures,
)
from rewardlab.figures.words import number

LOWER_IS_BETTER = {"fpr", "early_fire", "delay_median", "delay_p90", "never_detected"}
NOT_OF_A_MODEL = {"class_prior"}  # a fact of the frames
POINTS = {"share": " points", "area": "", "frames": " frames"}


@dataclass(frozen=True)
class Difference:
    """How much larger a metric of one model is than that of the first one, with its 95 % interval."""

    figure: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def certain(self) -> bool:
        """Whether the interval is on one side of 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def better(self) -> bool:
        return (self.value < 0) == (self.figure in LOWER_IS_BETTER)

    def shown(self) -> tuple[str, str]:
        """Return the difference and its interval for people; shares differ by percentage points."""
        unit = FIGURES[self.figure].unit
        value = f"{_signed(self.value, unit)}{POINTS[unit]}"
        if self.low is None or self.high is None:
            return value, ""
        return value, f"[{_signed(self.low, unit)}, {_signed(self.high, unit)}]"


@dataclass(frozen=True)
class ComparedModel:
    """The metrics of one model, and their differences from the first one's: none for the first one itself."""

    estimates: dict[str, Estimate]
    differences: dict[str, Difference]


def compare_models(models: Sequence[tuple[FrameScores, Bools]], seed: int = 0) -> list[ComparedModel]:
    """Compare the scores and verdicts of models on the same frames with those of the first one."""
    first = resample_figures(*models[0], seed)
    compared = [ComparedModel(frame_figures(*models[0], seed), {})]
    for scores, verdict in models[1:]:
        other = resample_figures(scores, verdict, seed)
        names = [name for name in FIGURES if name not in NOT_OF_A_MODEL]
        differences = {name: _difference(name, first[name], other[name]) for name in names}
        known = {name: difference for name, difference in differences.items() if difference is not None}
        compared.append(ComparedModel(frame_figures(scores, verdict, seed), known))
    return compared


def _difference(name: str, first: Resampled, other: Resampled) -> Difference | None:
    value = other.value - first.value
    if np.isnan(value):
        return None
    if min(first.episodes, other.episodes) < 2:
        return Difference(name, float(value))
    return Difference(name, float(value), *interval(other.samples - first.samples))


def _signed(value: float, unit: str) -> str:
    if unit == "share":
        return f"{100 * value:+.1f}"
    return f"{value:+.4f}" if unit == "area" else f"{'+' if value >= 0 else '-'}{number(abs(value), unit)}"
