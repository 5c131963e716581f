"""compare.html: classifiers on the same frames, or runs of policies over each other; and the same as a short table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rewardlab.data.atomic import replace_file
from rewardlab.figures.comparison import ComparedModel, Difference
from rewardlab.figures.metrics import FIGURES, Bools, Floats, FrameScores
from rewardlab.figures.words import UNKNOWN, share, shown
from rewardlab.reports import plots
from rewardlab.reports.page import Gallery, Tile, write_page
from rewardlab.reports.policy_report import AT_THE_END, MILESTONES

PAGE = "compare.html"
SHORT = ("fpr", "recall", "precision", "agreement", "early_fire", "delay_median", "roc_auc")  # the main figures
TILES = 12
Picture = Callable[[int, int], npt.NDArray[np.uint8]]


@dataclass(frozen=True, eq=False)
class NamedModel:
    """A classifier on the frames of a comparison."""

    name: str
    scores: FrameScores
    probability: Floats
    threshold: float
    verdict: Bools


@dataclass(frozen=True)
class Run:
    """What a policy's run logged."""

    name: str
    history: Sequence[Mapping[str, float]]
    facts: Mapping[str, str] = field(default_factory=dict)

    def curve(self, column: str) -> list[tuple[float, float]]:
        return [(row["env_steps"], row[column]) for row in self.history if column in row]


class Quantity(NamedTuple):
    """A figure of a run: its column, what it is called, whether it is a share, and over how many rows it is taken."""

    title: str
    column: str
    share: bool = False
    rows: int = AT_THE_END


QUANTITIES = (
    Quantity("True success, evaluation", "eval/success_at_end", share=True, rows=1),
    Quantity("True success, training", "env/success_at_end", share=True),
    Quantity("Return, evaluation", "eval/return", rows=1),
    Quantity("Return, training", "env/return"),
    Quantity("Reward a step that the learner sees", "rollout/rewards"),
    Quantity("False-positive rate on the policy's frames", "audit/fpr", share=True),
    Quantity("Recall on the policy's frames", "audit/recall", share=True),
)


def write_models(
    out: Path,
    models: Sequence[NamedModel],
    compared: Sequence[ComparedModel],
    *,
    notes: Sequence[str],
    picture: Picture,
    facts: Mapping[str, str],
) -> Path:
    """Write the page and its plots; `picture(episode, time)` gives a frame."""
    pictures = {
        "ROC": plots.compared_roc_plot({model.name: (model.scores, model.verdict) for model in models}),
        "Precision and recall": plots.compared_recall_plot(
            {model.name: (model.scores, model.verdict) for model in models}
        ),
    }
    rows = []
    for name, meaning in FIGURES.items():
        cells = [shown(model.estimates[name], meaning.unit) for model in compared]
        differences = [model.differences.get(name) for model in compared[1:]]
        rows.append((meaning, cells, differences))
    return write_page(
        out / PAGE,
        "compare_models.html",
        title=f"{models[0].name} and {_others(models)}",
        names=[model.name for model in models],
        rows=rows,
        outcomes=[_outcome(models[0].name, model.name, found) for model, found in _after_first(models, compared)],
        plots=_written(out, pictures),
        galleries=[gallery for model in models[1:] if (gallery := _disagreements(models[0], model, picture)).tiles],
        cautions=list(notes),
        facts=facts,
    )


def _after_first(
    models: Sequence[NamedModel], compared: Sequence[ComparedModel]
) -> list[tuple[NamedModel, ComparedModel]]:
    return list(zip(models, compared, strict=True))[1:]


def _others(named: Sequence[NamedModel] | Sequence[Run]) -> str:
    return named[1].name if len(named) == 2 else f"{len(named) - 1} others"


def _outcome(first: str, name: str, found: ComparedModel) -> str:
    """Say in a sentence where a model differs from the first one beyond chance."""
    differences = (found.differences.get(figure) for figure in SHORT)
    certain = [difference for difference in differences if difference is not None and difference.certain]
    parts = []
    for words, better in (("better", True), ("worse", False)):
        chosen = [difference for difference in certain if difference.better == better]
        if chosen:
            parts.append(f"{words} than {first} in {', '.join(map(_words, chosen))}")
    if not parts:
        return f"{name}: no main figure differs from that of {first} beyond what chance between episodes explains."
    return f"{name} is {'; '.join(parts)}."


def _words(difference: Difference) -> str:
    title = FIGURES[difference.figure].title
    return f"{title if title.startswith('ROC') else title.lower()} ({difference.shown()[0]})"


