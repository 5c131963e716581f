"""Calibrated probabilities from logits, and the threshold that turns a probability into a verdict.

The verdict is `p > threshold`, with `p = sigmoid(logit / temperature)`.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rewardlab.errors import DataError
from rewardlab.figures.metrics import RESAMPLES, Bools, Floats, FrameScores, Ints, draw_episodes, rule_of_three
from rewardlab.figures.words import share

TEMPERATURES = (0.05, 20.0)
BINS = 15
# float32 rounds p to 0 or 1 only far outside these limits, so a threshold within them still separates frames.
THRESHOLDS = (1e-6, 1 - 1e-6)
QUANTILE = 0.975  # for a one-sided bound of 95 %, since a bootstrap over few episodes covers less than it claims
ERRING_EPISODES = 5  # with false positives in fewer episodes, a bootstrap underestimates how much the rate varies
AFFORDABLE = 0.9  # share of the best recall that is kept when a stricter threshold is taken
USABLE_RECALL = 0.5
GAP = 0.8  # position of the threshold between the next failure below (0) and the last accepted success (1)


def probabilities(logit: Floats, temperature: float = 1.0) -> Floats:
    """sigmoid(logit / temperature), without overflow."""
    return np.exp(-np.logaddexp(0.0, -logit / temperature))


def log_loss(label: Bools, logit: Floats, temperature: float = 1.0) -> float:
    """Mean negative log-likelihood of the labels."""
    return float(np.logaddexp(0.0, np.where(label, -logit, logit) / temperature).mean())


def fit_temperature(scores: FrameScores) -> float:
    """Find the temperature that maximises the likelihood of held-out labels (Guo et al. 2017); 1 if a class is missing.

    In the inverse temperature the loss is convex, so that bisecting its slope finds the one minimum. Where all frames
    are on their right side, sharper is always likelier and nothing would stop it; Platt's targets (1999, section 2.2),
    which stay a little off 0 and 1, do.
    """
    label, logit = scores.label, scores.logit
    if label.all() or not label.any():
        return 1.0
    successes = int(label.sum())
    target = np.where(label, (successes + 1) / (successes + 2), 1 / (len(label) - successes + 2))
    low, high = 1 / TEMPERATURES[1], 1 / TEMPERATURES[0]
    for _ in range(50):
        middle = (low * high) ** 0.5
        if (logit * (probabilities(logit, 1 / middle) - target)).sum() > 0:
            high = middle
        else:
            low = middle
    temperature = float(1 / middle)
    return temperature if log_loss(label, logit, temperature) <= log_loss(label, logit) else 1.0


@dataclass(frozen=True, eq=False)
class Reliability:
    """Mean probability, success rate and number of frames in each non-empty one of 15 bins of equal width."""

    probability: Floats
    success: Floats
    frames: Ints

    @property
    def ece(self) -> float:
        """Expected calibration error: mean distance of the two over frames."""
        return float((np.abs(self.probability - self.success) * self.frames).sum() / self.frames.sum())


def reliability(label: Bools, probability: Floats) -> Reliability:
    """Compute the reliability curve of probabilities."""
    place = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    frames = np.bincount(place, minlength=BINS)
    used = frames > 0
    mean, success = (np.bincount(place, values, BINS)[used] / frames[used] for values in (probability, label))
    return Reliability(mean, success, frames[used])


@dataclass(frozen=True)
class ThresholdChoice:
    """A threshold, its rates on the frames it was chosen on, and warnings about what these frames cannot show."""

    threshold: float
    fpr: float | None
    recall: float | None
    fpr_upper_bound: float | None
    warnings: tuple[str, ...]


def choose_threshold(
    scores: FrameScores, temperature: float = 1.0, target_fpr: float = 0.01, seed: int = 0
) -> ThresholdChoice:
    """Choose the threshold of highest recall whose false-positive rate is at most `target_fpr`.

    Measured exactly at the target, the rate would exceed it on every second fresh data set. So the first of these that
    costs at most a tenth of the recall is taken: the rate is below the target with 95 % confidence; no false positive
    was seen at all; the measured rate is at most the target. Within the range of equal recall the threshold stands in
    the gap between the last success it accepts and the next failure below, nearer to the success: few held-out frames
    leave a wide gap, and what lies in it is worse called success, since a policy will look for it.
    """
    if not 0 < target_fpr < 1:
        raise DataError(f"target_fpr is {target_fpr:g}; expected a rate between 0 and 1, such as 0.01")
    if scores.label.all():
        return ThresholdChoice(0.5, None, _share(scores.logit[scores.label] > 0), None, (_NO_FAILURES,))
    failures = _Failures(scores, seed)
    successes = np.sort(scores.logit[scores.label])

    def recall_above(cut: float) -> float:
        return float((successes > cut).sum() / max(len(successes), 1))

    measured = failures.measured_cut(target_fpr)
    promised = failures.lowest_cut(lambda cut: failures.upper_bound(cut) <= target_fpr)
    cuts = [cut for cut in (promised, failures.highest, measured) if cut is not None]
    cut = next(cut for cut in cuts if recall_above(cut) >= AFFORDABLE * recall_above(measured))
    cut = _in_gap(cut, failures.logit, successes, temperature)
    threshold = float(np.clip(probabilities(np.array(cut), temperature), *THRESHOLDS))
    cut = temperature * float(np.log(threshold) - np.log1p(-threshold))

    fpr, recall, bound = failures.rate(cut), _share(successes > cut), failures.upper_bound(cut)
    warnings = _warnings(failures, target_fpr, fpr, recall, bound)
    if bound > target_fpr and promised is not None:
        strict = float(np.clip(probabilities(np.array(promised), temperature), *THRESHOLDS))
        warnings.append(
            f"A threshold of {strict:.3g} would keep that promise, at a recall of {share(recall_above(promised))}."
        )
    return ThresholdChoice(threshold, fpr, recall, bound, tuple(warnings))


_NO_FAILURES = (
    "There is no held-out failure frame, so that no threshold could be chosen and no false-positive rate measured: "
    "0.5 is used. Hold out failures before you trust this model."
)


class _Failures:
    """The held-out failure frames, and the false-positive rate at a cut in their logits."""

    def __init__(self, scores: FrameScores, seed: int) -> None:
        self.logit = scores.logit[~scores.label]
        names, self.episode = np.unique(scores.episode[~scores.label], return_inverse=True)
        self.episodes = len(names)
        self.highest = float(self.logit.max())
        self._cuts = np.unique(self.logit)
        self._draws_BE = draw_episodes(self.episodes, RESAMPLES, seed)
        self._frames_B = self._draws_BE @ np.bincount(self.episode)
        worst = np.full(self.episodes, -np.inf)
        np.maximum.at(worst, self.episode, self.logit)
        self._enough = float(np.sort(worst)[-ERRING_EPISODES]) if self.episodes >= ERRING_EPISODES else None

    def rate(self, cut: float) -> float:
        return float((self.logit > cut).mean())

    def lowest_cut(self, allowed: Callable[[float], bool]) -> float | None:
        """Return the lowest failure score for which `allowed` holds; it must hold for all higher ones, too."""
        place = bisect_left(self._cuts, True, key=lambda cut: allowed(float(cut)))
        return float(self._cuts[place]) if place < len(self._cuts) else None

    def measured_cut(self, target: float) -> float:
        """Return the lowest failure score with at most a fraction `target` above it; equal scores stay together."""
        allowed = int(target * len(self.logit) + 1e-9)
        return float(np.sort(self.logit)[-1 - allowed])

    def upper_bound(self, cut: float) -> float:
        """Compute an upper bound (about 95 %) of the false-positive rate.

        In simulations with strongly alike frames in an episode it held for 92-99 % of the data sets of 120 to 400
        episodes, 89-99 % of 60 and 82-99 % of 30; where so few promise the target at all, it is often by luck.

        What is true at a lower cut holds at a higher one, so where too few episodes err for a bootstrap, the cut at
        which just enough of them do gives the bound; the rule of three needs no error at all. Never rises with the cut.
        """
        none = rule_of_three(self.episodes) if cut >= self.highest else 1.0
        if self._enough is None:
            return none
        passed = self.logit > cut if cut < self._enough else self.logit >= self._enough
        false_E = np.bincount(self.episode[passed], minlength=self.episodes)
        # The plain percentile is too low for rare events: resampling 5 of them ends at 9 where the exact limit is 10.5.
        false_B = self._draws_BE @ false_E + false_E.max()
        return min(none, float(np.quantile(false_B / self._frames_B, QUANTILE)))


def _share(hit: Bools) -> float | None:
    return float(hit.mean()) if len(hit) else None


def _in_gap(cut: float, failures: Floats, successes: Floats, temperature: float) -> float:
    accepted = successes[successes > cut]
    if len(accepted) == 0:
        return float(failures.max()) + temperature  # one unit of the calibrated logit clear of all failures
    lowest, below = accepted.min(), failures[failures < accepted.min()].max()
    return float(below + GAP * (lowest - below))


def _warnings(failures: _Failures, target: float, fpr: float, recall: float | None, bound: float) -> list[str]:
    words = []
    if fpr > target:
        words.append(
            f"No threshold below 1 brings the false-positive rate to {share(target)}: {share(fpr)} of the held-out "
            "failure frames have a probability of success that rounds to 1."
        )
    if bound > target:
        needed = _two_digits(failures.episodes * bound / target)
        words.append(
            f"Too little data to promise a false-positive rate of {share(target)}: judging by {failures.episodes} "
            f"held-out episodes with {len(failures.logit)} failure frames, it may be as high as {share(bound)}. "
            f"About {needed:,} such episodes would be needed if the model does as well on them."
        )
    if recall is None:
        words.append("There is no held-out success frame, so that it is unknown whether the model recognises success.")
    elif recall < USABLE_RECALL:
        words.append(
            f"At this threshold only {share(recall)} of the success frames are recognised: the model separates too "
            f"poorly for a false-positive rate of {share(target)}."
        )
    return words


def _two_digits(number: float) -> int:
    """Round up to two digits: an extrapolation should not look exact."""
    scale = 10 ** max(0, int(np.log10(number)) - 1)
    return int(np.ceil(number / scale) * scale)
