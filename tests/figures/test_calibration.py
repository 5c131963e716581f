"""Temperature, threshold and what can be promised about them; figures that do not flatter."""

import json

import numpy as np
import pytest

from rewardlab.errors import DataError
from rewardlab.figures.calibration import (
    choose_threshold,
    fit_temperature,
    log_loss,
    probabilities,
    reliability,
)
from rewardlab.figures.metrics import FrameScores
from rewardlab.figures.trust import TrustFigures, assess, assign_folds, cross_fit


def one_frame_each(label: list[int] | np.ndarray, logit: list[float] | np.ndarray) -> FrameScores:
    """Every frame an episode of its own."""
    count = len(label)
    names = tuple(map(str, range(count)))
    return FrameScores(np.arange(count), np.zeros(count, int), np.array(label), np.array(logit, float), names)


def clustered(rng: np.random.Generator, episodes: int, gap: float) -> FrameScores:
    """40 frames an episode, half of the variance between episodes, half of the episodes with success at the end."""
    start = np.where(rng.random(episodes) < 0.5, rng.integers(20, 38, episodes), 40)
    episode, times = np.repeat(np.arange(episodes), 40), np.tile(np.arange(40), episodes)
    label = times >= start[episode]
    noise = rng.normal(0, 1, episodes)[episode] + rng.normal(0, 1, len(label))
    return FrameScores(episode, times, label, np.where(label, gap, -gap) / 2 + noise, tuple(map(str, range(episodes))))


def verdicts(scores: FrameScores, threshold: float, temperature: float = 1.0) -> np.ndarray:
    return probabilities(scores.logit, temperature) > threshold


class TestTemperature:
    @pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
    def test_recovers_the_temperature_of_a_generator(self, temperature: float) -> None:
        rng = np.random.default_rng(0)
        true_logit = rng.normal(-1, 2, 40_000)
        label = rng.random(40_000) < probabilities(true_logit)
        scores = one_frame_each(label, true_logit * temperature)
        found = fit_temperature(scores)
        assert found == pytest.approx(temperature, rel=0.03)
        assert reliability(scores.label, probabilities(scores.logit, found)).ece < 0.01

    def test_is_the_minimum_and_never_worse_than_1(self) -> None:
        rng = np.random.default_rng(1)
        for spread in (0.1, 1.0, 8.0):
            label = rng.random(200) < 0.3
            scores = one_frame_each(label, spread * (2.0 * label - 1 + rng.normal(0, 1, 200)))
            found = fit_temperature(scores)
            assert log_loss(scores.label, scores.logit, found) <= log_loss(scores.label, scores.logit)

    def test_separable_frames_do_not_sharpen_without_end(self) -> None:
        found = fit_temperature(one_frame_each([0] * 50 + [1] * 50, [-2.0] * 50 + [2.0] * 50))
        # Platt's targets: 51/52 at logit 2 / T.
        assert found == pytest.approx(2 / np.log(51), rel=1e-3)

    @pytest.mark.parametrize("label", [0, 1])
    def test_one_class_keeps_1(self, label: int) -> None:
        assert fit_temperature(one_frame_each([label] * 3, [1.0, 2.0, 3.0])) == 1.0

    def test_extreme_logits_overflow_nowhere(self) -> None:
        scores = one_frame_each([0, 1, 0, 1], [-1e4, 1e4, 1e4, -1e4])
        with np.errstate(over="raise", invalid="raise"):
            assert 1 <= fit_temperature(scores) <= 20


def test_reliability_by_hand() -> None:
    curve = reliability(np.array([False, True, True, True]), np.array([0.01, 0.03, 0.9, 1.0]))
    assert curve.frames.tolist() == [2, 1, 1]
    assert curve.success.tolist() == [0.5, 1.0, 1.0]
    assert curve.ece == pytest.approx((2 * 0.48 + 0.1 + 0) / 4)


