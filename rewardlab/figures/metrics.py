"""Metrics of a success classifier on held-out frames, each with a 95 % interval.

Frames of one episode are correlated, so intervals come from a bootstrap over whole episodes. Every metric is a function
of how often each episode is drawn: once for the metric itself, at random for its interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rewardlab.errors import DataError

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

RESAMPLES = 1000
AREA_RESAMPLES = 200  # an area under a curve costs a pass over all frames per resample
AREA_CHUNK = 20
NEVER = np.iinfo(np.int64).max
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class FrameScores:
    """Logits and labels of held-out frames: one row per frame, in any order."""

    episode: Ints  # index into episode_names
    time: Ints
    label: Bools
    logit: Floats
    episode_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, kind in {"episode": np.int64, "time": np.int64, "label": np.bool_, "logit": np.float64}.items():
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=kind))
        if len(self) == 0:
            raise DataError("no held-out frames to measure on: hold out at least one episode")
        bad = np.flatnonzero(~np.isfinite(self.logit))
        if len(bad):
            raise DataError(
                f"{len(bad)} of {len(self)} logits are not finite, the first ({self.logit[bad[0]]}) in row {bad[0]}"
            )

    def __len__(self) -> int:
        return len(self.episode)

    def rows(self, chosen: Bools) -> "FrameScores":
        """Select the rows for which `chosen` is true; episode names stay."""
        return FrameScores(
            self.episode[chosen], self.time[chosen], self.label[chosen], self.logit[chosen], self.episode_names
        )


@dataclass(frozen=True)
class Estimate:
    """A metric and its 95 % interval; None where the data does not define it."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Meaning:
    """Title, explanation and unit of a metric."""

    title: str
    words: str
    unit: Literal["share", "area", "frames"] = "share"


FIGURES: Mapping[str, Meaning] = {
    "fpr": Meaning("False-positive rate", "failure frames called success"),
    "recall": Meaning("Recall", "success frames called success"),
    "precision": Meaning("Precision", "frames called success that are"),
    "f1": Meaning("F1", "harmonic mean of precision and recall"),
    "accuracy": Meaning("Accuracy", "frames judged rightly"),
    "roc_auc": Meaning("ROC-AUC", "ranking of success above failure, at any threshold", "area"),
    "pr_auc": Meaning("PR-AUC", "average precision, at any threshold", "area"),
    "class_prior": Meaning("Success frames", "share of success among the held-out frames"),
    "agreement": Meaning("Episode agreement", "episodes where 'success in any frame' is judged rightly"),
    "agreement_last": Meaning("Agreement at the end", "episodes whose last frame is judged rightly"),
    "early_fire": Meaning("Early fire", "episodes called success before it happened, or though it never did"),
    "delay_median": Meaning("Delay, median", "frames from the first success to the verdict, if there is one", "frames"),
    "delay_p90": Meaning("Delay, 90th percentile", "the same, for the slowest tenth", "frames"),
    "never_detected": Meaning("Never detected", "successful episodes without a verdict of success from then on"),
}


@dataclass(frozen=True)
class Counts:
    """Confusion matrix of frames, and the number of episodes they come from."""

    true_positive: int
    false_positive: int
    true_negative: int
    false_negative: int
    episodes: int
    success_episodes: int

    @classmethod
    def of(cls, scores: FrameScores, verdict: Bools) -> "Counts":
        label = scores.label
        return cls(
            true_positive=int((label & verdict).sum()),
            false_positive=int((~label & verdict).sum()),
            true_negative=int((~label & ~verdict).sum()),
            false_negative=int((label & ~verdict).sum()),
            episodes=len(np.unique(scores.episode)),
            success_episodes=len(np.unique(scores.episode[label])),
        )


@dataclass(frozen=True, eq=False)
class Resampled:
    """A metric, and its values when episodes are drawn again at random."""

    value: float  # NaN where the data does not define it
    samples: Floats
    episodes: int  # that it depends on
    bounded: bool = True  # between 0 and 1


