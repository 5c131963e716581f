"""The distribution of a classifier's scores on held-out frames, and the distance of other scores from it.

While a policy learns, the share of successes changes, and the spread of all scores with it: that is no drift. So scores
are compared with the mixture of held-out successes and failures that is nearest to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rewardlab.errors import DataError

BINS = 20
Counts = npt.NDArray[np.int64]


def count_scores(probability: npt.NDArray[Any]) -> Counts:
    """Count frames in each of 20 bins of equal width over [0, 1]."""
    place = np.minimum((np.asarray(probability, dtype=np.float64) * BINS).astype(np.int64), BINS - 1)
    return np.bincount(place, minlength=BINS)


@dataclass(frozen=True)
class ScoreHistogram:
    """Histogram of held-out scores for success and failure frames, at the stored temperature."""

    success: tuple[int, ...]
    failure: tuple[int, ...]

    def __post_init__(self) -> None:
        for counts in (self.success, self.failure):
            if len(counts) != BINS or any(type(count) is not int or count < 0 for count in counts):
                raise DataError(f"score_histogram: found {counts!r}, expected {BINS} numbers of frames")

    @classmethod
    def of(cls, probability: npt.NDArray[Any], label: npt.NDArray[np.bool_]) -> Self:
        return cls(*(tuple(count_scores(probability[kind]).tolist()) for kind in (label, ~label)))

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, Any]) -> Self | None:
        """Read it from the metrics of a checkpoint; None for older checkpoints and those of other programs."""
        found = metrics.get("score_histogram")
        if found is None:
            return None
        try:
            return cls(tuple(found["success"]), tuple(found["failure"]))
        except (KeyError, TypeError) as error:
            raise DataError(f"score_histogram: expected 'success' and 'failure' counts ({error})") from error

    @property
    def frames(self) -> int:
        return sum(self.success) + sum(self.failure)

    def distance(self, counts: Counts) -> float:
        """Kolmogorov-Smirnov distance of scores, as counts a bin, to the nearest mixture of the two classes: in [0, 1].

        It cannot see failures that look like successes in every respect; only the truth of frames can tell those.
        """
        seen, success, failure = (_cumulative(np.asarray(each)) for each in (counts, self.success, self.failure))
        if not any(self.success) or not any(self.failure):
            success = failure = success if any(self.success) else failure
        share_M1 = np.linspace(0, 1, 101)[:, None]
        return float(np.abs(seen - share_M1 * success - (1 - share_M1) * failure).max(axis=1).min())


def _cumulative(counts: Counts) -> npt.NDArray[np.float64]:
    return np.cumsum(counts) / max(counts.sum(), 1)