class TestThreshold:
    def test_stands_in_the_gap_nearer_to_the_successes(self) -> None:
        choice = choose_threshold(one_frame_each([0, 0, 1, 1], [-5, -1, 2, 4]))
        assert choice.threshold == pytest.approx(probabilities(np.array(1.4)))
        assert (choice.fpr, choice.recall) == (0, 1)

    def test_is_in_units_of_the_calibrated_probability(self) -> None:
        choice = choose_threshold(one_frame_each([0, 0, 1, 1], [-5, -1, 2, 4]), temperature=2.0)
        assert choice.threshold == pytest.approx(probabilities(np.array(0.7)))

    def test_lets_pass_what_the_target_allows_where_recall_needs_it(self) -> None:
        # One failure of ten may pass at 10 %; it lies above most successes, the other nine below all.
        scores = one_frame_each([0] * 10 + [1] * 5, [-3.0] * 9 + [5.0] + [1, 2, 3, 4, 6])
        choice = choose_threshold(scores, target_fpr=0.1)
        assert (choice.fpr, choice.recall) == (0.1, 1.0)
        assert choice.threshold == pytest.approx(probabilities(np.array(0.2)))
        strict = choose_threshold(scores, target_fpr=0.09)
        assert (strict.fpr, strict.recall) == (0, 0.2)
        assert any("only 20.0 % of the success frames" in words for words in strict.warnings)

    def test_equal_scores_pass_or_fail_together(self) -> None:
        scores = one_frame_each([0] * 10 + [1] * 4, [-3.0] * 6 + [2.0] * 4 + [2.0, 2.0, 3.0, 3.0])
        choice = choose_threshold(scores, target_fpr=0.2)
        assert (choice.fpr, choice.recall) == (0, 0.5)
        assert probabilities(np.array(2.0)) < choice.threshold < probabilities(np.array(3.0))

    def test_all_frames_alike(self) -> None:
        choice = choose_threshold(one_frame_each([0] * 8 + [1] * 8, [0.3] * 16))
        assert (choice.fpr, choice.recall) == (0, 0)
        assert any("success frames are recognised" in words for words in choice.warnings)

    @pytest.mark.parametrize("size", [1e3, 1e-9])
    def test_stays_inside_0_and_1(self, size: float) -> None:
        for label in ([0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]):
            for logit in ([1, 2, 3, 4], [-4, -3, -2, -1]):
                choice = choose_threshold(one_frame_each(label, np.array(logit) * size))
                assert 0 < np.float32(choice.threshold) < 1

    def test_failures_that_round_to_1_are_said(self) -> None:
        choice = choose_threshold(one_frame_each([0] * 4 + [1] * 4, [40.0] * 4 + [50.0] * 4))
        assert choice.fpr == 1.0
        assert any("rounds to 1" in words for words in choice.warnings)

    def test_one_class(self) -> None:
        no_failures = choose_threshold(one_frame_each([1, 1], [1.0, 2.0]))
        assert (no_failures.threshold, no_failures.fpr, no_failures.fpr_upper_bound) == (0.5, None, None)
        assert "no held-out failure frame" in no_failures.warnings[0]
        no_successes = choose_threshold(one_frame_each([0, 0], [1.0, 2.0]))
        assert (no_successes.fpr, no_successes.recall) == (0, None)
        assert any("no held-out success frame" in words for words in no_successes.warnings)

    def test_few_episodes_cannot_promise_and_say_how_many_could(self) -> None:
        choice = choose_threshold(one_frame_each([0] * 20 + [1] * 20, [-5.0] * 20 + [5.0] * 20))
        assert choice.fpr_upper_bound == pytest.approx(1 - 0.05 ** (1 / 20))
        assert "20 held-out episodes with 20 failure frames" in choice.warnings[0]
        assert "About 280 such episodes" in choice.warnings[0]  # 20 x 13.9 % / 1 %

    def test_many_episodes_promise(self) -> None:
        choice = choose_threshold(one_frame_each([0] * 400 + [1] * 400, [-5.0] * 400 + [5.0] * 400))
        assert choice.fpr_upper_bound == pytest.approx(0.0075, abs=1e-4)  # the rule of three
        assert choice.warnings == ()

    def test_meets_the_target_on_fresh_draws(self) -> None:
        rng = np.random.default_rng(0)
        fresh = clustered(rng, 3000, gap=6.0)
        rates = []
        for _ in range(40):
            choice = choose_threshold(clustered(rng, 150, gap=6.0))
            said = verdicts(fresh, choice.threshold)
            rates.append(said[~fresh.label].mean())
            assert said[fresh.label].mean() > 0.85
        assert np.mean(np.array(rates) <= 0.01) >= 0.9
        assert np.mean(rates) > 0.002  # it does not meet it by refusing everything

    @pytest.mark.parametrize("target", [0.0, 1.0, -0.1, float("nan")])
    def test_impossible_target(self, target: float) -> None:
        with pytest.raises(DataError, match="target_fpr"):
            choose_threshold(one_frame_each([0, 1], [0.0, 1.0]), target_fpr=target)


