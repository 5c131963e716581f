"""Figures by hand, against scikit-learn, and intervals that cover what they claim."""

import time

import numpy as np
import pytest

from rewardlab.errors import DataError
from rewardlab.figures.metrics import FIGURES, Counts, FrameScores, frame_figures, wilson


def make_scores(labels: list[list[int]], logits: list[list[float]]) -> FrameScores:
    """Episodes written out frame by frame."""
    episode = np.repeat(np.arange(len(labels)), [len(row) for row in labels])
    times = np.concatenate([np.arange(len(row)) for row in labels])
    names = tuple(f"episode_{i:06d}" for i in range(len(labels)))
    return FrameScores(episode, times, np.concatenate(labels), np.concatenate(logits).astype(float), names)


def simulated(rng: np.random.Generator, episodes: int, gap: float = 6.0, between: float = 1.0) -> FrameScores:
    """40 frames an episode; half of the episodes succeed late; all frames of an episode are shifted together."""
    length = 40
    start = np.where(rng.random(episodes) < 0.5, rng.integers(20, 38, episodes), length)
    episode, times = np.repeat(np.arange(episodes), length), np.tile(np.arange(length), episodes)
    label = times >= start[episode]
    shift = rng.normal(0, between, episodes)[episode]
    logit = np.where(label, gap / 2, -gap / 2) + shift + rng.normal(0, 1, len(label))
    return FrameScores(episode, times, label, logit, tuple(map(str, range(episodes))))


# Four episodes: right in time; early by two; never a success but called one; a success that is seen two frames late.
LABELS = [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 1]]
LOGITS = [[-2, -1, 1, 2], [3, -1, 1, 2], [-2, -2, 1, -2], [-2, -1, -1, 1]]


def test_figures_by_hand() -> None:
    scores = make_scores(LABELS, LOGITS)
    figures = {name: figure.value for name, figure in frame_figures(scores, scores.logit > 0).items()}
    assert figures == pytest.approx(
        {
            "accuracy": 12 / 16,
            "precision": 5 / 7,
            "recall": 5 / 7,
            "f1": 5 / 7,
            "fpr": 2 / 9,
            "class_prior": 7 / 16,
            "agreement": 3 / 4,
            "agreement_last": 1.0,
            "early_fire": 2 / 4,
            "delay_median": 0.0,
            "delay_p90": 2.0,
            "never_detected": 0.0,
            "roc_auc": figures["roc_auc"],
            "pr_auc": figures["pr_auc"],
        }
    )
    counts = Counts.of(scores, scores.logit > 0)
    assert (counts.true_positive, counts.false_positive, counts.true_negative, counts.false_negative) == (5, 2, 7, 2)
    assert (counts.episodes, counts.success_episodes) == (4, 3)


def test_order_of_rows_does_not_matter() -> None:
    scores = make_scores(LABELS, LOGITS)
    order = np.random.default_rng(0).permutation(len(scores))
    mixed = FrameScores(
        scores.episode[order], scores.time[order], scores.label[order], scores.logit[order], scores.episode_names
    )
    assert frame_figures(mixed, mixed.logit > 0) == frame_figures(scores, scores.logit > 0)


def test_areas_are_scikit_learns_with_ties_too() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores = simulated(np.random.default_rng(0), 30, gap=2.0)
    for logit in (scores.logit, scores.logit.round()):
        scores = FrameScores(scores.episode, scores.time, scores.label, logit, scores.episode_names)
        figures = frame_figures(scores, logit > 0)
        assert figures["roc_auc"].value == pytest.approx(metrics.roc_auc_score(scores.label, logit))
        assert figures["pr_auc"].value == pytest.approx(metrics.average_precision_score(scores.label, logit))


