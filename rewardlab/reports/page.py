"""Pages from the templates of this folder. An HTML page is one file, without scripts, that fetches nothing."""

import base64
import io
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from PIL import Image

from rewardlab.data.atomic import replace_file
from rewardlab.figures.metrics import FIGURES, Meaning
from rewardlab.figures.trust import TrustFigures
from rewardlab.figures.words import share, shown

LARGEST_SIDE = 256  # pixels; larger frames are shrunk to keep the file small


class Tile(NamedTuple):
    """A frame of a gallery: its picture, what it is, the probability of success, and lines of text under it."""

    frame: npt.NDArray[np.uint8]
    name: str
    probability: float
    words: tuple[str, ...]


class Gallery(NamedTuple):
    title: str
    note: str
    tiles: list[Tile]


def write_page(path: str | Path, template: str, **values: Any) -> Path:
    """Render the template to one file and return its path."""
    return replace_file(Path(path), render(template, **values).encode())


def render(template: str, **values: Any) -> str:
    return _TEMPLATES.get_template(template).render(values)


def figure_rows(figures: TrustFigures) -> list[tuple[Meaning, str, str]]:
    """Each figure of trust as a reader sees it: its meaning, value and interval."""
    return [(meaning, *shown(figures.estimates[name], meaning.unit)) for name, meaning in FIGURES.items()]


def _replaced(words: str, old: str, new: str) -> Markup:
    return Markup(escape(words).replace(old, Markup(new)))


def frame_png(frame: npt.NDArray[np.uint8]) -> bytes:
    """Return a frame as PNG, shrunk if it is large."""
    picture = Image.fromarray(frame)
    picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _inline(text: str) -> str:
    """Text inside a Markdown table or heading: no line breaks, cell borders or HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


_TEMPLATES = Environment(
    loader=PackageLoader("rewardlab.reports"),
    autoescape=select_autoescape(),  # .html only; the model card is Markdown
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {
    "breakable": partial(_replaced, old="/", new="/<wbr>"),  # lets long paths break after a slash
    "data_uri": _data_uri,
    "frame_png": frame_png,
    "inline": _inline,
    "share": share,
    "unbroken": partial(_replaced, old=" %", new="&nbsp;%"),  # keeps numbers and their per cent signs on one line
}
