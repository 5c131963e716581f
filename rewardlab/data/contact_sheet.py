"""A picture of a data set: one row per episode, each frame with its own label."""

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageOps

from rewardlab.data.atomic import replace_file
from rewardlab.data.reader import StoredEpisode, read_episodes
from rewardlab.errors import DataError

GREEN, RED, INK, PAPER = (24, 140, 60), (200, 44, 44), (30, 30, 30), (250, 250, 250)
TILE = 128  # smallest side of a drawn frame in pixels
BORDER, CAPTION, GAP, TITLE, SIDE = 4, 18, 8, 44, 170


def draw_contact_sheet(
    path: str | Path, out_png: str | Path, *, episodes: int = 8, frames: int = 8, camera: str | None = None
) -> Path:
    """Draw up to `episodes` episodes of both outcomes, `frames` frames each from the first to the last, as a PNG."""
    everything = read_episodes(path)
    chosen = _choose(everything, episodes)
    rows = [_draw_row(episode, frames, camera) for episode in chosen]
    width = max(row.width for row in rows) + 2 * GAP
    sheet = Image.new("RGB", (width, TITLE + sum(row.height + GAP for row in rows)), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, 6), str(path), INK, font_size=15)
    shown = sum(episode.facts.success for episode in chosen)
    counts = f"{len(everything)} episodes; shown: {shown} success, {len(chosen) - shown} failure."
    draw.text((GAP, 25), f"{counts} Green: success in this very frame; red: not.", INK, font_size=12)
    top = TITLE
    for row in rows:
        sheet.paste(row, (GAP, top))
        top += row.height + GAP
    encoded = io.BytesIO()
    sheet.save(encoded, format="png")
    return replace_file(Path(out_png), encoded.getvalue())


def _choose(everything: list[StoredEpisode], count: int) -> list[StoredEpisode]:
    """Both outcomes in equal parts where there are enough, spread evenly over the data set."""
    successes = [episode for episode in everything if episode.facts.success]
    failures = [episode for episode in everything if not episode.facts.success]
    wanted = min(len(successes), max(count // 2, count - len(failures)))
    return _spread(successes, wanted) + _spread(failures, min(len(failures), count - wanted))


def _spread(episodes: list[StoredEpisode], count: int) -> list[StoredEpisode]:
    return [episodes[i] for i in np.linspace(0, len(episodes) - 1, count).round().astype(int)]


def _draw_row(episode: StoredEpisode, count: int, camera: str | None) -> Image.Image:
    facts, labels = episode.facts, episode.labels()
    if not facts.cameras:
        raise DataError(f"{episode.path} has no images to show")
    camera = camera or next(iter(facts.cameras))
    rows = episode.frame_rows()
    times = rows[_places(labels[rows], count)].tolist()
    tiles = [_draw_tile(episode.frame(camera, t), t, bool(labels[t])) for t in times]
    row = Image.new("RGB", (SIDE + count * (tiles[0].width + GAP), tiles[0].height), PAPER)
    draw = ImageDraw.Draw(row)
    outcome, colour = ("success", GREEN) if facts.success else ("failure", RED)
    policy = facts.policy[-24:]  # of a path, the end says more
    texts = (episode.path.stem, outcome, facts.task, policy, f"{len(rows)} frames")
    for line, text in enumerate(texts):
        draw.text((0, 6 + 18 * line), text[:24], colour if text is outcome else INK, font_size=13)
    for index, tile in enumerate(tiles):
        row.paste(tile, (SIDE + index * (tile.width + GAP), 0))
    return row


def _places(labels: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.intp]:
    """Spread over the frames of an episode; one of its success frames is among them, if it has any."""
    times = np.linspace(0, len(labels) - 1, count).round().astype(int)
    successes = np.flatnonzero(labels)
    if len(successes) and not labels[times].any():
        shown = successes[len(successes) // 2]
        times[np.abs(times - shown).argmin()] = shown
    return np.unique(times)


def _draw_tile(frame: npt.NDArray[np.uint8], t: int, success: bool) -> Image.Image:
    # Whole-number nearest scaling keeps small frames as sharp as the classifier sees them.
    scale = max(1, -(-TILE // min(frame.shape[:2])))
    picture = ImageOps.scale(Image.fromarray(frame), scale, Image.Resampling.NEAREST)
    tile = ImageOps.expand(picture, (BORDER, BORDER, BORDER, BORDER + CAPTION), GREEN if success else RED)
    text = f"t={t} {'success' if success else 'no success'}"
    ImageDraw.Draw(tile).text((BORDER + 2, picture.height + 2 * BORDER), text, (255, 255, 255), font_size=12)
    return tile
