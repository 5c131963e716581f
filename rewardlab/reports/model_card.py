"""README.md of a checkpoint: what it is, how to load it, how far to trust it."""

from collections.abc import Mapping, Sequence

from rewardlab.figures.trust import TrustFigures
from rewardlab.reports.page import figure_rows, render


def model_card(
    *,
    title: str,
    path: str,
    cameras: Sequence[str],
    figures: TrustFigures,
    facts: Mapping[str, str],
    plots: Mapping[str, str],
) -> str:
    """Render the card. `plots` are files beside it, by caption."""
    known = {"title": title, "path": path, "cameras": cameras, "figures": figures, "facts": facts, "plots": plots}
    return render("model_card.md", rows=figure_rows(figures), **known)
