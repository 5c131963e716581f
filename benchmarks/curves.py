"""Learning curves as pictures for the pages of the documentation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from rewardlab.reports.plots import GREY, INK, LINES

SUCCESS = "eval/success_at_end"  # in the log of a run: true success of an evaluation
Points = list[tuple[float, float]]  # environment steps, figure


@dataclass
class Picture:
    """Runs by name, a list of points a seed; and levels to compare them with."""

    title: str
    runs: Mapping[str, Sequence[Points]]
    levels: Mapping[str, float] = field(default_factory=dict)
    shares: bool = False


def draw(picture: Picture, path: Path) -> None:
    """Each seed thin, their mean thick, in the look of the reports."""
    figure = Figure(figsize=(5.2, 3.4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for (name, seeds), colour in zip(picture.runs.items(), LINES, strict=False):
        for points in seeds:
            axes.plot(*zip(*points, strict=True), color=colour, alpha=0.35, linewidth=0.8)
        axes.plot(*_mean(seeds), color=colour, linewidth=2.2, label=name)
    for (name, level), style in zip(picture.levels.items(), ("--", ":"), strict=False):
        axes.axhline(level, linestyle=style, color=INK, linewidth=1, label=name)
    if picture.shares:
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title(picture.title, loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.set_xlabel("Environment steps", color=INK)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(color=GREY, labelcolor=INK)
    axes.grid(axis="y", color="#e8e8e8", linewidth=0.8)
    axes.set_axisbelow(True)
    names = [*picture.runs, *picture.levels]
    columns = 4 if sum(map(len, names[:4])) < 40 else 2  # as many as fit
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def _mean(seeds: Sequence[Points]) -> tuple[list[float], list[float]]:
    """Over seeds; a run that ended early, because it had reached all there is, counts as it ended."""
    steps = [step for step, _ in max(seeds, key=len)]
    held = [[value for _, value in points] + [points[-1][1]] * (len(steps) - len(points)) for points in seeds]
    return steps, np.mean(held, axis=0).tolist()
