"""The audit of a success classifier while a policy trains on it: a policy exploits every false positive it finds.

Once an iteration, the frames that were scored are compared with the truth where the environment knows it, and with the
held-out frames of the classifier where it does not. Three kinds of alarm:

`false_positives`   Over the last `window` iterations, the share of failure frames called success is above `max_fpr` by
                    more than two standard errors, from at least 20 failure frames in 5 iterations. The standard error
                    is the larger of two: between iterations, since frames of an iteration are alike, and of as many
                    independent frames at the limit, since a few frames may agree by chance. False claims must also be
                    more than `max_fpr` of all claims: of a policy that succeeds, the few failure frames left are those
                    just before success, and a verdict that comes a frame early does no harm.
`hacking`           What the model pays rose from the `window` iterations before to the last `window`, by more than four
                    standard errors of iterations, and more than half of the rise was paid for failures: the model's
                    reward grows and true success does not keep up. "Pays" is the verdict for binary rewards, the
                    probability for continuous ones, averaged over frames.
`drift`             Where truth is unknown: the scores of the last `window` iterations are further than `max_drift` from
                    every mixture of held-out successes and failures, beyond what so few frames would be by chance.

An alarm is not raised again until it is half again as bad as when it was last raised, or five windows have passed.
What follows from an alarm (`on_alarm`) is the training loop's business.
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
RATE_ERRORS = 2.0  # standard errors beyond the limit; AuditConfig.window makes them from 5 iterations or more
RISE_ERRORS = 4.0  # more, since a rise is looked for hundreds of times in a run
WORSE = 1.5
REPEAT_WINDOWS = 5


@dataclass(frozen=True)
class Alarm:
    kind: Kind
    iteration: int
    words: str
    value: float  # how bad it is, in the unit of its kind: to tell when it gets worse


@dataclass(frozen=True)
class AuditResult:
    figures: dict[str, float]  # ready to log; a figure that the frames cannot tell is absent
    alarms: tuple[Alarm, ...]  # those raised in this iteration


@dataclass(frozen=True)
class _Truth:
    failures: int
    false_positives: int
    true_positives: int
    paid_for_failures: float  # per frame


@dataclass(frozen=True)
class _Iteration:
    """What alarms need to remember of an iteration."""

    paid: float  # per frame, in shares of the success reward
    scores: list[int]  # frames a bin
    truth: _Truth | None


class Audit:
    """Call `check` once an iteration. Figures and alarms are computed here; logging and acting are the loop's part."""

    def __init__(
        self,
        config: RewardConfig,
        *,
        threshold: float = 0.5,
        reference: ScoreHistogram | None = None,
        directory: Path | None = None,
    ) -> None:
        """`threshold` is the manager's, `reference` is `ScoreHistogram.from_metrics(model.metrics)`."""
        self.config = config.audit
        self.threshold = threshold
        self.reference = reference
        self.alarms: list[Alarm] = []  # all of this run
        self._pays_verdict = config.reward_type == "binary"
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
        """Look at all frames scored in this iteration, in any shape.

        `success` is the truth of these very frames (not of their episodes), or None where nobody knows it. `frames`
        gives the pictures of rows of the flattened `probability`; it is asked for a few rows at most.
        """
        scores = to_numpy(probability).reshape(-1).astype(np.float64)
        truth = None if success is None else to_numpy(success).reshape(-1).astype(np.bool_)
        if truth is not None and len(truth) != len(scores):
            raise DataError(f"the truth of {len(truth)} frames for {len(scores)} probabilities; expected one each")
        if len(scores) == 0:  # terminal mode, and no episode ended
            return AuditResult({}, ())
        verdict = scores > self.threshold
        self._remember(scores, verdict, truth)
        figures = {"audit/claimed": float(verdict.mean())}
        if truth is not None:
            figures |= _figures(scores, verdict, truth)
        if self.reference is not None:
            figures["audit/drift"] = self.reference.distance(count_scores(scores))
        if self._disputed is not None and frames is not None:
            self._disputed.add(iteration, scores, verdict, truth, frames)
        return AuditResult(figures, self._raise_alarms(iteration))

    def set_model(self, threshold: float, reference: ScoreHistogram | None) -> None:
        """The classifier has changed, and its threshold and the scores of its held-out frames with it."""
        self.threshold, self.reference = threshold, reference

    def restart(self) -> None:
        """Forget the iterations so far, since other frames are scored from here on (another `reward_mode`)."""
        self._history.clear()

    def close(self) -> None:
        """Wait until all disputed frames are on the disk."""
        if self._disputed is not None:
            self._disputed.flush()

    def state_dict(self) -> dict[str, Any]:
        """Plain values that JSON keeps exactly."""
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

    def _remember(self, scores: Floats, verdict: Bools, truth: Bools | None) -> None:
        paid = verdict.astype(np.float64) if self._pays_verdict else scores
        known = None
        if truth is not None:
            known = _Truth(
                failures=int((~truth).sum()),
                false_positives=int((verdict & ~truth).sum()),
                true_positives=int((verdict & truth).sum()),
                paid_for_failures=float((paid * ~truth).mean()),
            )
        self._history.append(_Iteration(float(paid.mean()), count_scores(scores).tolist(), known))
        del self._history[: -2 * self.config.window]

    def _raise_alarms(self, iteration: int) -> tuple[Alarm, ...]:
        rules: dict[Kind, Callable[[], tuple[float, str] | None]] = {
            "false_positives": self._false_positives,
            "hacking": self._hacking,
            "drift": self._drift,
        }
        raised = []
        for kind, rule in rules.items():
            found = rule()
            if found is not None and self._is_news(kind, iteration, found[0]):
                raised.append(Alarm(kind, iteration, found[1], found[0]))
        self.alarms += raised
        return tuple(raised)

    def _is_news(self, kind: Kind, iteration: int, value: float) -> bool:
        last = next((alarm for alarm in reversed(self.alarms) if alarm.kind == kind), None)
        if last is None:
            return True
        return value >= WORSE * last.value or iteration >= last.iteration + REPEAT_WINDOWS * self.config.window

    def _false_positives(self) -> tuple[float, str] | None:
        window, limit = self.config.window, self.config.max_fpr
        known = [entry.truth for entry in self._history[-window:] if entry.truth is not None]
        judged = [truth for truth in known if truth.failures > 0]
        failures = np.array([truth.failures for truth in judged])
        false = np.array([truth.false_positives for truth in judged])
        if len(judged) < FEWEST_ITERATIONS or failures.sum() < FEWEST_FAILURES:
            return None
        rate = float(false.sum() / failures.sum())
        error = max(_ratio_error(false, failures), (limit * (1 - limit) / failures.sum()) ** 0.5)
        claims = int(false.sum()) + sum(truth.true_positives for truth in known)
        if rate - RATE_ERRORS * error <= limit or false.sum() <= limit * claims:
            return None
        return rate, (
            f"{_share(rate)} of the policy's failure frames were called success in the last {window} iterations "
            f"(limit {_share(limit)}), and {_share(false.sum() / claims)} of all frames called success are failures. "
            f"See {FALSE_POSITIVE}/ for the frames."
        )

    def _hacking(self) -> tuple[float, str] | None:
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
            "The model's reward rose and true success did not keep up: of what a frame could earn, "
            f"{_share(now.mean())} was paid in the last {window} iterations ({_share(before.mean())} in those before), "
            f"and {_share(false_now)} was paid for failures ({_share(false_before)} before)."
        )

    def _drift(self) -> tuple[float, str] | None:
        window, limit = self.config.window, self.config.max_drift
        recent = self._history[-window:]
        if self.reference is None or len(recent) < window or any(entry.truth is not None for entry in recent):
            return None
        counts = np.sum([entry.scores for entry in recent], axis=0)
        distance = self.reference.distance(counts)
        # Kolmogorov and Smirnov's 95 % for two samples.
        chance = 1.36 * (1 / counts.sum() + 1 / max(self.reference.frames, 1)) ** 0.5
        if distance - chance <= limit:
            return None
        return distance, (
            f"The scores of the last {window} iterations are unlike those of any mixture of held-out successes and "
            f"failures (distance {distance:.2f}, limit {limit:.2f}): the policy visits frames that the classifier was "
            f"not trained on, and success is unknown here. See {CLAIMED}/ for frames to review."
        )


def _figures(scores: Floats, verdict: Bools, truth: Bools) -> dict[str, float]:
    figures = {"audit/success": float(truth.mean())}
    if verdict.any():
        figures["audit/precision"] = float(truth[verdict].mean())
    if truth.any():
        figures["audit/recall"] = float(verdict[truth].mean())
    if not truth.all():
        figures["audit/fpr"] = float(verdict[~truth].mean())
    if truth.any() and not truth.all():
        figures["audit/roc_auc"] = _roc_auc(scores, truth)
    return figures


def _roc_auc(scores: Floats, truth: Bools) -> float:
    """How often a success has the higher score than a failure; equal scores count half."""
    failures = np.sort(scores[~truth])
    below = np.searchsorted(failures, scores[truth], "left")
    up_to = np.searchsorted(failures, scores[truth], "right")
    return float((below + up_to).mean() / (2 * len(failures)))


def _ratio_error(top: npt.NDArray[Any], bottom: npt.NDArray[Any]) -> float:
    """Standard error of sum(top) / sum(bottom), where both vary from one iteration to the next."""
    count, ratio = len(top), top.sum() / bottom.sum()
    return float((count / (count - 1) * ((top - ratio * bottom) ** 2).sum()) ** 0.5 / bottom.sum())


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
