"""Plots of the reports, as PNG bytes. Blue is success, orange is failure, grey is chance or the ideal."""

import io
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from rewardlab.figures.calibration import probabilities, reliability
from rewardlab.figures.metrics import Bools, Floats, FrameScores
from rewardlab.figures.trust import TrustFigures

# Okabe & Ito's palette, which the colour-blind can tell apart.
BLUE, ORANGE, GREEN, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#9a9a9a", "#333333"
LINES = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")

Curves = Mapping[str, Sequence[tuple[float, float]]]
Corner = Literal["lower right", "lower left", "upper left", "upper center"]  # of a plot, where no curve usually is


def roc_plot(scores: FrameScores, figures: TrustFigures) -> bytes:
    """Plot true- over false-positive rate, with the stored threshold as a dot."""
    figure, axes = _panel("ROC", "False-positive rate", "True-positive rate (recall)")
    axes.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1, label="chance")
    true, false = _accepted(scores)
    if true[-1] and false[-1]:
        area = figures.estimates["roc_auc"].value
        axes.plot(false / false[-1], true / true[-1], color=BLUE, label=f"model, area {area:.4f}")
        verdict = _verdicts(scores, figures)
        _mark_threshold(axes, verdict[~scores.label].mean(), verdict[scores.label].mean(), figures)
    return _unit_square(figure, axes, "lower right")


def precision_recall_plot(scores: FrameScores, figures: TrustFigures) -> bytes:
    """Plot precision over recall, with the stored threshold as a dot."""
    figure, axes = _panel("Precision and recall", "Recall", "Precision")
    axes.axhline(figures.class_prior, linestyle="--", color=GREY, linewidth=1, label="chance")
    true, false = _accepted(scores)
    if true[-1] and false[-1]:
        area = figures.estimates["pr_auc"].value
        recall, precision = true[1:] / true[-1], true[1:] / (true + false)[1:]
        axes.step(recall, precision, where="pre", color=BLUE, label=f"model, area {area:.4f}")
        verdict = _verdicts(scores, figures)
        if verdict.any():
            _mark_threshold(axes, verdict[scores.label].mean(), scores.label[verdict].mean(), figures)
    return _unit_square(figure, axes, "lower left")


Judged = Mapping[str, tuple[FrameScores, Bools]]  # scores and verdicts of several models on the same frames, by name


def compared_roc_plot(models: Judged) -> bytes:
    """Plot the ROC curves of several models over each other, each with its threshold as a dot."""
    figure, axes = _panel("ROC", "False-positive rate", "True-positive rate (recall)")
    axes.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1, label="chance")
    for number, (name, (scores, verdict)) in enumerate(models.items()):
        colour = LINES[number % len(LINES)]
        true, false = _accepted(scores)
        axes.plot(false / false[-1], true / true[-1], color=colour, label=name)
        axes.plot(verdict[~scores.label].mean(), verdict[scores.label].mean(), "o", color=colour, clip_on=False)
    return _unit_square(figure, axes, "lower right")


def compared_recall_plot(models: Judged) -> bytes:
    """Plot precision over recall of several models, each with its threshold as a dot."""
    figure, axes = _panel("Precision and recall", "Recall", "Precision")
    for number, (name, (scores, verdict)) in enumerate(models.items()):
        colour = LINES[number % len(LINES)]
        true, false = _accepted(scores)
        recall, precision = true[1:] / true[-1], true[1:] / (true + false)[1:]
        axes.step(recall, precision, where="pre", color=colour, label=name)
        if verdict.any():
            axes.plot(verdict[scores.label].mean(), scores.label[verdict].mean(), "o", color=colour, clip_on=False)
    return _unit_square(figure, axes, "lower left")


def reliability_plot(scores: FrameScores, figures: TrustFigures) -> bytes:
    """Plot the success rate of frames over the probability given to them, before and after the temperature."""
    figure, axes = _panel("Reliability", "Probability given", "Share that was success")
    axes.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1, label="ideal")
    for name, temperature, error, colour, marker in (
        ("before", 1.0, figures.ece_before, ORANGE, "s"),
        ("after", figures.temperature, figures.ece_after, BLUE, "o"),
    ):
        curve = reliability(scores.label, probabilities(scores.logit, temperature))
        label = f"{name} (T = {temperature:.2f}), ECE {error:.3f}"
        line = axes.plot(curve.probability, curve.success, color=colour, label=label, clip_on=False)[0]
        line.set(marker=marker, markersize=5, linewidth=1.2)
    return _unit_square(figure, axes, "upper left")


