"""report.html of a policy run: did true success rise, and did the learned reward tell the truth meanwhile?"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from rewardlab.figures.metrics import FIGURES
from rewardlab.figures.trust import TrustFigures
from rewardlab.figures.words import UNKNOWN, share, shown
from rewardlab.reports.page import (
    facts_table,
    gallery_section,
    heading,
    list_section,
    plot_grid,
    tile,
    unbroken,
    write_page,
)
from rewardlab.reports.plots import run_plot
from rewardlab.rewards.audit import Alarm
from rewardlab.rewards.disputed_frames import CLAIMED, FALSE_NEGATIVE, FALSE_POSITIVE

Row = Mapping[str, float]
Stages = Sequence[tuple[str, float]]

GALLERY = 12
AT_THE_END = 10  # iterations whose mean is what a run has come to
ALARM_WORDS = (
    "An alarm needs a false-positive rate that is above its limit beyond chance, and false claims that are more than "
    "that share of all claims: of a policy that succeeds few failure frames are left, most of them just before success."
)
MILESTONES = (0.5, 0.9)
_NAME = re.compile(r"^(\d{6,})_\d+_prob([0-9.]+)\.png$")


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
    stages: Stages = (),
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
    body = [
        heading(title, good=not alarms, words=_verdict(history, alarms), sentence=_outcome(history)),
        list_section("Alarms", [_alarm_words(alarm, history) for alarm in alarms]),
        _learning(history, stages, alarms),
        _compared(comparison),
        _audit(history, stages, alarms, max_fpr),
        _transition_models(history, stages),
        _classifier(history, figures),
        _galleries(disputed),
        _timing(history),
        facts_table(facts),
    ]
    return write_page(path, title, [part for part in body if part])


def _verdict(history: Sequence[Row], alarms: Sequence[Alarm]) -> str:
    if alarms:
        return f"{len(alarms)} alarm{'s' * (len(alarms) > 1)} of the audit"
    return "No alarms" if _has(history, "audit/claimed") else "No learned reward was audited"


def _outcome(history: Sequence[Row]) -> str:
    if not history:
        return "The run ended before its first iteration."
    words = f"After {history[-1]['env_steps']:,.0f} environment steps, "
    evaluated = _points(history, "eval/success_at_end")
    if evaluated:
        return f"{words}{share(evaluated[-1][1])} of the episodes of the last evaluation end in success."
    trained = _end(history, "env/success_at_end")
    if trained is not None:
        return f"{words}{share(trained)} of training episodes end in success (last {AT_THE_END} iterations)."
    returned = _points(history, "eval/return")
    if returned:
        return f"{words}evaluation episodes return {returned[-1][1]:.4g} of the environment's reward."
    earned = _end(history, "env/return")
    if earned is None:
        return f"{words}no episode had ended whose success is known."
    return f"{words}an episode returns {earned:.4g} of the environment's reward; its success is not known."


def _alarm_words(alarm: Alarm, history: Sequence[Row]) -> str:
    steps = _steps_of(alarm, history)
    place = "" if steps is None else f" ({steps:,.0f} steps)"
    return f"Iteration {alarm.iteration}{place}, {alarm.kind.replace('_', ' ')}: {alarm.words}"


def _steps_of(alarm: Alarm, history: Sequence[Row]) -> float | None:
    return next((row["env_steps"] for row in history if row["iteration"] == alarm.iteration), None)


def _learning(history: Sequence[Row], stages: Stages, alarms: Sequence[Alarm]) -> str:
    panels: dict[str, dict[str, str]] = {
        "True success": {
            "evaluation": "eval/success_at_end",
            "training": "env/success_at_end",
            "training, ever": "env/success_once",
        },
        "Reward a step": {"of the model": "rollout/model_rewards", "the learner sees": "rollout/rewards"},
        "Return of an episode, environment's reward": {"evaluation": "eval/return", "training": "env/return"},
    }
    drawn = _drawn(panels, history, stages, alarms, shares={"True success"})
    return f"<section><h2>Learning</h2>{_milestones(history)}{plot_grid(drawn)}</section>" if drawn else ""


def _milestones(history: Sequence[Row]) -> str:
    name = "eval/success_at_end" if _has(history, "eval/success_at_end") else "env/success_at_end"
    points = _points(history, name)
    reached = []
    for level in MILESTONES:
        steps = next((steps for steps, value in points if value >= level), None)
        if steps is not None:
            reached.append(f"{share(level)} after {steps:,.0f} steps")
    kind = "evaluation" if name.startswith("eval") else "training"
    return f"<p>True success in {kind} first reached {unbroken(', '.join(reached))}.</p>" if reached else ""


def _audit(history: Sequence[Row], stages: Stages, alarms: Sequence[Alarm], max_fpr: float | None) -> str:
    panels: dict[str, dict[str, str]] = {
        "False-positive rate on the policy's frames": {"false-positive rate": "audit/fpr"},
        "Precision and recall on the policy's frames": {"precision": "audit/precision", "recall": "audit/recall"},
        "Frames of success": {"success": "audit/success", "called success": "audit/claimed"},
        "Distance of scores from held-out ones": {"drift": "audit/drift"},
    }
    if _has(history, "audit/fpr"):
        del panels["Distance of scores from held-out ones"]  # the truth says more
    limits = {} if max_fpr is None else {next(iter(panels)): (f"limit, {share(max_fpr)}", max_fpr)}
    drawn = _drawn(panels, history, stages, alarms, shares=set(panels), limits=limits)
    note = (
        "The classifier's verdicts against the truth, on the frames that the policy was rewarded for."
        if _has(history, "audit/fpr")
        else "The environment does not know success: verdicts can only be counted, not judged."
    )
    return f"<section><h2>Audit of the learned reward</h2><p>{note}</p>{plot_grid(drawn)}</section>" if drawn else ""


def _transition_models(history: Sequence[Row], stages: Stages) -> str:
    """Of the models over transitions, each by its name."""
    names = sorted({name for row in history for name in row if name.startswith("reward_model/")})
    panels: dict[str, dict[str, str]] = {
        title: {name.removeprefix("reward_model/").removesuffix(end): name for name in names if name.endswith(end)}
        for title, end in (("Mean reward a step", "_mean"), ("Loss", "_loss"))
    }
    drawn = _drawn(panels, history, stages, (), shares=set())
    return f"<section><h2>Reward models</h2>{plot_grid(drawn)}</section>" if drawn else ""


def _drawn(
    panels: Mapping[str, Mapping[str, str]],
    history: Sequence[Row],
    stages: Stages,
    alarms: Sequence[Alarm],
    *,
    shares: set[str],
    limits: Mapping[str, tuple[str, float]] | None = None,
) -> dict[str, bytes]:
    """The panels that have at least one curve."""
    marks = [steps for alarm in alarms if (steps := _steps_of(alarm, history)) is not None]
    drawn = {}
    for title, names in panels.items():
        curves: dict[str, list[tuple[float, float]]] = {}
        for label, name in names.items():
            points = _points(history, name)
            if points and points not in curves.values():  # a learner that sees the model's reward as it is
                curves[label] = points
        if curves:
            limit = (limits or {}).get(title)
            drawn[title] = run_plot(
                title, curves, shares=title in shares, limit=limit, stages=stages, alarms=sorted(set(marks))
            )
    return drawn


def _compared(rows: Sequence[Comparison]) -> str:
    if not rows:
        return ""
    cells = [(str(row.seed), row.learned, row.true) for row in rows]
    if len(rows) > 1:
        learned, true = (float(np.mean([row[column] for row in rows])) for column in (1, 2))
        cells.append(("mean", learned, true))
    body = "".join(
        f'<tr><th>{seed}</th><td class="number">{share(learned)}</td><td class="number">{share(true)}</td>'
        f'<td class="number">{100 * (learned - true):+.1f}</td></tr>'
        for seed, learned, true in cells
    )
    return f"""<section><h2>Learned reward against true reward</h2>
