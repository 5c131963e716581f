"""README.md of a checkpoint: what it is, how to load it, how far to trust it."""

from collections.abc import Mapping

from rewardlab.figures.trust import TrustFigures
from rewardlab.reports.page import figure_rows, render


def model_card(
    *, title: str, path: str, figures: TrustFigures, facts: Mapping[str, str], plots: Mapping[str, str]
) -> str:
    """Render the card. `plots` are files beside it, by caption."""
    rows = figure_rows(figures)
    return render("model_card.md", title=title, path=path, figures=figures, rows=rows, facts=facts, plots=plots)
