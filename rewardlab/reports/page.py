"""What all reports share: a self-contained page and its parts. No script, nothing fetched."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from rewardlab.data.atomic import replace_file

LARGEST_SIDE = 256  # pixels; larger frames are shrunk to keep the file small


def write_page(path: str | Path, title: str, parts: Sequence[str]) -> Path:
    """Write the parts (HTML) as one file and return its path."""
    page = _PAGE.format(title=escape(title), style=_STYLE, body="\n".join(parts))
    return replace_file(Path(path), page.encode())


def heading(title: str, *, good: bool, words: str, sentence: str) -> str:
    """The title, and the verdict under it: `words` in bold, then a sentence."""
    mood = "good" if good else "caution"
    return f'<h1>{escape(title)}</h1>\n<div class="verdict {mood}"><b>{escape(words)}.</b> {unbroken(sentence)}</div>'


def list_section(title: str, sentences: Sequence[str]) -> str:
    """Sentences one under the other; nothing where there are none."""
    items = "".join(f"<li>{unbroken(words)}</li>" for words in sentences)
    return f'<section><h2>{title}</h2><ul class="warnings">{items}</ul></section>' if items else ""


def plot_grid(pictures: Mapping[str, bytes]) -> str:
    """Plots as PNG bytes, by name, side by side where there is room."""
    tags = "".join(f'<img src="{_inline(png)}" alt="{escape(name)}">' for name, png in pictures.items())
    return f'<div class="plots">{tags}</div>'


def tile(frame: npt.NDArray[np.uint8], described: str, caption: str) -> str:
    """A frame of a gallery with its caption (HTML)."""
    return (
        f'<figure><img src="{_inline(_frame_png(frame))}" alt="{escape(described)}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def gallery_section(title: str, note: str, tiles: Sequence[str]) -> str:
    return f'<section><h2>{title}</h2><p>{note}</p><div class="gallery">{"".join(tiles)}</div></section>'


def facts_table(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts.items())
    return f'<section><h2>Facts</h2><table class="facts">{rows}</table></section>' if facts else ""


def unbroken(words: str) -> str:
    """Escaped, with numbers and their per cent signs on one line."""
    return escape(words).replace(" %", "&nbsp;%")


def _frame_png(frame: npt.NDArray[np.uint8]) -> bytes:
    picture = Image.fromarray(frame)
    picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


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
