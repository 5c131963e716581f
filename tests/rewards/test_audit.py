"""The audit: metrics by hand, alarms on synthetic runs, frames for a person to look at, exact resume."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from rewardlab.config.schema import AuditConfig, RewardConfig
from rewardlab.errors import DataError
from rewardlab.figures.score_histogram import ScoreHistogram
from rewardlab.rewards import Alarm, Audit

WINDOW = 10


def make_audit(directory: Path | None = None, reference: ScoreHistogram | None = None, **settings: object) -> Audit:
    config = RewardConfig(audit=AuditConfig(window=WINDOW, **settings))  # type: ignore[arg-type]
    return Audit(config, threshold=0.5, reference=reference, directory=directory)


def feed(audit: Audit, iteration: int, *, hits: int = 0, misses: int = 0, false: int = 0, right: int = 0) -> list[str]:
    """One iteration with so many true positives, false negatives, false positives and true negatives."""
    probability = torch.tensor([0.9] * hits + [0.1] * misses + [0.9] * false + [0.1] * right)
    success = torch.arange(len(probability)) < hits + misses
    return [alarm.kind for alarm in audit.check(iteration, probability=probability, success=success).alarms]


# Figures


def test_metrics_by_hand() -> None:
    probability = torch.tensor([[0.9, 0.6, 0.3], [0.7, 0.3, 0.1]])
    success = torch.tensor([[True, True, True], [False, False, False]])
    metrics = make_audit().check(0, probability=probability, success=success).metrics
    # Pairs of success and failure: 0.9 and 0.6 above (3 + 2), 0.3 above 0.1 and level with 0.3 (1.5), of 9.
    assert metrics == pytest.approx(
        {
            "audit/claimed": 3 / 6,
            "audit/success": 3 / 6,
            "audit/precision": 2 / 3,
            "audit/recall": 2 / 3,
            "audit/fpr": 1 / 3,
            "audit/roc_auc": 6.5 / 9,
        }
    )


@pytest.mark.parametrize(
    ("probability", "success", "told"),
    [
        ([0.1, 0.2], [False, False], {"claimed", "success", "fpr"}),
        ([0.1, 0.2], [True, True], {"claimed", "success", "recall"}),
        ([0.9], [False], {"claimed", "success", "precision", "fpr"}),
        ([0.9], None, {"claimed"}),
        ([], [], set()),
    ],
)
def test_what_the_frames_cannot_tell_is_absent(
    probability: list[float], success: list[bool] | None, told: set[str]
) -> None:
    truth = None if success is None else torch.tensor(success, dtype=torch.bool)
    metrics = make_audit().check(0, probability=torch.tensor(probability), success=truth).metrics
    assert set(metrics) == {f"audit/{name}" for name in told}
    assert np.isfinite(list(metrics.values())).all()


def test_a_threshold_is_not_yet_a_success() -> None:
    metrics = make_audit().check(0, probability=torch.tensor([0.5]), success=torch.tensor([False])).metrics
    assert metrics["audit/fpr"] == 0


def test_truth_of_other_frames_is_refused() -> None:
    with pytest.raises(DataError, match="truth of 2 frames for 3 probabilities"):
        make_audit().check(0, probability=torch.zeros(3), success=torch.zeros(2))


# Alarm: false positives


def test_false_positives_above_the_limit_raise_an_alarm_once_there_is_evidence() -> None:
    audit = make_audit()
    raised = [feed(audit, i, false=3, right=7) for i in range(20)]
    assert raised[:4] == [[]] * 4
    assert raised[4] == ["false_positives"]
    assert raised[5:] == [[]] * 15
    assert "30.0 % of the policy's failure frames" in audit.alarms[0].words
    assert audit.alarms[0].value == pytest.approx(0.3)


def test_one_of_three_failures_does_not_cry_wolf() -> None:
    audit = make_audit()
    for iteration in range(20):
        assert feed(audit, iteration, hits=5, false=iteration % 7 == 0, right=3 - (iteration % 7 == 0)) == []


def test_one_bad_iteration_is_no_evidence() -> None:
    # 40 % of all failure frames, but all from one iteration: perhaps a single episode.
    audit = make_audit()
    assert not any(feed(audit, i, false=600 * (i == 9), right=100) for i in range(10))


def test_a_verdict_a_frame_early_is_no_exploit() -> None:
    # A good policy: 40 frames of success, and 1 of the 5 failure frames before them called success.
    audit = make_audit()
    assert not any(feed(audit, i, hits=400, false=10, right=40) for i in range(20))


def test_terminal_mode_with_few_episodes_finds_it_too() -> None:
    audit = make_audit()
    kinds = [feed(audit, i, hits=1, false=1 + i % 2, right=1) for i in range(12)]
    assert ["false_positives"] in kinds


# Alarm: hacking

Curve = Callable[[float], float]


def simulate(true: Curve, fooled: Curve, seed: int, *, recall: Curve = lambda t: 0.9, iterations: int = 100) -> Audit:
    """16 episodes of 40 frames an iteration; `true` of them succeed, `fooled` of them are called success throughout."""
    rng = np.random.default_rng(seed)
    audit = make_audit(max_fpr=0.9)
    for iteration in range(iterations):
        t = iteration / iterations
        start = np.where(rng.random(16) < true(t), rng.integers(5, 35, 16), 40)
        success = np.arange(40) >= start[:, None]
        fooled_16 = rng.random(16) < fooled(t)
        verdict = np.where(success, rng.random((16, 40)) < recall(t), fooled_16[:, None])
        audit.check(iteration, probability=torch.from_numpy(0.1 + 0.8 * verdict), success=torch.from_numpy(success))
    return audit


@pytest.mark.parametrize(
    ("true", "fooled"),
    [
        (lambda t: t, lambda t: 0.0),
        (lambda t: min(1.0, 2 * t), lambda t: 0.02),
        (lambda t: 0.3, lambda t: 0.02),
        (lambda t: 0.0, lambda t: 0.0),
        (lambda t: 0.9 - 0.8 * t, lambda t: 0.02),
    ],
    ids=["both rise", "both rise fast", "both flat", "nothing happens", "the policy gets worse"],
)
def test_healthy_curves_raise_nothing(true: Curve, fooled: Curve) -> None:
    assert sum(len(simulate(true, fooled, seed).alarms) for seed in range(5)) == 0


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_reward_that_rises_while_success_does_not_raises_an_alarm(level: float) -> None:
    for seed in range(5):
        alarms = simulate(lambda t: level, lambda t: 0.0 if t < 0.5 else 0.8, seed).alarms
        assert alarms[0].kind == "hacking"
        assert 50 <= alarms[0].iteration < 65
        assert "paid for failures" in alarms[0].words


def test_successes_that_are_recognised_better_are_not_hacking() -> None:
    # The model's reward rises, true success does not, and no failure is paid for.
    assert simulate(lambda t: 0.5, lambda t: 0.0, 0, recall=lambda t: 0.5 if t < 0.5 else 1.0).alarms == []


def test_continuous_rewards_are_hacked_below_the_threshold_too() -> None:
    config = RewardConfig(reward_type="continuous", audit=AuditConfig(window=WINDOW))
    audit = Audit(config, threshold=0.5)
    for iteration in range(20):
        probability = torch.full((50,), 0.05 if iteration < 10 else 0.4)
        audit.check(iteration, probability=probability, success=torch.zeros(50, dtype=torch.bool))
    assert [(alarm.kind, alarm.iteration) for alarm in audit.alarms] == [("hacking", 19)]


# Alarm: drift


def reference() -> ScoreHistogram:
    rng = np.random.default_rng(0)
    label = np.arange(2000) % 4 == 0
    return ScoreHistogram.of(np.where(label, rng.beta(20, 1, 2000), rng.beta(1, 20, 2000)), label)


def test_drift_by_hand() -> None:
    histogram = ScoreHistogram.of(np.array([0.0, 0.01, 1.0, 0.99]), np.array([False, False, True, True]))
    assert histogram.failure == (2, *[0] * 19)
    assert histogram.success == (*[0] * 19, 2)
    counts = np.zeros(20, dtype=np.int64)
    counts[[0, 19]] = 4, 4  # as many of both: a mixture
    assert histogram.distance(counts) == pytest.approx(0)
    counts[10] = 8  # half of the frames are where no held-out frame was: the sums 1/4 and 3/4, of any mixture level
    assert histogram.distance(counts) == pytest.approx(0.25)


def test_a_policy_that_succeeds_more_often_is_no_drift() -> None:
    rng, audit = np.random.default_rng(1), make_audit(reference=reference())
    for iteration in range(40):
        success = rng.random(100) < iteration / 40
        scores = np.where(success, rng.beta(20, 1, 100), rng.beta(1, 20, 100))
        assert audit.check(iteration, probability=torch.from_numpy(scores)).alarms == ()


def test_scores_unlike_the_held_out_ones_raise_an_alarm_only_where_truth_is_unknown() -> None:
    scores = torch.linspace(0.4, 0.8, 100)
    audit = make_audit(reference=reference())
    alarms = [audit.check(i, probability=scores).alarms for i in range(12)]
    assert [bool(raised) for raised in alarms] == [False] * 9 + [True, False, False]
    assert alarms[9][0].kind == "drift"
    knowing = make_audit(reference=reference())
    for iteration in range(12):
        result = knowing.check(iteration, probability=scores, success=torch.ones(100))
        assert result.metrics["audit/drift"] > 0.4
        assert result.alarms == ()


def test_few_frames_are_no_drift() -> None:
    rng, audit = np.random.default_rng(2), make_audit(reference=reference(), max_drift=0.05)
    for iteration in range(30):
        assert audit.check(iteration, probability=torch.from_numpy(rng.beta(1, 20, 3))).alarms == ()


def test_a_reference_is_read_from_figures_or_absent() -> None:
    stored = {"score_histogram": {"success": [0] * 19 + [5], "failure": [7] + [0] * 19}}
    found = ScoreHistogram.from_metrics(stored)
    assert found is not None
    assert found.frames == 12
    assert ScoreHistogram.from_metrics({}) is None
    with pytest.raises(DataError, match=r"score_histogram.*expected 20"):
        ScoreHistogram.from_metrics({"score_histogram": {"success": [1], "failure": [2]}})


# Repetition and resume


def test_an_alarm_is_repeated_when_it_gets_worse_or_after_five_windows() -> None:
    audit = make_audit(max_fpr=0.05)
    iterations = [i for i in range(80) if feed(audit, i, false=20, right=80)]
    assert iterations == [4, 54]
    iterations = [i for i in range(80, 100) if "false_positives" in feed(audit, i, false=60, right=40)]
    # The window's mean passes 1.5 * 20 % after three iterations at 60 %.
    assert iterations[0] == 82
    assert audit.alarms[2].value == pytest.approx(0.32)


def test_a_resumed_audit_goes_on_exactly() -> None:
    def run(audit: Audit, start: int, stop: int) -> None:
        for iteration in range(start, stop):
            feed(audit, iteration, hits=10, false=iteration, right=60)

    whole, first, second = make_audit(), make_audit(), make_audit()
    run(whole, 0, 40)
    run(first, 0, 23)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    run(second, 23, 40)
    assert whole.alarms
    assert second.alarms == whole.alarms
    assert second.state_dict() == whole.state_dict()
    with pytest.raises(DataError, match="state of the audit is not complete"):
        make_audit().load_state_dict({"alarms": []})


def test_a_restart_forgets_iterations_and_remembers_alarms() -> None:
    audit = make_audit()
    for iteration in range(8):
        feed(audit, iteration, false=9, right=1)
    audit.restart()
    assert feed(audit, 8, false=9, right=1) == []
    assert [type(alarm) for alarm in audit.alarms] == [Alarm]


# Disputed frames


def pictures(rows: np.ndarray) -> np.ndarray:
    """Frames that tell their row."""
    return np.stack([np.full((8, 8, 3), row, dtype=np.uint8) for row in rows])


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []


def test_the_surest_errors_are_kept_as_pictures(tmp_path: Path) -> None:
    audit = make_audit(tmp_path)
    probability = torch.tensor([0.6, 0.9, 0.8, 0.4, 0.05, 0.95])
    success = torch.tensor([False, False, False, True, True, True])
    audit.check(7, probability=probability, success=success, frames=pictures)
    audit.close()
    assert names(tmp_path / "false_positive") == ["000007_0_prob0.9000.png", "000007_1_prob0.8000.png"]
    assert names(tmp_path / "false_negative") == ["000007_0_prob0.0500.png", "000007_1_prob0.4000.png"]
    assert np.asarray(Image.open(tmp_path / "false_positive" / "000007_1_prob0.8000.png"))[0, 0, 0] == 2
    assert not (tmp_path / "claimed").exists()


def test_without_truth_some_claimed_successes_are_kept_for_review(tmp_path: Path) -> None:
    asked: list[int] = []

    def remember(rows: np.ndarray) -> np.ndarray:
        asked.extend(rows.tolist())
        return pictures(rows)

    for folder in ("a", "b"):
        audit = make_audit(tmp_path / folder)
        audit.check(3, probability=torch.tensor([0.1, 0.9] * 50), frames=remember)
        audit.close()
    assert len(names(tmp_path / "a" / "claimed")) == 2
    assert all(row % 2 == 1 for row in asked)
    assert asked[:2] == asked[2:]  # a resumed run draws the same


def test_folders_keep_the_newest(tmp_path: Path) -> None:
    audit = make_audit(tmp_path, disputed_frames=3)
    for iteration in range(5):
        audit.check(iteration, probability=torch.tensor([0.9]), success=torch.tensor([False]), frames=pictures)
    audit.close()
    assert [name[:6] for name in names(tmp_path / "false_positive")] == ["000002", "000003", "000004"]


def test_none_are_asked_for_if_none_are_kept(tmp_path: Path) -> None:
    def refuse(rows: np.ndarray) -> np.ndarray:
        raise AssertionError

    wrong = {"probability": torch.tensor([0.9]), "success": torch.tensor([False])}
    make_audit(tmp_path, disputed_frames=0).check(0, **wrong, frames=refuse)
    make_audit(None).check(0, **wrong, frames=refuse)
    right = {"probability": torch.tensor([0.9]), "success": torch.tensor([True])}
    make_audit(tmp_path).check(0, **right, frames=refuse)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_warns_and_the_audit_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    audit = make_audit(tmp_path / "file")

    def check() -> None:
        audit.check(0, probability=torch.tensor([0.9]), success=torch.tensor([False]), frames=pictures)
        audit.close()

    with pytest.warns(UserWarning, match="no more disputed frames in .* are written"):
        check()


def test_a_window_too_short_to_tell_chance_from_change_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 5"):
        AuditConfig(window=2)
