"""report.html of a policy run: did true success rise, and did the learned reward tell the truth meanwhile?"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rewardlab.config import ExperimentConfig
from rewardlab.data.images import read_image
from rewardlab.errors import DataError
from rewardlab.figures.metrics import FIGURES
from rewardlab.figures.trust import TrustFigures
from rewardlab.figures.words import number, share, shown
from rewardlab.reports.page import Gallery, Tile, write_page
from rewardlab.reports.plots import run_plot
from rewardlab.reports.run_log import describe_replacements
from rewardlab.rewards.audit import Alarm
from rewardlab.rewards.disputed_frames import CLAIMED, FALSE_NEGATIVE, FALSE_POSITIVE

Row = Mapping[str, float]
Columns = Mapping[str, list[tuple[float, float]]]  # (environment step, value) of each column of a history

TILES = 12  # in a gallery
AT_THE_END = 10  # iterations that the last figures of a run are taken over
MILESTONES = (0.5, 0.9)
_NAME = re.compile(r"^(\d{6,})_\d+_prob([0-9.]+)\.png$")


class Panel(NamedTuple):
    """A plot: its title, and the columns of the history by the names of their curves."""

    title: str
    columns: Mapping[str, str]
    share: bool = False  # from 0 to 100 %
    limit: tuple[str, float] | None = None  # a dashed line and its name


LEARNING = (
    Panel(
        "True success",
        {"evaluation": "eval/success_at_end", "training": "env/success_at_end", "training, ever": "env/success_once"},
        share=True,
    ),
    Panel("Reward a step", {"of the model": "rollout/model_rewards", "the learner sees": "rollout/rewards"}),
    Panel("Return of an episode, environment's reward", {"evaluation": "eval/return", "training": "env/return"}),
)
FALSE_POSITIVES = Panel("False-positive rate on the policy's frames", {"false-positive rate": "audit/fpr"}, share=True)
AUDIT = (
    Panel(
        "Precision and recall on the policy's frames",
        {"precision": "audit/precision", "recall": "audit/recall"},
        share=True,
    ),
    Panel("Frames of success", {"success": "audit/success", "called success": "audit/claimed"}, share=True),
)
DRIFT = Panel("Distance of scores from held-out ones", {"drift": "audit/drift"}, share=True)
GALLERIES = {
    FALSE_POSITIVE: ("False positives", "Failure frames called success: what the policy was paid for wrongly."),
    FALSE_NEGATIVE: ("False negatives", "Success frames called failure: what the policy was not paid for."),
    CLAIMED: ("Called success", "Drawn at random for review, since nobody knows the truth."),
}


class Comparison(NamedTuple):
    """True success of two runs with the same seed and the same budget of environment steps."""

    seed: int
    learned: float  # trained on the learned reward
    true: float  # trained on the environment's own reward


def write_policy_report(
    path: str | Path,
    *,
    title: str,
    history: Sequence[Row],
    stages: Sequence[tuple[str, float]] = (),
    alarms: Sequence[Alarm] = (),
    max_fpr: float | None = None,
    disputed: Path | None = None,
    figures: TrustFigures | None = None,
    comparison: Sequence[Comparison] = (),
    facts: Mapping[str, str],
) -> Path:
    """Write the report and return its path. Whatever the history does not have is left out.

    `history` has the rows of all stages, each stage being its name and its first environment step; `disputed` is the
    directory of the audit's pictures; `figures` are the classifier's on held-out episodes; `max_fpr` the audit's limit.
    """
    limit = None if max_fpr is None else (f"limit, {share(max_fpr)}", max_fpr)
    columns = _columns(history)
    truth_known = "audit/fpr" in columns
    audit = (FALSE_POSITIVES._replace(limit=limit), *AUDIT, *(() if truth_known else (DRIFT,)))
    steps = {row["iteration"]: row["env_steps"] for row in reversed(history)}  # of several stages, the first
    marks = sorted({steps[alarm.iteration] for alarm in alarms if alarm.iteration in steps})

    def draw(panels: Iterable[Panel]) -> dict[str, bytes]:
        """Draw the panels that have at least one curve."""
        return {
            panel.title: run_plot(
                panel.title, curves, shares=panel.share, limit=panel.limit, stages=stages, alarms=marks
            )
            for panel in panels
            if (curves := _curves(panel, columns))
        }

    return write_page(
        path,
        "policy_report.html",
        title=title,
        last={name: points[-1][1] for name, points in columns.items()},
        recent=_means(history[-AT_THE_END:]),
        cautions=[_alarm_words(alarm, steps.get(alarm.iteration)) for alarm in alarms],
        replacements=[words[0].upper() + words[1:] for row in history for words in describe_replacements(row)],
        milestones=_milestones(columns),
        learning=draw(LEARNING),
        comparison=comparison,
        truth_known=truth_known,
        audit=draw(audit),
        reward_models=draw(_reward_model_panels(columns)),
        figures=figures,
        audited="audit/claimed" in columns,
        at_the_end=AT_THE_END,
        rows=[] if figures is None else _figure_rows(history, figures),
        galleries=[] if disputed is None else _galleries(disputed),
        facts=facts,
        **_timing(history),
    )


def describe_reward(cfg: ExperimentConfig) -> str:
    """Say in a line what the learner is rewarded by."""
    if not cfg.reward.use_reward_model:
        return f"the environment's own ({cfg.env.train.reward})"
    models = [str(model.checkpoint_path or model.model_type) for model in cfg.reward.models]
    return f"{' + '.join(models)}, {cfg.reward.reward_mode}, {cfg.reward.combine_mode}"


def _columns(history: Sequence[Row]) -> Columns:
    columns: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in history:
        for name, value in row.items():
            columns[name].append((row["env_steps"], value))
    return dict(columns)


def _means(history: Sequence[Row]) -> dict[str, float]:
    return {name: float(np.mean([value for _, value in points])) for name, points in _columns(history).items()}


def _alarm_words(alarm: Alarm, steps: float | None) -> str:
    place = "" if steps is None else f" ({steps:,.0f} steps)"
    return f"Iteration {alarm.iteration}{place}, {alarm.kind.replace('_', ' ')}: {alarm.words}"


def _milestones(columns: Columns) -> str:
    kind, short = ("evaluation", "eval") if "eval/success_at_end" in columns else ("training", "env")
    points = columns.get(f"{short}/success_at_end", [])
    first = {level: next((steps for steps, value in points if value >= level), None) for level in MILESTONES}
    reached = [f"{share(level)} after {steps:,.0f} steps" for level, steps in first.items() if steps is not None]
    return f"True success in {kind} first reached {', '.join(reached)}." if reached else ""


def _reward_model_panels(columns: Columns) -> list[Panel]:
    """List the plots of the reward models over transitions: mean reward and loss, by the name of the model."""
    names = sorted(name.removeprefix("reward_model/") for name in columns if name.startswith("reward_model/"))

    def ending(end: str) -> dict[str, str]:
        return {name.removesuffix(end): f"reward_model/{name}" for name in names if name.endswith(end)}

    return [Panel("Mean reward a step", ending("_mean")), Panel("Loss", ending("_loss"))]


def _curves(panel: Panel, columns: Columns) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, column in panel.columns.items():
        points = columns.get(column)
        if points and points not in curves.values():  # equal where the learner sees the model's reward as it is
            curves[name] = points
    return curves


def _figure_rows(history: Sequence[Row], figures: TrustFigures) -> list[tuple[Any, ...]]:
    """List the main metrics: meaning, value and interval on held-out frames, value on the policy's frames."""
    rows = []
    for name in ("fpr", "recall", "precision", "roc_auc"):
        meaning, now = FIGURES[name], _pooled(history, name)
        on_policy = number(now, meaning.unit) if meaning.unit == "area" and now is not None else share(now)
        rows.append((meaning, *shown(figures.estimates[name], meaning.unit), on_policy))
    return rows


