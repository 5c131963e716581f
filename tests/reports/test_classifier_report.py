"""The report and the card: the right frames, other people's names made harmless, nothing fetched."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rewardlab.errors import DataError
from rewardlab.figures.metrics import Estimate, FrameScores
from rewardlab.figures.trust import TrustFigures, assess
from rewardlab.figures.words import shown
from rewardlab.reports.classifier_report import worst_rows, write_report
from rewardlab.reports.model_card import model_card

VOID = {"meta", "img", "br", "wbr"}
EVIL = "<script>alert('x')</script>|evil&"


class Page(HTMLParser):
    """Collects what a browser would see, and fails on tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data.replace("\N{NO-BREAK SPACE}", " ")


def make_scores() -> FrameScores:
    """12 episodes of 10 frames with success from 6 on; episode 0 fools the model at 0-3, episode 1 is missed at 9."""
    episode, time = np.repeat(np.arange(12), 10), np.tile(np.arange(10), 12)
    label = time >= 6
    logit = np.where(label, 4.0, -4.0) + 0.01 * time
    logit[(episode == 0) & (time < 4)] = [9.0, 9.1, 9.3, 9.2]
    logit[(episode == 1) & (time == 9)] = -8.0
    return FrameScores(episode, time, label, logit, (EVIL, *(f"episode_{i:06d}" for i in range(1, 12))))


def frame(episode: int, time: int) -> np.ndarray:
    """A picture that tells which frame it is."""
    return np.full((8, 8, 3), (episode, time, 77), dtype=np.uint8)


@pytest.fixture(scope="module")
def figures() -> TrustFigures:
    return assess(make_scores(), target_fpr=0.1)


@pytest.fixture(scope="module")
def html(figures: TrustFigures, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = write_report(
        tmp_path_factory.mktemp("report") / "deeper" / "report.html",
        title="Classifier <b>",
        figures=figures,
        scores=make_scores(),
        images=frame,
        curves={"train/loss": [(0, 1.0), (10, 0.5)], "valid/loss": [(0, 1.1)], "valid/f1": [(0, 0.2), (10, 0.9)]},
        facts={"Command": "train --data 'a&b' <x>"},
    )
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    return path.read_text()


def test_is_whole_html_that_fetches_nothing(html: str) -> None:
    page = Page(html)
    assert "http" not in html
    assert "url(" not in html
    assert not {"script", "link", "iframe"} & {tag for tag, _ in page.tags}
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert all((attributes["src"] or "").startswith("data:image/png;base64,") for attributes in pictures)
    assert all(attributes["alt"] for attributes in pictures)


def test_names_and_facts_are_text(html: str) -> None:
    page = Page(html)
    assert EVIL in page.text
    assert "train --data 'a&b' <x>" in page.text
    assert "Classifier <b>" in page.text


def gallery(html: str, title: str) -> list[tuple[int, str]]:
    """(time painted into the picture, caption) of each tile under a heading."""
    section = html.split(f"<h2>{title}</h2>")[1].split("</section>")[0]
    tiles = re.findall(r'<figure><img src="data:image/png;base64,([^"]+)".*?<figcaption>(.*?)</figcaption>', section)
    pictures = [np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for data, _ in tiles]
    return [(int(picture[0, 0, 1]), caption) for picture, (_, caption) in zip(pictures, tiles, strict=True)]


def test_gallery_shows_the_surest_errors_two_an_episode(html: str) -> None:
    positives = gallery(html, "Worst false positives")
    assert [time for time, _ in positives] == [2, 3]  # 9.3 and 9.2 of the four
    assert "frame 2" in positives[0][1]
    assert "failure, called success" in positives[0][1]
    negatives = gallery(html, "Worst false negatives")
    assert negatives[0][0] == 9
    assert "episode_000001" in negatives[0][1]
    assert len(gallery(html, "Nearest to the threshold")) == 12


def test_says_the_verdict_the_warnings_and_the_counts(html: str, figures: TrustFigures) -> None:
    text = Page(html).text
    assert figures.sentence() in text
    assert figures.warnings
    assert all(words in text for words in figures.warnings)
    assert f"{figures.counts.true_negative:,}" in text
    assert text.index(figures.sentence()) < text.index(figures.warnings[0]) < text.index("Worst false positives")


def test_loss_of_both_splits_shares_a_plot(html: str) -> None:
    training = html.split("<h2>Training</h2>")[1].split("</section>")[0]
    assert re.findall(r'alt="([^"]+)"', training) == ["loss", "f1"]


def test_a_missing_class_is_shown_as_not_available(tmp_path: Path) -> None:
    scores = make_scores().rows(~make_scores().label)
    figures = assess(scores)
    path = write_report(
        tmp_path / "report.html", title="t", figures=figures, scores=scores, images=frame, curves={}, facts={}
    )
    assert "n/a of success frames are recognised" in Page(path.read_text()).text


def test_worst_rows_are_limited() -> None:
    scores = make_scores()
    rows = worst_rows(scores, scores.label, -scores.logit, 20)
    assert len(rows) == 20
    assert np.bincount(scores.episode[rows]).max() == 2


def test_large_frames_are_shrunk(figures: TrustFigures, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    path = write_report(
        tmp_path / "report.html",
        title="t",
        figures=figures,
        scores=make_scores(),
        images=lambda episode, time: noise,
        curves={},
        facts={},
    )
    data = re.findall(r'<figure><img src="data:image/png;base64,([^"]+)"', path.read_text())[0]
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (256, 192)


def test_a_place_that_cannot_be_written_is_named(figures: TrustFigures, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"could not write .*report.html"):
        write_report(
            tmp_path / "file" / "report.html",
            title="t",
            figures=figures,
            scores=make_scores(),
            images=frame,
            curves={},
            facts={},
        )


def test_card_says_how_to_load_and_how_far_to_trust(figures: TrustFigures) -> None:
    card = model_card(
        title="PickCube",
        path="runs/pick/checkpoint",
        cameras=["front"],
        figures=figures,
        facts={"Data": f"a|b\n{EVIL}"},
        plots={"ROC": "roc.png"},
    )
    assert "rewardlab.load('runs/pick/checkpoint')" in card
    assert "rewardlab score runs/pick/checkpoint" in card
    text = " ".join(card.split())
    assert figures.sentence() in text
    assert all(f"- {words}" in text for words in figures.warnings)
    assert [line for line in card.splitlines() if len(line) > 140 and not line.startswith("|")] == []
    assert "![ROC](roc.png)" in card
    assert "<script>" not in card
    rows = [line for line in card.splitlines() if line.startswith("| Data")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 3


@pytest.mark.parametrize(
    ("estimate", "unit", "expected"),
    [
        (Estimate(0.0042, 0.001, 0.0091), "share", ("0.42 %", "[0.10, 0.91]")),
        (Estimate(0.9996, 0.95, 1.0), "share", ("99.96 %", "[95.0, 100]")),
        (Estimate(1.0), "frames", ("1 frame", "")),
        (Estimate(None), "share", ("n/a", "")),
        (Estimate(0.98765, 0.5, 1.0), "area", ("0.9877", "[0.5000, 1.0000]")),
    ],
)
def test_numbers_for_people(estimate: Estimate, unit: str, expected: tuple[str, str]) -> None:
    assert shown(estimate, unit) == expected
