"""report.html: one file a person opens to decide whether to trust a success classifier. No script, nothing fetched."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rewardlab.figures.calibration import probabilities
from rewardlab.figures.metrics import FIGURES, Bools, Floats, FrameScores, Ints
from rewardlab.figures.trust import TrustFigures
from rewardlab.figures.words import share, shown
from rewardlab.reports import plots
from rewardlab.reports.page import (
    facts_table,
    gallery_section,
    heading,
    list_section,
    plot_grid,
    tile,
    write_page,
)
from rewardlab.reports.plots import Curves

FrameImage = Callable[[str, int], npt.NDArray[np.uint8]]

GALLERY = 12
PER_EPISODE = 2


def write_report(
    path: str | Path,
    *,
    title: str,
    figures: TrustFigures,
    scores: FrameScores,
    images: FrameImage,
    curves: Curves,
    facts: Mapping[str, str],
    gallery: int = GALLERY,
) -> Path:
    """Write the report and return its path.

    `images(episode_name, time)` gives a frame as uint8 [H, W, 3]; `curves` are lists of (step, value) by name,
    "train/loss" and "valid/loss" being drawn together; `facts` says what the model was made from (data, seeds,
    command, versions).
    """
    body = [
        _heading(title, figures),
        list_section("Warnings", figures.warnings),
        _figures(figures),
        _plots(scores, figures),
        _galleries(scores, figures, images, gallery),
        _training(curves),
        facts_table(facts),
    ]
    return write_page(path, title, body)


def _heading(title: str, figures: TrustFigures) -> str:
    words = "Read the warnings first" if figures.warnings else "No warnings"
    return heading(title, good=not figures.warnings, words=words, sentence=figures.sentence())


def _figures(figures: TrustFigures) -> str:
    rows = []
    for name, meaning in FIGURES.items():
        value, interval = shown(figures.estimates[name], meaning.unit)
        rows.append(
            f"<tr><th>{meaning.title}<small>{escape(meaning.words)}</small></th>"
            f'<td class="number">{value}</td><td class="number soft">{interval}</td></tr>'
        )
    counts = figures.counts
    measured = (
        f"cross-fitted in {figures.folds} parts, each judged with the temperature and threshold chosen on the others"
        if figures.folds
        else "on the same episodes that the threshold was chosen on"
    )
    return f"""<section><h2>Figures</h2>
<p>From {counts.episodes:,} held-out episodes, {counts.success_episodes:,} of them with success, at their natural
balance; {measured}. In brackets: 95&nbsp;% intervals from resampling episodes.</p>
<div class="beside"><table>{"".join(rows)}</table>
<div>{_confusion(figures)}{_settings(figures)}</div></div></section>"""


def _confusion(figures: TrustFigures) -> str:
    counts, kind = figures.counts, "cross-fitted verdict" if figures.folds else "verdict"
    return f"""<table class="confusion"><caption>Frames, truth against {kind}</caption>
<tr><td></td><th>called success</th><th>called failure</th></tr>
<tr><th>success</th><td class="right">{counts.true_positive:,}</td><td class="wrong">{counts.false_negative:,}</td></tr>
<tr><th>failure</th><td class="wrong">{counts.false_positive:,}</td><td class="right">{counts.true_negative:,}</td></tr>
</table>"""


def _settings(figures: TrustFigures) -> str:
    rows = {
        "Threshold": f"{figures.threshold:.4g}",
        "Temperature": f"{figures.temperature:.3f}",
        "Target false-positive rate": share(figures.target_fpr),
        "Upper bound of it (95 %)": share(figures.fpr_upper_bound),
        "Calibration error, before": f"{figures.ece_before:.4f}",
        "Calibration error, after": f"{figures.ece_after:.4f}",
    }
    cells = "".join(f'<tr><th>{name}</th><td class="number">{value}</td></tr>' for name, value in rows.items())
    return f"<table><caption>Stored in the checkpoint</caption>{cells}</table>"


def _plots(scores: FrameScores, figures: TrustFigures) -> str:
    draw = {
        "Histogram of probabilities by class": plots.score_plot,
        "Reliability curve": plots.reliability_plot,
        "ROC curve": plots.roc_plot,
        "Precision-recall curve": plots.precision_recall_plot,
    }
    return f"<section><h2>Plots</h2>{plot_grid({name: plot(scores, figures) for name, plot in draw.items()})}</section>"


def _training(curves: Curves) -> str:
    panels: dict[str, dict[str, Sequence[tuple[float, float]]]] = {}
    for name, points in curves.items():
        series, _, quantity = name.rpartition("/")
        panels.setdefault(quantity, {})[series or quantity] = points
    drawn = {quantity: plots.curves_plot(quantity, lines) for quantity, lines in panels.items()}
    return f"<section><h2>Training</h2>{plot_grid(drawn)}</section>" if drawn else ""


def _galleries(scores: FrameScores, figures: TrustFigures, images: FrameImage, count: int) -> str:
    probability = probabilities(scores.logit, figures.temperature)
    said = probability > figures.threshold
    # Logits, not probabilities: the worst errors all round to 0 or 1.
    distance = np.abs(scores.logit - figures.temperature * np.log(figures.threshold / (1 - figures.threshold)))
    sections = []
    for name, words, hit, rank in (
        ("Worst false positives", "Failure frames called success, the surest first.", said & ~scores.label, -distance),
        ("Worst false negatives", "Success frames called failure, the surest first.", ~said & scores.label, -distance),
        ("Nearest to the threshold", "Frames that could have gone either way.", np.ones_like(said), distance),
    ):
        rows = worst_rows(scores, hit, rank, count)
        tiles = [_tile(scores, row, probability[row], bool(said[row]), images) for row in rows]
        total = "" if hit.all() else f" {int(hit.sum()):,} in all at the stored threshold."
        note = (
            f"{words}{total} At most {PER_EPISODE} of an episode." if len(rows) else "None among the held-out frames."
        )
        sections.append(gallery_section(name, note, tiles))
    return "\n".join(sections)


def worst_rows(scores: FrameScores, hit: Bools, rank: Floats, count: int) -> Ints:
    """Up to `count` rows with `hit`, lowest rank first, at most two of an episode."""
    rows = np.flatnonzero(hit)
    rows = rows[np.argsort(rank[rows], kind="stable")]
    taken = np.zeros(len(scores.episode_names), dtype=np.int64)
    chosen: list[int] = []
    for row in rows:
        if len(chosen) == count:
            break
        if taken[scores.episode[row]] < PER_EPISODE:
            taken[scores.episode[row]] += 1
            chosen.append(int(row))
    return np.array(chosen, dtype=np.int64)


def _tile(scores: FrameScores, row: int, probability: float, said: bool, images: FrameImage) -> str:
    name, time = scores.episode_names[scores.episode[row]], int(scores.time[row])
    label = bool(scores.label[row])
    truth, verdict = ("success" if is_success else "failure" for is_success in (label, said))
    words = f"{truth}, called {verdict}"
    caption = (
        f'<b>p = {probability:.4f}</b><span class="name">{escape(name).replace("/", "/<wbr>")}</span>'
        f"frame {time}<br>{words}"
    )
    return tile(images(name, time), f"frame {time} of {name}", caption)