def score_plot(scores: FrameScores, figures: TrustFigures) -> bytes:
    """Plot histograms of the probabilities of both classes, with the threshold."""
    figure, axes = _panel("Probabilities of both classes", "Probability of success", "Frames")
    probability = probabilities(scores.logit, figures.temperature)
    bins = np.linspace(0, 1, 41).tolist()
    axes.hist(probability[~scores.label], bins, color=ORANGE, alpha=0.55, hatch="//", label="failure frames")
    axes.hist(probability[scores.label], bins, color=BLUE, alpha=0.55, label="success frames")
    axes.axvline(figures.threshold, color=INK, linewidth=1.5, label=f"threshold {figures.threshold:.3g}")
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(bottom=0.7)
    return _with_legend(figure, axes, "upper center")


def run_plot(
    title: str,
    curves: Curves,
    *,
    axis: str = "Environment steps",
    shares: bool = False,
    limit: tuple[str, float] | None = None,
    stages: Sequence[tuple[str, float]] = (),
    alarms: Sequence[float] = (),
) -> bytes:
    """Plot metrics of a run over its steps: faint lines are raw values, bold lines their running mean.

    A dashed line is the `limit`, a grey line the start of a stage, a triangle at the top an alarm.
    """
    figure, axes = _panel("", axis, "")
    for number, (name, points) in enumerate(curves.items()):
        steps, values = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
        colour = LINES[number % len(LINES)]
        mean = _running_mean(values)
        if mean is not values:
            axes.plot(steps, values, color=colour, alpha=0.2, linewidth=1)
        dot = "o" if len(steps) < 25 else ""
        axes.plot(steps, mean, marker=dot, markersize=4, color=colour, label=name, clip_on=False)
    if limit is not None:
        axes.axhline(limit[1], linestyle="--", color=INK, linewidth=1, label=limit[0])
    if shares:
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        axes.margins(y=0.12)
    top = axes.get_xaxis_transform()
    for name, start in stages:
        axes.axvline(start, color=GREY, linewidth=1)
        axes.text(start, 0.96, f" {name}", transform=top, color="#6a6a6a", fontsize=8, rotation=90, va="top")
    if alarms:
        axes.plot(alarms, [1.0] * len(alarms), "v", transform=top, color=ORANGE, clip_on=False, label="alarm")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="x", visible=False)
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=11)  # room for alarms
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, handlelength=1.5)
    return png_bytes(figure)


def style_axes(axes: Axes) -> None:
    """Apply the style that all plots share."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(color=GREY, labelcolor=INK)
    axes.grid(color="#e8e8e8", linewidth=0.8)
    axes.set_axisbelow(True)


def png_bytes(figure: Figure) -> bytes:
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    # Without the version stamp, the same figures give the same bytes.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _running_mean(values: Floats) -> Floats:
    """Average over about a thirtieth of the run around each point; returns `values` itself where they are few."""
    reach = len(values) // 60
    if reach == 0:
        return values
    total = np.append(0.0, np.cumsum(values))
    place = np.arange(len(values))
    first, last = np.maximum(place - reach, 0), np.minimum(place + reach + 1, len(values))
    return np.asarray((total[last] - total[first]) / (last - first))


def _verdicts(scores: FrameScores, figures: TrustFigures) -> Bools:
    return probabilities(scores.logit, figures.temperature) > figures.threshold


def _mark_threshold(axes: Axes, across: float, up: float, figures: TrustFigures) -> None:
    axes.plot(across, up, "o", color=ORANGE, label=f"threshold {figures.threshold:.3g}", clip_on=False)


def _accepted(scores: FrameScores) -> tuple[Floats, Floats]:
    """Count success and failure frames above each distinct score, from none to all."""
    order = np.argsort(-scores.logit, kind="stable")
    label = scores.label[order]
    ends = np.append(np.flatnonzero(np.diff(scores.logit[order])), len(label) - 1)
    true, false = (np.append(0.0, np.cumsum(hit)[ends]) for hit in (label, ~label))
    return true, false


def _panel(title: str, across: str, up: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.2, 4.0), dpi=144, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK)
    axes.set_xlabel(across, color=INK)
    axes.set_ylabel(up, color=INK)
    style_axes(axes)
    return figure, axes


def _unit_square(figure: Figure, axes: Axes, legend: Corner) -> bytes:
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.02)
    return _with_legend(figure, axes, legend)


def _with_legend(figure: Figure, axes: Axes, legend: Corner) -> bytes:
    axes.legend(loc=legend, frameon=True, edgecolor="none", framealpha=0.9)
    return png_bytes(figure)