class TestCrossFitting:
    def test_no_episode_judges_itself(self) -> None:
        scores = clustered(np.random.default_rng(0), 23, gap=4.0)
        part, parts = assign_folds(scores, 5, seed=0)
        assert parts == 5
        assert all(len(np.unique(part[scores.episode == number])) == 1 for number in range(23))
        seen: list[set[int]] = []

        def fit(others: FrameScores) -> tuple[float, float]:
            seen.append(set(others.episode.tolist()))
            return 1.0, 0.5

        cross_fit(scores, part, fit)
        judged = [set(scores.episode[part == number].tolist()) for number in range(5)]
        assert all(not used & mine for used, mine in zip(seen, judged, strict=True))
        assert set.union(*judged) == set(range(23))

    def test_every_part_has_both_outcomes(self) -> None:
        scores = one_frame_each([1] * 5 + [0] * 45, np.zeros(50))
        part, _ = assign_folds(scores, 5, seed=3)
        assert np.unique(part[scores.label]).tolist() == [0, 1, 2, 3, 4]
        assert np.bincount(part).tolist() == [10] * 5

    def test_a_lucky_threshold_is_found_out(self) -> None:
        """Scores that mean nothing: the chosen threshold looks spotless where it was chosen, and nowhere else."""
        rng = np.random.default_rng(0)
        flattering, honest = [], []
        for _ in range(20):
            episode = np.repeat(np.arange(10), 10)
            label = np.tile(np.arange(10) >= 5, 10)
            logit = 5 * rng.normal(size=10)[episode] + 0.01 * label  # success and failure of an episode look alike
            scores = FrameScores(episode, np.tile(np.arange(10), 10), label, logit, tuple("abcdefghij"))
            flattering.append(choose_threshold(scores, fit_temperature(scores)).fpr or 0.0)
            honest.append(assess(scores).estimates["fpr"].value or 0.0)
        assert max(flattering) <= 0.01
        assert np.mean(honest) > 0.03

    def test_too_few_episodes_are_said_to_flatter(self) -> None:
        figures = assess(one_frame_each([0, 0, 1], [-1.0, -2.0, 1.0]))
        assert figures.folds == 0
        assert any("flatter" in words for words in figures.warnings)

    @pytest.mark.parametrize("label", [0, 1])
    def test_one_class_is_assessed_all_the_same(self, label: int) -> None:
        figures = assess(one_frame_each([label] * 6, [-1.0, 0, 1, 2, 3, 4]))
        assert figures.estimates["roc_auc"].value is None
        assert figures.class_prior == label
        assert figures.warnings


def test_figures_survive_json() -> None:
    figures = assess(clustered(np.random.default_rng(0), 30, gap=4.0))
    text = json.dumps(figures.to_json(), allow_nan=False)
    assert TrustFigures.from_json(json.loads(text)) == figures
    empty = assess(one_frame_each([0, 0], [1.0, 2.0]))
    assert TrustFigures.from_json(json.loads(json.dumps(empty.to_json(), allow_nan=False))) == empty


def test_figures_keep_the_held_out_scores_for_an_audit_and_old_checkpoints_have_none() -> None:
    scores = clustered(np.random.default_rng(1), 8, gap=4.0)
    figures = assess(scores)
    histogram = figures.score_histogram
    assert histogram is not None
    probability = probabilities(scores.logit, figures.temperature)
    assert sum(histogram.success) == scores.label.sum()
    assert histogram.failure[0] == (probability[~scores.label] < 0.05).sum()
    old = {name: value for name, value in figures.to_json().items() if name != "score_histogram"}
    assert TrustFigures.from_json(old).score_histogram is None


@pytest.mark.parametrize("change", [{"counts": None}, {"surplus": 1}, {"estimates": {}}])
def test_incomplete_json_is_refused(change: dict[str, object]) -> None:
    values = assess(one_frame_each([0, 1, 0, 1], [-1.0, 1.0, -2.0, 2.0])).to_json()
    with pytest.raises(DataError, match="stored figures of trust"):
        TrustFigures.from_json({**values, **change})