def _galleries(directory: Path) -> list[Gallery]:
    found = {kind: _newest_tiles(directory / kind) for kind in GALLERIES}
    words = {kind: (title, f"{note} The newest of {kind}/ first.") for kind, (title, note) in GALLERIES.items()}
    return [Gallery(*words[kind], tiles) for kind, tiles in found.items() if tiles]


def _newest_tiles(folder: Path) -> list[Tile]:
    """Read up to TILES frames; a file that a kill cut off is skipped."""
    tiles: list[Tile] = []
    for file in sorted(folder.glob("*.png"), reverse=True):
        match = _NAME.match(file.name)
        if match is None or len(tiles) == TILES:
            continue
        try:
            frame = read_image(file)
        except DataError:
            continue
        tiles.append(Tile(frame, file.name, float(match.group(2)), (f"iteration {int(match.group(1)):,}",)))
    return tiles


def _timing(history: Sequence[Row]) -> dict[str, Any]:
    """Sum up the time by stage. A name with a second slash (time/rollout/waiting) is a part of its stage."""
    totals: dict[str, float] = defaultdict(float)
    for row in history:
        for name, seconds in row.items():
            if name.startswith("time/"):
                totals[name.removeprefix("time/")] += seconds
    whole = sum(seconds for name, seconds in totals.items() if "/" not in name)
    if whole <= 0:
        return {"times": []}
    times = []
    for name in sorted(totals, key=lambda name: (-totals.get(name.split("/")[0], 0.0), name)):
        stage, _, part = name.replace("_", " ").partition("/")
        times.append((stage, part, totals[name]))
    # Environment steps before the first row: a resumed stage does not begin at 0.
    first, second = (history[0]["env_steps"], history[1]["env_steps"]) if len(history) > 1 else (0.0, 0.0)
    steps = history[-1]["env_steps"] - max(0.0, 2 * first - second)
    return {"times": times, "total_time": whole, "iterations": len(history), "steps_per_second": steps / whole}


def _pooled(history: Sequence[Row], name: str) -> float | None:
    """Average a rate of the audit over the last iterations, weighted by the number of frames that the rate is about."""
    rows = [row for row in history if f"audit/{name}" in row][-AT_THE_END:]
    success = [row.get("audit/success", 0.0) for row in rows]
    claimed = [row.get("audit/claimed", 0.0) for row in rows]
    concerned = {"fpr": [1 - part for part in success], "recall": success, "precision": claimed}
    weights = concerned.get(name, [1.0] * len(rows))
    if not sum(weights):
        return None
    return sum(w * row[f"audit/{name}"] for w, row in zip(weights, rows, strict=True)) / sum(weights)
