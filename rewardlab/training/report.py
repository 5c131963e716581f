"""report.html: one file a person opens to decide whether to trust a success classifier. No script, nothing fetched."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from rewardlab.data.atomic import replace_file
from rewardlab.training import plots
from rewardlab.training.calibration import probabilities
from rewardlab.training.metrics import FIGURES, Bools, Floats, FrameScores, Ints
from rewardlab.training.plots import Curves
from rewardlab.training.trust import TrustFigures
from rewardlab.training.words import share, shown

FrameImage = Callable[[str, int], npt.NDArray[np.uint8]]

GALLERY = 12
PER_EPISODE = 2
LARGEST_SIDE = 256  # pixels; larger frames are shrunk to keep the file small


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
        _warnings(figures),
        _figures(figures),
        _plots(scores, figures),
        _galleries(scores, figures, images, gallery),
        _training(curves),
        _facts(facts),
    ]
    page = _PAGE.format(title=escape(title), style=_STYLE, body="\n".join(body))
    return replace_file(Path(path), page.encode())


def _heading(title: str, figures: TrustFigures) -> str:
    mood, word = ("caution", "Read the warnings first") if figures.warnings else ("good", "No warnings")
    return f'<h1>{escape(title)}</h1>\n<div class="verdict {mood}"><b>{word}.</b> {_unbroken(figures.sentence())}</div>'


def _warnings(figures: TrustFigures) -> str:
    if not figures.warnings:
        return ""
    items = "".join(f"<li>{_unbroken(words)}</li>" for words in figures.warnings)
    return f'<section><h2>Warnings</h2><ul class="warnings">{items}</ul></section>'


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
    return f"<section><h2>Plots</h2>{_grid({name: plot(scores, figures) for name, plot in draw.items()})}</section>"


def _training(curves: Curves) -> str:
    panels: dict[str, dict[str, Sequence[tuple[float, float]]]] = {}
    for name, points in curves.items():
        series, _, quantity = name.rpartition("/")
        panels.setdefault(quantity, {})[series or quantity] = points
    drawn = {quantity: plots.curves_plot(quantity, lines) for quantity, lines in panels.items()}
    return f"<section><h2>Training</h2>{_grid(drawn)}</section>" if drawn else ""


def _grid(pictures: Mapping[str, bytes]) -> str:
    tags = "".join(f'<img src="{_inline(png)}" alt="{escape(name)}">' for name, png in pictures.items())
    return f'<div class="plots">{tags}</div>'


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
        tiles = "".join(_tile(scores, row, probability[row], bool(said[row]), images) for row in rows)
        total = "" if hit.all() else f" {int(hit.sum()):,} in all at the stored threshold."
        note = (
            f"{words}{total} At most {PER_EPISODE} of an episode." if len(rows) else "None among the held-out frames."
        )
        sections.append(f'<section><h2>{name}</h2><p>{note}</p><div class="gallery">{tiles}</div></section>')
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
    return (
        f'<figure><img src="{_inline(_frame_png(images(name, time)))}" alt="frame {time} of {escape(name)}">'
        f'<figcaption><b>p = {probability:.4f}</b><span class="name">{escape(name).replace("/", "/<wbr>")}</span>'
        f"frame {time}<br>{words}</figcaption></figure>"
    )


def _frame_png(frame: npt.NDArray[np.uint8]) -> bytes:
    picture = Image.fromarray(frame)
    picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts.items())
    return f'<section><h2>Facts</h2><table class="facts">{rows}</table></section>' if facts else ""


def _unbroken(words: str) -> str:
    """Escaped, with numbers and their per cent signs on one line."""
    return escape(words).replace(" %", "&nbsp;%")


def _inline(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body><main>
{body}
</main></body></html>
"""

_STYLE = """
:root { color-scheme: light; --ink: #222; --soft: #6a6a6a; --line: #e4e4e4; --blue: #0072B2; --orange: #D55E00; }
* { box-sizing: border-box; }
body { margin: 0; background: #f6f6f4; color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 8px 0 16px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 8px; }
p { margin: 0 0 12px; color: var(--soft); max-width: 75ch; }
section, .verdict { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 18px; }
section, .verdict { margin: 0 0 16px; }
.verdict { font-size: 1.1rem; border-left: 6px solid var(--blue); }
.verdict.caution { border-left-color: var(--orange); }
.warnings { margin: 0; padding-left: 20px; } .warnings li + li { margin-top: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; margin-bottom: 16px; }
caption { text-align: left; font-weight: 600; padding: 4px 0; }
th, td { text-align: left; font-weight: 400; padding: 6px 8px; border-top: 1px solid var(--line); vertical-align: top; }
th small { display: block; color: var(--soft); font-size: .8rem; line-height: 1.3; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.soft { color: var(--soft); }
.beside { display: grid; gap: 8px 32px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); }
.confusion td { text-align: center; font-size: 1.1rem; font-variant-numeric: tabular-nums; }
.right { background: #e5f1f8; } .wrong { background: #fbeadf; }
.plots { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.plots img { width: 100%; max-width: 560px; height: auto; }
.gallery { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); }
figure { margin: 0; }
figure img { width: 100%; display: block; border-radius: 6px; image-rendering: pixelated; }
figcaption { font-size: .8rem; line-height: 1.35; color: var(--soft); padding-top: 4px; }
figcaption b, .name { display: block; color: var(--ink); } .name { overflow-wrap: anywhere; }
.facts th { width: 11em; color: var(--soft); } .facts td { overflow-wrap: anywhere; white-space: pre-wrap; }
"""