def _disagreements(first: NamedModel, other: NamedModel, picture: Picture) -> Gallery:
    """Show the frames where two models give different verdicts and are furthest apart; one of an episode."""
    rows = np.flatnonzero(first.verdict != other.verdict)
    apart = np.abs(first.probability - other.probability)
    taken: list[int] = []
    for row in rows[np.argsort(-apart[rows], kind="stable")].tolist():
        if len(taken) < TILES and first.scores.episode[row] not in first.scores.episode[taken]:
            taken.append(row)
    tiles = []
    for row in taken:
        episode, time = int(first.scores.episode[row]), int(first.scores.time[row])
        truth = "success" if first.scores.label[row] else "failure"
        right = other.name if other.verdict[row] == first.scores.label[row] else first.name
        words = (
            f"{other.name}; {first.name}: {first.probability[row]:.4f}",
            f"{first.scores.episode_names[episode]}, frame {time}",
            f"{truth}, {right} is right",
        )
        tiles.append(Tile(picture(episode, time), f"frame {time}", float(other.probability[row]), words))
    wins = int((other.verdict == other.scores.label)[rows].sum())
    note = (
        f"{len(rows):,} of {len(first.verdict):,} frames have different verdicts; {other.name} is right about {wins:,} "
        f"of them, {first.name} about {len(rows) - wins:,}. Those furthest apart first, one of an episode."
    )
    return Gallery(f"Where {other.name} and {first.name} disagree", note, tiles)


def model_table(models: Sequence[NamedModel], compared: Sequence[ComparedModel]) -> list[str]:
    """Return the figures side by side as lines of text; a star marks a difference beyond chance."""
    rows = [["", *(model.name for model in models)]]
    for name in SHORT:
        meaning = FIGURES[name]
        cells = [meaning.title, shown(compared[0].estimates[name], meaning.unit)[0]]
        for model in compared[1:]:
            difference = model.differences.get(name)
            beside = "" if difference is None else f" ({' '.join(filter(None, difference.shown()))})"
            star = " *" if difference is not None and difference.certain else ""
            cells.append(shown(model.estimates[name], meaning.unit)[0] + beside + star)
        rows.append(cells)
    note = f"in brackets: the difference from {models[0].name}, with its 95 % interval; * beyond chance"
    return [*_aligned(rows), note]


def write_runs(out: Path, runs: Sequence[Run], *, notes: Sequence[str]) -> Path:
    """Write the page and its plots."""
    pictures = {}
    for quantity in QUANTITIES:
        curves = {run.name: run.curve(quantity.column) for run in runs}
        known = {name: points for name, points in curves.items() if points}
        if known:
            pictures[quantity.title] = plots.run_plot(quantity.title, known, shares=quantity.share)
    header, *rows = _run_rows(runs)
    facts = {run.name: ", ".join(f"{name}: {value}" for name, value in run.facts.items()) for run in runs if run.facts}
    return write_page(
        out / PAGE,
        "compare_runs.html",
        title=f"{runs[0].name} and {_others(runs)}",
        names=header[1:],
        rows=[(cells[0], cells[1:]) for cells in rows],
        outcome=_run_outcome(runs),
        plots=_written(out, pictures),
        at_the_end=AT_THE_END,
        cautions=list(notes),
        facts=facts,
    )


def run_table(runs: Sequence[Run]) -> list[str]:
    """Return the last figures of the runs side by side as lines of text."""
    return _aligned(_run_rows(runs))


def _run_rows(runs: Sequence[Run]) -> list[list[str]]:
    rows = [["", *(run.name for run in runs)]]
    rows.append(["Environment steps", *(f"{run.history[-1]['env_steps']:,.0f}" for run in runs)])
    for quantity in QUANTITIES:
        values = [_last(run, quantity) for run in runs]
        if any(value is not None for value in values):
            rows.append([quantity.title, *(_shown(value, quantity) for value in values)])
    for level in MILESTONES:
        reached = [_steps_to(run, level) for run in runs]
        if any(steps is not None for steps in reached):
            cells = ("never" if steps is None else f"{steps:,.0f}" for steps in reached)
            rows.append([f"Steps to {share(level)} true success", *cells])
    return rows


def _last(run: Run, quantity: Quantity) -> float | None:
    values = [value for _, value in run.curve(quantity.column)[-quantity.rows :]]
    return sum(values) / len(values) if values else None


def _shown(value: float | None, quantity: Quantity) -> str:
    if value is None:
        return UNKNOWN
    return share(value) if quantity.share else f"{value:.4g}"


def _steps_to(run: Run, level: float) -> float | None:
    """Return where true success first reaches a level, taken as for the last figures: of training, means."""
    for quantity in QUANTITIES[:2]:
        points = run.curve(quantity.column)
        for end in range(quantity.rows, len(points) + 1):
            if sum(value for _, value in points[end - quantity.rows : end]) >= level * quantity.rows:
                return points[end - 1][0]
        if points:
            return None
    return None


def _run_outcome(runs: Sequence[Run]) -> str:
    """Say how the runs ended, by the first quantity that all of them have."""
    for quantity in QUANTITIES[:4]:
        values = {run.name: _last(run, quantity) for run in runs}
        if None not in values.values():
            parts = (f"{name} {_shown(value, quantity)}" for name, value in values.items())
            return f"{quantity.title}: {', '.join(parts)}."
    return "The runs have no figure of success or return in common."


def _written(out: Path, pictures: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Write each plot as a file beside the page, too."""
    for title, png in pictures.items():
        name = "".join(c if c.isalnum() else "_" for c in title.lower().replace("'", ""))
        replace_file(out / f"{name}.png", png)
    return pictures


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