def frame_figures(scores: FrameScores, verdict: Bools, seed: int = 0) -> dict[str, Estimate]:
    """Compute every metric of FIGURES for verdicts (true: called success), one per row of `scores`.

    The areas rank raw logits, which a temperature or a threshold cannot change.
    """
    return {name: _estimate(resampled) for name, resampled in resample_figures(scores, verdict, seed).items()}


def resample_figures(scores: FrameScores, verdict: Bools, seed: int = 0) -> dict[str, Resampled]:
    """Compute every metric of FIGURES, also of resampled episodes: the same ones for every model on the same frames."""
    names, episode = np.unique(scores.episode, return_inverse=True)
    count = len(names)
    once_1E = np.ones((1, count))
    drawn_BE = draw_episodes(count, RESAMPLES, seed)
    figures: dict[str, Resampled] = {}
    for name, (top, bottom) in _ratios(scores, verdict, episode, count).items():
        value, samples = (_divide(draws @ top, draws @ bottom) for draws in (once_1E, drawn_BE))
        figures[name] = Resampled(value[0], samples, int((bottom > 0).sum()))
    both = int(min(len(np.unique(episode[scores.label])), len(np.unique(episode[~scores.label]))))
    value_12 = _areas(scores, episode, once_1E)
    samples_B2 = _areas(scores, episode, drawn_BE[:AREA_RESAMPLES])
    for column, name in enumerate(("roc_auc", "pr_auc")):
        figures[name] = Resampled(value_12[0, column], samples_B2[:, column], both)
    delay_E = _delays(scores, verdict, episode, count)
    for name, level in (("delay_median", 0.5), ("delay_p90", 0.9)):
        value, samples = (_quantile(delay_E, draws, level) for draws in (once_1E, drawn_BE))
        figures[name] = Resampled(value[0], samples, int(np.isfinite(delay_E).sum()), bounded=False)
    return {name: figures[name] for name in FIGURES}


def interval(samples: Floats) -> tuple[float, float]:
    """Return the 95 % interval of resampled values."""
    tail = (1 - CONFIDENCE) / 2
    low, high = (float(x) for x in np.nanquantile(samples, [tail, 1 - tail]))
    return low, high


def draw_episodes(count: int, resamples: int, seed: int) -> Floats:
    """Draw bootstrap resamples: how often each of `count` episodes is in each, [resamples, count]."""
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    return draws.astype(np.float64)


def rule_of_three(episodes: int) -> float:
    """Upper bound (95 %) of a rate after no event in `episodes`: about 3/n (Hanley & Lippman-Hand 1983)."""
    return float(1 - (1 - CONFIDENCE) ** (1 / episodes))


def wilson(hits: int, count: int) -> Estimate:
    """Return the share of independent trials that are hits, with its 95 % interval (Wilson 1927).

    For episodes that were each judged once; frames of one episode are correlated and need the bootstrap above.
    """
    if count == 0:
        return Estimate(None)
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = hits / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z / (1 + z**2 / count) * (share * (1 - share) / count + z**2 / (4 * count**2)) ** 0.5
    # Rounding may leave the end of [0, 1] at which no or every trial is a hit.
    return Estimate(share, 0.0 if hits == 0 else middle - reach, 1.0 if hits == count else middle + reach)


def _estimate(resampled: Resampled) -> Estimate:
    value, bounded = resampled.value, resampled.bounded
    if np.isnan(value):
        return Estimate(None)
    if resampled.episodes < 2:  # resampling one episode always gives the same value, which would look like certainty
        return Estimate(float(value))
    low, high = interval(resampled.samples)
    if bounded and value == 0:  # likewise for an event that never or always happened
        high = max(high, rule_of_three(resampled.episodes))
    if bounded and value == 1:
        low = min(low, 1 - rule_of_three(resampled.episodes))
    return Estimate(float(value), low, high)


def _divide(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)