<p>True success of policies trained on each, with the same seed and the same budget of environment steps.</p>
<table><tr><th>Seed</th><th class="number">Learned reward</th><th class="number">True reward</th>
<th class="number">Difference, points</th></tr>{body}</table></section>"""


def _classifier(history: Sequence[Row], figures: TrustFigures | None) -> str:
    if figures is None:
        return ""
    audited = _has(history, "audit/claimed")
    rows = []
    for name in ("fpr", "recall", "precision", "roc_auc"):
        meaning = FIGURES[name]
        value, interval = shown(figures.estimates[name], meaning.unit)
        now = _pooled(history, name)
        on_policy = UNKNOWN if now is None else f"{now:.4f}" if meaning.unit == "area" else share(now)
        last = f'<td class="number">{on_policy}</td>' if audited else ""
        rows.append(
            f"<tr><th>{meaning.title}<small>{escape(meaning.words)}</small></th>"
            f'<td class="number">{value}</td><td class="number soft">{interval}</td>{last}</tr>'
        )
    column = f'<th class="number">On policy, last {AT_THE_END} iterations</th>' if audited else ""
    alarm = f"<p>{ALARM_WORDS}</p>" if audited else ""
    warnings = "".join(f"<li>{unbroken(words)}</li>" for words in figures.warnings)
    return f"""<section><h2>The classifier</h2><p>{unbroken(figures.sentence())}</p>
