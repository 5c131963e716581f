"""Draws one episode over time: a film strip, and under it the classifier's probability for every frame."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from rewardlab.figures.metrics import Bools, Ints
from rewardlab.figures.words import share
from rewardlab.reports.plots import BLUE, GREY, INK, LINES, ORANGE, png_bytes, style_axes

Strip = Sequence[tuple[int, npt.NDArray[np.uint8]]]  # frames with their places among those that were scored

WIDTH, LEFT, RIGHT, PLOT, GAP, BOTTOM, TITLE = 11.0, 0.75, 0.25, 2.4, 0.25, 0.75, 0.75  # inches
TALLEST = 1.8  # inches of a film strip
WRONG = LINES[3]
MANY = 200  # frames; in longer episodes marks are small


def timeline_plot(
    title: str,
    time: Ints,
    probability: npt.NDArray[np.float32],
    label: Bools,
    threshold: float,
    strip: Strip,
    *,
    labelled: Bools | None = None,
) -> bytes:
    """Draw the episode as PNG bytes. Tile k of the strip is the middle frame of the k-th part of the time axis.

    `time` is the number of each scored frame in its episode. Frames without a score take no place on the axis. Where
    frames are not `labelled` (default: all are), no verdict is wrong.
    """
    labelled = np.ones(len(time), bool) if labelled is None else labelled
    across = WIDTH - LEFT - RIGHT
    height, width = strip[0][1].shape[:2]
    natural = across / len(strip) * height / width
    film = min(natural, TALLEST)
    total = TITLE + film + GAP + PLOT + BOTTOM
    figure = Figure(figsize=(WIDTH, total), dpi=110)
    lower = figure.add_axes((LEFT / WIDTH, BOTTOM / total, across / WIDTH, PLOT / total))
    upper = figure.add_axes((LEFT / WIDTH, (BOTTOM + PLOT + GAP) / total, across / WIDTH, film / total), sharex=lower)
    success = probability > threshold
    _draw_strip(upper, strip, time, success, 0.94 * film / natural)
    _draw_curve(lower, time, probability, label, threshold, labelled)
    figure.text(LEFT / WIDTH, 1 - 0.30 / total, title, fontsize=13, fontweight="bold", color=INK, va="center")
    figure.text(
        LEFT / WIDTH,
        1 - 0.56 / total,
        _words(time, success, label, labelled),
        fontsize=10,
        color="#6a6a6a",
        va="center",
    )
    return png_bytes(figure)


def _words(time: Ints, success: Bools, label: Bools, labelled: Bools) -> str:
    first = f"first called success at frame {time[success.argmax()]}" if success.any() else "never called success"
    truth = f"first labelled success at {time[label.argmax()]}" if label.any() else "never labelled success"
    count = f"{len(success):,} frame{'s' * (len(success) != 1)}"
    if not labelled.any():
        return f"{count}; {first}; no labels"
    unsure = f", {int((~labelled).sum()):,} unsure" if not labelled.all() else ""
    right = share(float((success == label)[labelled].mean()))
    return f"{count}{unsure}; {first}, {truth}; {right} judged rightly"


def _draw_strip(axes: Axes, strip: Strip, time: Ints, success: Bools, filled: float) -> None:
    """Draw each frame in the middle of its part of the time axis; it fills the fraction `filled` of that part."""
    part = len(time) / len(strip)
    for k, (place, frame) in enumerate(strip):
        left, right = (k + 0.5 - filled / 2) * part - 0.5, (k + 0.5 + filled / 2) * part - 0.5
        axes.imshow(frame, extent=(left, right, 0, 1), aspect="auto", interpolation="nearest")
        colour = BLUE if success[place] else ORANGE
        axes.add_patch(Rectangle((left, 0), right - left, 1, fill=False, edgecolor=colour, linewidth=2.5))
        box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
        text = str(time[place])
        axes.annotate(text, (left, 0), (4, 4), textcoords="offset points", fontsize=8, color="white", bbox=box)
    axes.set_ylim(0, 1)
    axes.axis("off")


def _draw_curve(
    axes: Axes, time: Ints, probability: npt.NDArray[np.float32], label: Bools, threshold: float, labelled: Bools
) -> None:
    place = np.arange(len(time))
    for k, (start, end) in enumerate(_runs(label)):
        name = "labelled success" if k == 0 else None
        axes.axvspan(start - 0.5, end - 0.5, color=BLUE, alpha=0.13, linewidth=0, label=name)
    dot = "." if len(time) < MANY else ""
    axes.plot(place, probability, color=INK, marker=dot, linewidth=1.4, label="probability of success", clip_on=False)
    axes.axhline(threshold, color=GREY, linestyle="--", linewidth=1.2, label=f"threshold {threshold:.3g}")
    wrong = ((probability > threshold) != label) & labelled
    if wrong.any():
        size = 8.0 if len(time) < MANY else 4.0
        (marks,) = axes.plot(
            place[wrong], probability[wrong], "X", color=WRONG, label="verdict is wrong", clip_on=False
        )
        marks.set(markersize=size, markeredgecolor="white", markeredgewidth=0.5, zorder=3)
    axes.set_xlim(-0.5, len(time) - 0.5)
    axes.set_ylim(0, 1)
    axes.set_xlabel("frame", color=INK, loc="right", labelpad=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda x, _: str(time[round(x)]) if 0 <= x < len(time) else "")
    axes.set_ylabel("probability", color=INK)
    style_axes(axes)
    frames = [
        Rectangle((0, 0), 1, 1, fill=False, edgecolor=colour, linewidth=2.5, label=f"called {verdict}")
        for colour, verdict in ((BLUE, "success"), (ORANGE, "failure"))
    ]
    handles = [*frames, *axes.get_legend_handles_labels()[0]]
    # Below the axes, where no curve can be.
    beneath: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.14), "borderaxespad": 0}
    axes.legend(handles=handles, ncols=len(handles), frameon=False, fontsize=9, columnspacing=1.4, **beneath)


def _runs(label: Bools) -> list[tuple[int, int]]:
    """Return the first and one past the last frame of every stretch of success."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], label, [False]])))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]
