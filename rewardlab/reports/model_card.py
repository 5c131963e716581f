"""README.md of a checkpoint: what it is, how to load it, how far to trust it."""

from collections.abc import Mapping

from rewardlab.figures.metrics import FIGURES
from rewardlab.figures.trust import TrustFigures
from rewardlab.figures.words import share, shown


def model_card(
    *,
    title: str,
    path: str,
    figures: TrustFigures,
    facts: Mapping[str, str],
    plots: Mapping[str, str] | None = None,
    report: str | None = None,
) -> str:
    """The text of the card. `plots` (caption -> file) and `report` are names relative to the checkpoint."""
    rows = []
    for name, meaning in FIGURES.items():
        value, interval = shown(figures.estimates[name], meaning.unit)
        rows.append(f"| {meaning.title} | {value} | {interval} | {meaning.words} |")
    parts = [
        f"# {_inline(title)}\n\nA success classifier: it looks at camera images and gives the probability that the "
        "task is done *in this very frame*. Made with rewardlab.",
        f"**{figures.sentence()}**",
        _limits(figures),
        "## Use\n\n```python\nfrom rewardlab.rewards import load_reward_model\n\n"
        f"model = load_reward_model({path!r})\n```\n\n"
        f"```bash\nrewardlab score {path} EPISODES_OR_IMAGES\n```\n\n"
        "Preprocessing is part of the model: hand it the camera's frames as they are.",
        "## Figures\n\n"
        + _origin(figures)
        + "\n\n| figure | value | 95 % interval | meaning |\n|---|---:|---:|---|\n"
        + "\n".join(rows),
        "## Threshold and temperature\n\n"
        f"- `p = sigmoid(logit / {figures.temperature:.4g})`: {_calibration_words(figures)} "
        f"Expected calibration error (15 bins of equal width) before {figures.ece_before:.4f}, "
        f"after {figures.ece_after:.4f}.\n"
        f"- The verdict is success when `p > {figures.threshold:.6g}`, chosen for a false-positive rate of at most "
        f"{share(figures.target_fpr)} (upper bound at 95 %: {share(figures.fpr_upper_bound)}). "
        "RL uses this threshold where `reward_threshold` is null.",
        _pictures(plots or {}, report),
        _facts(facts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _calibration_words(figures: TrustFigures) -> str:
    if figures.ece_after <= figures.ece_before:
        return "the temperature brings probabilities nearer to what they say."
    return "no temperature made these probabilities mean what they say: trust the verdict, not the number."


def _origin(figures: TrustFigures) -> str:
    counts = figures.counts
    how = (
        f"cross-fitted in {figures.folds} parts (each judged with the threshold chosen on the others)"
        if figures.folds
        else "on the same episodes that the threshold was chosen on, so they flatter"
    )
    return (
        f"Measured on {counts.episodes} episodes ({counts.success_episodes} with success) that training never saw, "
        f"{how}. Frames: {counts.true_positive} success and {counts.true_negative} failure judged rightly, "
        f"{counts.false_positive} failures called success, {counts.false_negative} successes missed."
    )


def _limits(figures: TrustFigures) -> str:
    always = (
        "The figures hold for frames like the held-out ones: same task, camera, light and kinds of failure. "
        "A policy trained on this reward will look for frames that fool it; audit it on episodes of that policy."
    )
    return "## Limits\n\n" + "\n".join(f"- {words}" for words in (*figures.warnings, always))


def _pictures(plots: Mapping[str, str], report: str | None) -> str:
    lines = [f"![{_inline(caption)}]({file})" for caption, file in plots.items()]
    if report:
        lines.append(f"The whole report, with a gallery of the worst errors: [{report}]({report}).")
    return "## Plots\n\n" + "\n".join(lines) if lines else ""


def _facts(facts: Mapping[str, str]) -> str:
    rows = "\n".join(f"| {_inline(name)} | {_inline(text)} |" for name, text in facts.items())
    return f"## Facts\n\n| | |\n|---|---|\n{rows}" if facts else ""


def _inline(text: str) -> str:
    """Text of others inside a table or heading: no breaks, no cell borders, no HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