def test_areas_by_hand() -> None:
    # Ranked: success, failure, then a tie of both. 4 pairs: 1 + 1 + 0 + 1/2 are right.
    scores = make_scores([[1, 0], [1, 0]], [[3, 2], [1, 1]])
    figures = frame_figures(scores, scores.logit > 0)
    assert figures["roc_auc"].value == pytest.approx(2.5 / 4)
    assert figures["pr_auc"].value == pytest.approx(0.5 * 1 + 0.5 * 2 / 4)


def test_a_missing_class_gives_no_invented_figure() -> None:
    failures = make_scores([[0, 0], [0, 0]], [[-1, -2], [-3, 1]])
    figures = frame_figures(failures, np.zeros(4, dtype=bool))
    unknown = {"recall", "precision", "f1", "roc_auc", "pr_auc", "delay_median", "delay_p90", "never_detected"}
    assert {name for name, figure in figures.items() if figure.value is None} == unknown
    assert all(figures[name].low is None and figures[name].high is None for name in unknown)
    successes = make_scores([[1, 1], [1, 1]], [[1, 2], [3, 1]])
    figures = frame_figures(successes, np.ones(4, dtype=bool))
    assert {name for name, figure in figures.items() if figure.value is None} == {"fpr", "roc_auc", "pr_auc"}


def test_no_false_positive_is_not_certainty() -> None:
    scores = make_scores([[0, 0, 1]] * 10, [[-2, -1, 1]] * 10)
    figures = frame_figures(scores, scores.logit > 0)
    fpr, recall = figures["fpr"], figures["recall"]
    assert (fpr.value, fpr.low, fpr.high) == (0, 0, pytest.approx(1 - 0.05**0.1))
    assert (recall.value, recall.low, recall.high) == (1, pytest.approx(0.05**0.1), 1)


def test_one_episode_has_figures_without_intervals() -> None:
    scores = make_scores([[0, 0, 1, 1]], [[-1, 1, 1, 1]])
    accuracy = frame_figures(scores, scores.logit > 0)["accuracy"]
    assert (accuracy.value, accuracy.low, accuracy.high) == (0.75, None, None)


def test_intervals_cover_the_truth() -> None:
    """Frames of an episode move together: an interval over frames would cover far less than nine times in ten."""
    rng = np.random.default_rng(1)
    truth_scores = simulated(rng, 2000, gap=2.0)
    said = truth_scores.logit > 0
    truth = frame_figures(truth_scores, said)
    names = ("accuracy", "recall", "fpr", "roc_auc", "early_fire")
    covered = dict.fromkeys(names, 0)
    for _ in range(60):
        scores = simulated(rng, 60, gap=2.0)
        figures = frame_figures(scores, scores.logit > 0)
        for name in names:
            value, low, high = truth[name].value, figures[name].low, figures[name].high
            assert value is not None
            assert low is not None
            assert high is not None
            covered[name] += low <= value <= high
    assert all(count >= 52 for count in covered.values()), covered


def test_400_episodes_take_well_under_a_second() -> None:
    scores = simulated(np.random.default_rng(0), 400)
    start = time.process_time()
    assert list(frame_figures(scores, scores.logit > 0)) == list(FIGURES)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logit": [0.0, np.nan, 1.0]}, "not finite"),
        ({"logit": [0.0, np.inf, 1.0]}, "not finite"),
        ({"episode": [], "time": [], "label": [], "logit": []}, "no held-out frames"),
    ],
)
def test_bad_scores_are_refused(change: dict[str, list[float]], words: str) -> None:
    good = {"episode": [0, 0, 1], "time": [0, 1, 0], "label": [0, 1, 1], "logit": [0.0, 1.0, 2.0]}
    columns = {name: np.array(values) for name, values in {**good, **change}.items()}
    with pytest.raises(DataError, match=words):
        FrameScores(**columns, episode_names=("a", "b"))


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"), [(8, 10, 0.4902, 0.9433), (0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0)]
)
def test_wilsons_interval_of_a_share(hits: int, count: int, low: float, high: float) -> None:
    found = wilson(hits, count)
    assert found.value == hits / count
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    assert wilson(0, 0).value is None
