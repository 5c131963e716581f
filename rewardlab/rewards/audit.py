"""Audits a success classifier while a policy trains on it: a policy exploits every false positive it finds.

In each iteration, the predictions for the scored frames are compared with the true success, if the environment reports
it, otherwise their scores with those of the classifier's held-out frames. There are three kinds of alarm:

`false_positives`   The false-positive rate of the last `window` iterations is above `max_fpr` by more than two standard
                    errors, with at least 20 failure frames in 5 iterations. The standard error is the larger of two:
                    that between iterations, because frames of an iteration are similar, and that of the same number of
                    independent frames at the limit, because few frames may agree by chance. False positives must also
                    be more than `max_fpr` of all predicted successes: if a policy succeeds, the few failure frames are
                    those just before success, and predicting success a frame early does no harm.
`hacking`           The model's reward rose from one `window` of iterations to the next by more than four standard
                    errors between iterations, and failure frames earned more than half of the rise: the model's reward
                    grows and true success does not. The reward here is the predicted success for binary rewards, the
                    probability for continuous ones, averaged over frames.
`drift`             If true success is unknown: the scores of the last `window` iterations are further than `max_drift`
                    from every mixture of held-out successes and failures, beyond what is expected by chance.

An alarm is raised again only if its value is 1.5 times that of the last one, or five windows have passed. The training
loop decides what to do about an alarm (`on_alarm`).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from rewardlab.config.schema import RewardConfig
from rewardlab.errors import DataError
from rewardlab.figures.score_histogram import ScoreHistogram, count_scores
from rewardlab.observations import to_numpy
from rewardlab.rewards.disputed_frames import CLAIMED, FALSE_POSITIVE, DisputedFrames, Frames

Kind = Literal["false_positives", "hacking", "drift"]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

FEWEST_FAILURES = 20
FEWEST_ITERATIONS = 5
RATE_ERRORS = 2.0  # standard errors above the limit, over the 5 or more iterations of a window
RISE_ERRORS = 4.0  # higher, because a run tests for a rise hundreds of times
WORSE = 1.5
REPEAT_WINDOWS = 5


@dataclass(frozen=True)
class Alarm:
    """An alarm of an audit; `value` is the rate, reward or distance that raised it."""

    kind: Kind
    iteration: int
    words: str  # the message for the user
    value: float


@dataclass(frozen=True)
class AuditResult:
    """The metrics and the new alarms of one iteration."""

    metrics: dict[str, float]  # ready to log; without those that are undefined for these frames
    alarms: tuple[Alarm, ...]


@dataclass(frozen=True)
class _Truth:
    """Counts of one iteration that depend on the true success."""

    failures: int
    false_positives: int
    true_positives: int
    paid_for_failures: float  # reward of failure frames, per scored frame


@dataclass(frozen=True)
class _Iteration:
    """The numbers of one iteration that alarms are computed from; their names are stored in checkpoints."""

    paid: float  # mean reward per frame, as a fraction of the success reward
    scores: list[int]  # histogram: number of frames in each bin
    truth: _Truth | None


class Audit:
    """Computes metrics and alarms in each iteration; the training loop logs them and decides what to do."""

    def __init__(
        self,
        config: RewardConfig,
        *,
        threshold: float = 0.5,
        reference: ScoreHistogram | None = None,
        directory: Path | None = None,
    ) -> None:
        """Start an audit with the manager's `threshold` and `reference=ScoreHistogram.from_metrics(model.metrics)`.

        Disputed frames are written below `directory`.
        """
        self.config = config.audit
        self._place = "" if directory is None else f"{directory}/"
        self.threshold = threshold
        self.reference = reference
        self.alarms: list[Alarm] = []  # all of this run
        self._binary = config.reward_type == "binary"
        self._history: list[_Iteration] = []
        self._disputed: DisputedFrames | None = None
        if directory is not None and self.config.disputed_frames > 0:
            self._disputed = DisputedFrames(directory, self.config.disputed_frames)

    def check(
        self,
        iteration: int,
        *,
        probability: Tensor,
        success: Tensor | None = None,
        frames: Frames | None = None,
    ) -> AuditResult:
        """Return the metrics and new alarms of all frames that were scored in an iteration, in any shape.

        `success` is the true success of each frame (not of its episode), or None if it is unknown. `frames` returns
        the images of rows of the flattened `probability`; it is called for a few rows at most.
        """
        scores = to_numpy(probability).reshape(-1).astype(np.float64)
        truth = None if success is None else to_numpy(success).reshape(-1).astype(np.bool_)
        if truth is not None and len(truth) != len(scores):
            raise DataError(f"the truth of {len(truth)} frames for {len(scores)} probabilities; expected one each")
        if len(scores) == 0:  # terminal mode, and no episode ended
            return AuditResult({}, ())
        predicted = scores > self.threshold
        self._append_history(scores, predicted, truth)
        metrics = {"audit/claimed": float(predicted.mean())}
        if truth is not None:
            metrics |= _truth_metrics(scores, predicted, truth)
        if self.reference is not None:
            metrics["audit/drift"] = self.reference.distance(count_scores(scores))
        if self._disputed is not None and frames is not None:
            self._disputed.add(iteration, scores, predicted, truth, frames)
        return AuditResult(metrics, self._raise_alarms(iteration))

    def set_model(self, threshold: float, reference: ScoreHistogram | None) -> None:
        """Set the threshold and the score histogram of a classifier that has changed."""
        self.threshold, self.reference = threshold, reference

    def restart(self) -> None:
        """Drop the history, because other frames are scored from now on (another `reward_mode`)."""
        self._history.clear()

    def close(self) -> None:
        """Wait until all disputed frames are on disk."""
        if self._disputed is not None:
            self._disputed.flush()

    def state_dict(self) -> dict[str, Any]:
        """Return the history and alarms as plain values that JSON stores exactly."""
        return {
            "history": [asdict(entry) for entry in self._history],
            "alarms": [asdict(alarm) for alarm in self.alarms],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            self._history = [
                _Iteration(**{**entry, "truth": entry["truth"] and _Truth(**entry["truth"])})
                for entry in state["history"]
            ]
            self.alarms = [Alarm(**alarm) for alarm in state["alarms"]]
        except (KeyError, TypeError) as error:
            raise DataError(f"the stored state of the audit is not complete: {error}") from error

    def _append_history(self, scores: Floats, predicted: Bools, truth: Bools | None) -> None:
        reward = predicted.astype(np.float64) if self._binary else scores
        counts = None
        if truth is not None:
            counts = _Truth(
                failures=int((~truth).sum()),
                false_positives=int((predicted & ~truth).sum()),
                true_positives=int((predicted & truth).sum()),
                paid_for_failures=float((reward * ~truth).mean()),
            )
        self._history.append(_Iteration(float(reward.mean()), count_scores(scores).tolist(), counts))
        del self._history[: -2 * self.config.window]

    def _raise_alarms(self, iteration: int) -> tuple[Alarm, ...]:
        checks: dict[Kind, Callable[[], tuple[float, str] | None]] = {
            "false_positives": self._check_false_positives,
            "hacking": self._check_hacking,
            "drift": self._check_drift,
        }
        raised = []
        for kind, check in checks.items():
            found = check()
            if found is not None and not self._raised_recently(kind, iteration, found[0]):
                raised.append(Alarm(kind, iteration, found[1], found[0]))
        self.alarms += raised
        return tuple(raised)

    def _raised_recently(self, kind: Kind, iteration: int, value: float) -> bool:
        last = next((alarm for alarm in reversed(self.alarms) if alarm.kind == kind), None)
        if last is None:
            return False
        return value < WORSE * last.value and iteration < last.iteration + REPEAT_WINDOWS * self.config.window

    def _check_false_positives(self) -> tuple[float, str] | None:
        window, limit = self.config.window, self.config.max_fpr
        known = [entry.truth for entry in self._history[-window:] if entry.truth is not None]
        with_failures = [truth for truth in known if truth.failures > 0]
        failures = np.array([truth.failures for truth in with_failures])
        false = np.array([truth.false_positives for truth in with_failures])
        if len(with_failures) < FEWEST_ITERATIONS or failures.sum() < FEWEST_FAILURES:
            return None
        rate = float(false.sum() / failures.sum())
        error = max(_ratio_error(false, failures), (limit * (1 - limit) / failures.sum()) ** 0.5)
        positives = int(false.sum()) + sum(truth.true_positives for truth in known)
        if rate - RATE_ERRORS * error <= limit or false.sum() <= limit * positives:
            return None
        seen = len(self._history[-window:])
        return rate, (
            f"{_percent(rate)} of the policy's failure frames were called success in the last {seen} iterations "
            f"(limit {_percent(limit)}), and {_percent(false.sum() / positives)} of all frames called success are "
            f"failures. See {self._place}{FALSE_POSITIVE}/ for the frames."
        )

    def _check_hacking(self) -> tuple[float, str] | None:
        window = self.config.window
        truths = [entry.truth for entry in self._history if entry.truth is not None]
        if len(truths) < 2 * window:
            return None
        paid = np.array([entry.paid for entry in self._history if entry.truth is not None])
        false = np.array([truth.paid_for_failures for truth in truths])
        before, now = paid[:window], paid[window:]
        rise = now.mean() - before.mean()
        error = ((before.var(ddof=1) + now.var(ddof=1)) / window) ** 0.5
        false_before, false_now = float(false[:window].mean()), float(false[window:].mean())
        if rise <= RISE_ERRORS * error or false_now - false_before <= rise / 2:
            return None
        return false_now, (
            "The model's reward rose and true success did not: of the highest possible reward, "
            f"{_percent(now.mean())} was paid in the last {window} iterations ({_percent(before.mean())} in those "
            f"before), and {_percent(false_now)} was paid for failures ({_percent(false_before)} before)."
        )

    def _check_drift(self) -> tuple[float, str] | None:
        window, limit = self.config.window, self.config.max_drift
        recent = self._history[-window:]
        if self.reference is None or len(recent) < window or any(entry.truth is not None for entry in recent):
            return None
        counts = np.sum([entry.scores for entry in recent], axis=0)
        distance = self.reference.distance(counts)
        # The 95 % quantile of the Kolmogorov-Smirnov distance of two samples.
        chance = 1.36 * (1 / counts.sum() + 1 / max(self.reference.frames, 1)) ** 0.5
        if distance - chance <= limit:
            return None
        return distance, (
            f"The scores of the last {window} iterations are unlike those of any mixture of held-out successes and "
            f"failures (distance {distance:.2f}, limit {limit:.2f}): the policy visits frames that the classifier was "
            f"not trained on, and success is unknown here. See {self._place}{CLAIMED}/ for frames to review."
        )


def _truth_metrics(scores: Floats, predicted: Bools, truth: Bools) -> dict[str, float]:
    metrics = {"audit/success": float(truth.mean())}
    if predicted.any():
        metrics["audit/precision"] = float(truth[predicted].mean())
    if truth.any():
        metrics["audit/recall"] = float(predicted[truth].mean())
    if not truth.all():
        metrics["audit/fpr"] = float(predicted[~truth].mean())
    if truth.any() and not truth.all():
        metrics["audit/roc_auc"] = _roc_auc(scores, truth)
    return metrics


def _roc_auc(scores: Floats, truth: Bools) -> float:
    """Return how often a success has a higher score than a failure; equal scores count half."""
    failures = np.sort(scores[~truth])
    below = np.searchsorted(failures, scores[truth], "left")
    up_to = np.searchsorted(failures, scores[truth], "right")
    return float((below + up_to).mean() / (2 * len(failures)))


def _ratio_error(top: npt.NDArray[Any], bottom: npt.NDArray[Any]) -> float:
    """Return the standard error of sum(top) / sum(bottom), where both vary between iterations."""
    count, ratio = len(top), top.sum() / bottom.sum()
    return float((count / (count - 1) * ((top - ratio * bottom) ** 2).sum()) ** 0.5 / bottom.sum())


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