<table><tr><th></th><th class="number">Held-out</th><th></th>{column}</tr>{"".join(rows)}</table>{alarm}
{f'<ul class="warnings">{warnings}</ul>' if warnings else ""}</section>"""


def _galleries(directory: Path | None) -> str:
    if directory is None:
        return ""
    kinds = {
        FALSE_POSITIVE: ("False positives", "Failure frames called success: what the policy was paid for wrongly."),
        FALSE_NEGATIVE: ("False negatives", "Success frames called failure: what the policy was not paid for."),
        CLAIMED: ("Called success", "Drawn at random for review, since nobody knows the truth."),
    }
    sections = []
    for kind, (name, words) in kinds.items():
        tiles = _newest_tiles(directory / kind)
        if tiles:
            sections.append(gallery_section(name, f"{words} The newest of {kind}/ first.", tiles))
    return "\n".join(sections)


def _newest_tiles(folder: Path) -> list[str]:
    """Up to GALLERY frames; a file that a kill cut off is skipped."""
    tiles: list[str] = []
    for file in sorted(folder.glob("*.png"), reverse=True) if folder.is_dir() else []:
        match = _NAME.match(file.name)
        if match is None or len(tiles) == GALLERY:
            continue
        try:
            frame = np.asarray(Image.open(file).convert("RGB"))
        except (OSError, UnidentifiedImageError):
            continue
        iteration = int(match.group(1))
        tiles.append(tile(frame, file.name, f"<b>p = {float(match.group(2)):.4f}</b>iteration {iteration:,}"))
    return tiles


def _timing(history: Sequence[Row]) -> str:
    """Where the time went. A name with a further slash (time/rollout/waiting) is part of what stands before it."""
    totals: dict[str, float] = {}
    for row in history:
        for name, seconds in row.items():
            if name.startswith("time/"):
                totals[name.removeprefix("time/")] = totals.get(name.removeprefix("time/"), 0.0) + seconds
    whole = sum(seconds for name, seconds in totals.items() if "/" not in name)
    if whole <= 0:
        return ""
    rows = []
    for name in sorted(totals, key=lambda name: (-totals.get(name.split("/")[0], 0.0), name)):
        shown_name = escape(name.replace("_", " "))
        if "/" in name:
            shown_name = f'<span class="soft">of it, {escape(name.split("/", 1)[1].replace("_", " "))}</span>'
        rows.append(
            f'<tr><th>{shown_name}</th><td class="number">{_duration(totals[name])}</td>'
            f'<td class="number">{share(totals[name] / whole)}</td>'
            f'<td class="number">{1000 * totals[name] / len(history):,.0f} ms</td></tr>'
        )
    steps = history[-1]["env_steps"] - _first_step(history)
    return f"""<section><h2>Time</h2>
<p>{_duration(whole)} in {len(history):,} iterations, {steps / whole:,.0f} environment steps a second.</p>
<table><tr><th></th><th class="number">Total</th><th class="number">Share</th><th class="number">An iteration</th></tr>
{"".join(rows)}</table></section>"""


def _first_step(history: Sequence[Row]) -> float:
    """Environment steps before the first row: a resumed stage does not begin at 0."""
    if len(history) < 2:
        return 0.0
    return max(0.0, history[0]["env_steps"] - (history[1]["env_steps"] - history[0]["env_steps"]))


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _points(history: Sequence[Row], name: str) -> list[tuple[float, float]]:
    return [(row["env_steps"], row[name]) for row in history if name in row]


def _has(history: Sequence[Row], name: str) -> bool:
    return any(name in row for row in history)


def _pooled(history: Sequence[Row], name: str) -> float | None:
    """A rate of the audit over the frames of the last iterations, not over the iterations: in some of them, only a few
    frames are of the kind that the rate is about."""
    rows = [row for row in history if f"audit/{name}" in row][-AT_THE_END:]
    success = [row.get("audit/success", 0.0) for row in rows]
    claimed = [row.get("audit/claimed", 0.0) for row in rows]
    concerned = {"fpr": [1 - part for part in success], "recall": success, "precision": claimed}
    weights = concerned.get(name, [1.0] * len(rows))
    if not sum(weights):
        return None
    return sum(w * row[f"audit/{name}"] for w, row in zip(weights, rows, strict=True)) / sum(weights)


def _end(history: Sequence[Row], name: str) -> float | None:
    """The mean over the last iterations that have the figure."""
    values: list[Any] = [row[name] for row in history[-AT_THE_END:] if name in row]
    return float(np.mean(values)) if values else None