def _ratios(scores: FrameScores, verdict: Bools, episode: Ints, count: int) -> dict[str, tuple[Floats, Floats]]:
    """The two sums of each episode whose ratio over all episodes is the figure."""
    cells = np.bincount(episode * 4 + scores.label * 2 + verdict, minlength=4 * count)
    tn, fp, fn, tp = cells.reshape(count, 4).T.astype(np.float64)
    first_true, first_said = (_first(scores.time, hit, episode, count) for hit in (scores.label, verdict))
    happened, said = first_true != NEVER, first_said != NEVER
    last = np.zeros(count, dtype=np.int64)
    order = np.argsort(scores.time, kind="stable")
    last[episode[order]] = order  # the latest row of an episode is written last
    one = np.ones(count)
    missed = happened & np.isnan(_delays(scores, verdict, episode, count))
    return {
        "accuracy": (tp + tn, tp + tn + fp + fn),
        "precision": (tp, tp + fp),
        "recall": (tp, tp + fn),
        "f1": (2 * tp, 2 * tp + fp + fn),
        "fpr": (fp, fp + tn),
        "class_prior": (tp + fn, tp + tn + fp + fn),
        "agreement": ((happened == said).astype(np.float64), one),
        "agreement_last": ((scores.label == verdict)[last].astype(np.float64), one),
        "early_fire": ((first_said < first_true).astype(np.float64), one),
        "never_detected": (missed.astype(np.float64), happened.astype(np.float64)),
    }


def _first(time: Ints, hit: Bools, episode: Ints, count: int) -> Ints:
    """Return the first time of a hit in each episode, or NEVER."""
    first = np.full(count, NEVER)
    np.minimum.at(first, episode[hit], time[hit])
    return first


def _delays(scores: FrameScores, verdict: Bools, episode: Ints, count: int) -> Floats:
    """Count frames from the first success to the first verdict at or after it; NaN where either is missing."""
    first_true = _first(scores.time, scores.label, episode, count)
    seen = _first(scores.time, verdict & (scores.time >= first_true[episode]), episode, count)
    found = seen != NEVER
    return np.where(found, np.where(found, seen, 0) - np.where(found, first_true, 0), np.nan)


def _quantile(value_E: Floats, draws_BE: Floats, level: float) -> Floats:
    """Compute the quantile `level` over the drawn episodes of each resample."""
    known = np.flatnonzero(np.isfinite(value_E))
    if len(known) == 0:
        return np.full(len(draws_BE), np.nan)
    order = known[np.argsort(value_E[known])]
    below_BE = draws_BE[:, order].cumsum(axis=1)
    total_B = below_BE[:, -1]
    place_B = (below_BE >= level * total_B[:, None]).argmax(axis=1)
    return np.where(total_B > 0, value_E[order][place_B], np.nan)


def _areas(scores: FrameScores, episode: Ints, draws_BE: Floats) -> Floats:
    """Compute ROC-AUC and average precision per resample, [B, 2], as scikit-learn does, but for all of them at once."""
    order = np.argsort(-scores.logit, kind="stable")
    logit, label, episode = scores.logit[order], scores.label[order], episode[order]
    ends = np.append(np.flatnonzero(np.diff(logit)), len(logit) - 1)  # no threshold separates equal scores
    areas = []
    for start in range(0, len(draws_BE), AREA_CHUNK):
        weight_BF = draws_BE[start : start + AREA_CHUNK, episode]
        tp_BU, fp_BU = (np.cumsum(weight_BF * hit, axis=1)[:, ends] for hit in (label, ~label))
        step_BU = np.diff(tp_BU, axis=1, prepend=0)
        positive_B, negative_B = tp_BU[:, -1], fp_BU[:, -1]
        roc_B = negative_B * positive_B - (step_BU * (fp_BU - np.diff(fp_BU, axis=1, prepend=0) / 2)).sum(axis=1)
        precision_B = (step_BU * tp_BU / np.maximum(tp_BU + fp_BU, 1)).sum(axis=1)
        rank_B = _divide(roc_B, negative_B * positive_B)
        # Without failures the average precision is 1 whatever the scores, without successes 0: neither is informative.
        areas.append(np.stack([rank_B, np.where(np.isnan(rank_B), np.nan, _divide(precision_B, positive_B))], axis=1))
    return np.concatenate(areas)
