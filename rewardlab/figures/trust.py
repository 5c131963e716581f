"""How far a success classifier can be trusted: the metrics that a checkpoint stores beside its weights.

Temperature and threshold are chosen on the held-out episodes, and figures measured on the same episodes would flatter
both. So the figures are cross-fitted: the held-out episodes are split into folds; for each fold, temperature and
threshold are chosen on the *other* folds, and the fold is judged with these; the verdicts are pooled. The stored
temperature and threshold come from all held-out episodes: more data, hence slightly better than the figures say.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rewardlab.errors import DataError
from rewardlab.figures.calibration import choose_threshold, fit_temperature, probabilities, reliability
from rewardlab.figures.metrics import FIGURES, Bools, Counts, Estimate, Floats, FrameScores, Ints, frame_figures
from rewardlab.figures.score_histogram import ScoreHistogram
from rewardlab.figures.words import shown

FOLDS = 5


@dataclass(frozen=True)
class TrustFigures:
    """Calibration, threshold and metrics of a classifier, as stored in config.json; all from held-out episodes."""

    threshold: float  # the verdict is p > threshold
    temperature: float  # p = sigmoid(logit / temperature)
    target_fpr: float
    fpr_upper_bound: float | None  # 95 %, at the stored threshold
    folds: int  # of the cross-fitting; 0: too few episodes, so the figures are optimistic
    estimates: dict[str, Estimate]  # keys of metrics.FIGURES
    counts: Counts
    ece_before: float
    ece_after: float
    warnings: tuple[str, ...]
    score_histogram: ScoreHistogram | None = None  # for the audit of a policy run; older checkpoints have none

    @property
    def class_prior(self) -> float:
        """Fraction of success frames among the held-out frames."""
        prior = self.estimates["class_prior"].value
        assert prior is not None  # there is at least one frame
        return prior

    def sentence(self) -> str:
        """Summarise the metrics at the stored threshold."""

        def say(name: str) -> str:
            return " ".join(filter(None, shown(self.estimates[name], FIGURES[name].unit)))

        return (
            f"At threshold {self.threshold:.3g}, {say('fpr')} of failure frames are called success, and "
            f"{say('recall')} of success frames are recognised. Judged by whole episodes, it is right about "
            f"{say('agreement')} of them and fires early in {say('early_fire')}. "
            f"The median delay is {say('delay_median')}."
        )

    def scalars(self) -> dict[str, float]:
        """Return the metrics that are known, as single numbers to plot."""
        known = {name: estimate.value for name, estimate in self.estimates.items() if estimate.value is not None}
        return {"threshold": self.threshold, "temperature": self.temperature, **known}

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TrustFigures":
        try:
            estimates = {name: Estimate(**values["estimates"][name]) for name in FIGURES}
            counts, warnings = Counts(**values["counts"]), tuple(values["warnings"])
            read = {"estimates": estimates, "counts": counts, "warnings": warnings}
            return cls(**{**values, **read, "score_histogram": ScoreHistogram.from_metrics(values)})
        except (KeyError, TypeError) as error:
            raise DataError(f"the stored figures of trust are not complete: {error}") from error


def assess(scores: FrameScores, target_fpr: float = 0.01, *, seed: int = 0) -> TrustFigures:
    """Choose temperature and threshold on all held-out frames, and compute cross-fitted metrics."""
    temperature = fit_temperature(scores)
    choice = choose_threshold(scores, temperature, target_fpr, seed)
    part, parts = assign_folds(scores, FOLDS, seed)
    warnings = list(choice.warnings)
    if parts < 2:
        warnings.append(
            "The threshold was chosen on the very episodes that the figures are from, so that they flatter: "
            "cross-fitting needs two held-out episodes with success and two with failure frames."
        )
        probability = probabilities(scores.logit, temperature)
        verdict = probability > choice.threshold
    else:

        def fit(others: FrameScores) -> tuple[float, float]:
            own = fit_temperature(others)
            return own, choose_threshold(others, own, target_fpr, seed).threshold

        probability, verdict = cross_fit(scores, part, fit)
    return TrustFigures(
        threshold=choice.threshold,
        temperature=temperature,
        target_fpr=target_fpr,
        fpr_upper_bound=choice.fpr_upper_bound,
        folds=parts if parts > 1 else 0,
        estimates=frame_figures(scores, verdict, seed),
        counts=Counts.of(scores, verdict),
        ece_before=reliability(scores.label, probabilities(scores.logit)).ece,
        ece_after=reliability(scores.label, probability).ece,
        warnings=tuple(warnings),
        score_histogram=ScoreHistogram.of(probabilities(scores.logit, temperature), scores.label),
    )


def assign_folds(scores: FrameScores, folds: int, seed: int) -> tuple[Ints, int]:
    """Assign each frame to a fold; returns the folds and their number. Whole episodes, stratified by outcome."""
    successful = np.unique(scores.episode[scores.label])
    failing = np.unique(scores.episode[~scores.label])
    parts = min(folds, len(successful), len(failing))
    if parts < 2:
        return np.zeros(len(scores), dtype=np.int64), parts
    rng = np.random.default_rng(seed)
    others = np.setdiff1d(np.unique(scores.episode), successful)
    dealt = np.concatenate([rng.permutation(successful), rng.permutation(others)])
    part_of = np.zeros(len(scores.episode_names), dtype=np.int64)
    part_of[dealt] = np.arange(len(dealt)) % parts
    return part_of[scores.episode], parts


def cross_fit(
    scores: FrameScores, part: Ints, fit: Callable[[FrameScores], tuple[float, float]]
) -> tuple[Floats, Bools]:
    """Compute probability and verdict of each frame with the temperature and threshold fitted on the other folds."""
    probability = np.empty(len(scores))
    verdict = np.empty(len(scores), dtype=np.bool_)
    for mine in (part == number for number in np.unique(part)):
        temperature, threshold = fit(scores.rows(~mine))
        probability[mine] = probabilities(scores.logit[mine], temperature)
        verdict[mine] = probability[mine] > threshold
    return probability, verdict
