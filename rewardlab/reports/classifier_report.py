"""report.html of a classifier: what a person reads to decide whether to trust it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rewardlab.figures.calibration import probabilities
from rewardlab.figures.metrics import Bools, Floats, FrameScores, Ints
from rewardlab.figures.trust import TrustFigures
from rewardlab.reports import plots
from rewardlab.reports.page import Gallery, Tile, figure_rows, write_page

FrameImage = Callable[[int, int], npt.NDArray[np.uint8]]

TILES = 12  # in a gallery
PER_EPISODE = 2


def write_report(
    path: str | Path,
    *,
    title: str,
    figures: TrustFigures,
    scores: FrameScores,
    images: FrameImage,
    curves: plots.Curves,
    facts: Mapping[str, str],
) -> Path:
    """Write the report and return its path.

    `images(episode, time)` gives a frame as uint8 [H, W, 3], of the episode with this index; `curves` are lists of
    (step, value) by name, "train/loss" and "valid/loss" being drawn together; `facts` says what the model was made
    from (data, seeds, command, versions).
    """
    return write_page(
        path,
        "classifier_report.html",
        title=title,
        cautions=figures.warnings,
        figures=figures,
        rows=figure_rows(figures),
        plots={
            "Histogram of probabilities by class": plots.score_plot(scores, figures),
            "Reliability curve": plots.reliability_plot(scores, figures),
            "ROC curve": plots.roc_plot(scores, figures),
            "Precision-recall curve": plots.precision_recall_plot(scores, figures),
        },
        galleries=_galleries(scores, figures, images),
        curves=_training_plots(curves),
        facts=facts,
    )


def _training_plots(curves: plots.Curves) -> dict[str, bytes]:
    panels: dict[str, dict[str, Sequence[tuple[float, float]]]] = {}
    for name, points in curves.items():
        series, _, quantity = name.rpartition("/")
        panels.setdefault(quantity, {})[series or quantity] = points
    return {quantity: plots.run_plot(quantity, lines, axis="Step") for quantity, lines in panels.items()}


def _galleries(scores: FrameScores, figures: TrustFigures, images: FrameImage) -> list[Gallery]:
    probability = probabilities(scores.logit, figures.temperature)
    verdict = probability > figures.threshold
    # Logits, not probabilities: the worst errors all round to 0 or 1.
    distance = np.abs(scores.logit - figures.temperature * np.log(figures.threshold / (1 - figures.threshold)))

    def gallery(title: str, words: str, hit: Bools, rank: Floats) -> Gallery:
        rows = worst_rows(scores, hit, rank, TILES)
        total = "" if hit.all() else f" {int(hit.sum()):,} in all at the stored threshold."
        note = f"{words}{total} At most {PER_EPISODE} of an episode."
        tiles = [_tile(scores, row, probability[row], verdict[row], images) for row in rows]
        return Gallery(title, note if tiles else "None among the held-out frames.", tiles)

    false_positive, false_negative = verdict & ~scores.label, ~verdict & scores.label
    return [
        gallery("Worst false positives", "Failure frames called success, the surest first.", false_positive, -distance),
        gallery("Worst false negatives", "Success frames called failure, the surest first.", false_negative, -distance),
        gallery("Nearest to the threshold", "Frames that could have gone either way.", np.ones_like(verdict), distance),
    ]


def worst_rows(scores: FrameScores, hit: Bools, rank: Floats, count: int) -> Ints:
    """Select up to `count` rows with `hit`, lowest rank first, at most two of an episode."""
    rows = np.flatnonzero(hit)
    rows = rows[np.argsort(rank[rows], kind="stable")]
    taken: Counter[int] = Counter()
    chosen: list[int] = []
    for row, episode in zip(rows.tolist(), scores.episode[rows].tolist(), strict=True):
        if taken[episode] < PER_EPISODE:
            taken[episode] += 1
            chosen.append(row)
    return np.array(chosen[:count], dtype=np.int64)


def _tile(scores: FrameScores, row: int, probability: float, verdict: bool, images: FrameImage) -> Tile:
    episode, time = int(scores.episode[row]), int(scores.time[row])
    name = scores.episode_names[episode]
    truth, called = ("success" if is_success else "failure" for is_success in (scores.label[row], verdict))
    words = (name, f"frame {time}", f"{truth}, called {called}")
    return Tile(images(episode, time), f"frame {time} of {name}", probability, words)
