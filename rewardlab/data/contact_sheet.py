"""A picture of a data set: one row per episode, each frame with its own label."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageOps

from rewardlab.data.atomic import replace_file
from rewardlab.data.crops import MARK, read_crops
from rewardlab.data.episodes import Episode, EpisodeFacts
from rewardlab.data.reader import StoredEpisode, read_episodes
from rewardlab.data.recordings import read_recording
from rewardlab.errors import DataError
from rewardlab.frame_crops import Crop, crop_box
from rewardlab.keys import IMAGES

GREEN, RED, GREY = (24, 140, 60), (200, 44, 44), (120, 120, 120)
INK, PAPER = (30, 30, 30), (250, 250, 250)
WORDS = {GREEN: "success", RED: "no success", GREY: "unsure"}
TILE = 128  # smallest side of a drawn frame in pixels
BORDER, CAPTION, GAP, TITLE, SIDE = 4, 18, 8, 44, 170


def draw_contact_sheet(
    path: str | Path, out_png: str | Path, *, episodes: int = 8, frames: int = 8, camera: str | None = None
) -> Path:
    """Draw up to `episodes` episodes of both outcomes, `frames` frames each from the first to the last, as a PNG."""
    everything = read_episodes(path)
    outcomes = [episode.facts.success for episode in everything]
    chosen = _choose(outcomes, episodes)
    crops = read_crops([path])
    rows = [_draw_row(_of_stored(everything[number]), frames, camera, crops) for number in chosen]
    return _draw_sheet(str(path), outcomes, chosen, rows, Path(out_png))


def draw_recording(path: Path, out_png: Path, *, episodes: int = 8, frames: int = 8) -> Path:
    """Draw episodes of a recording (`data.pkl`), of which one at a time is in memory."""
    outcomes = [recorded.episode.facts.success for recorded in read_recording(path) if recorded.episode is not None]
    if not outcomes:
        raise DataError(f"{path} has no episodes to show")
    chosen, rows = _choose(outcomes, episodes), {}
    whole = (recorded for recorded in read_recording(path) if recorded.episode is not None)
    for number, recorded in enumerate(whole):
        if number in chosen and recorded.episode is not None:
            rows[number] = _draw_row(_in_memory(recorded.episode, f"episode {number}"), frames, None, {})
    return _draw_sheet(str(path), outcomes, chosen, [rows[number] for number in chosen], out_png)


class _Shown(NamedTuple):
    """What is drawn of an episode, wherever it is."""

    name: str
    facts: EpisodeFacts
    labels: npt.NDArray[np.bool_]
    unsure: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]  # that have pictures
    frame: Callable[[str, int], npt.NDArray[np.uint8]]


def _of_stored(episode: StoredEpisode) -> _Shown:
    labels, unsure = episode.labels(), episode.unsure()
    return _Shown(episode.path.stem, episode.facts, labels, unsure, episode.frame_rows(), episode.frame)


def _in_memory(episode: Episode, name: str) -> _Shown:
    columns = episode.columns

    def frame(camera: str, t: int) -> npt.NDArray[np.uint8]:
        return columns[IMAGES + camera][t]

    return _Shown(name, episode.facts, columns["success"], episode.unsure, episode.frame_rows, frame)


def _draw_sheet(
    title: str, outcomes: Sequence[bool], chosen: Sequence[int], rows: Sequence[Image.Image], out_png: Path
) -> Path:
    width = max(row.width for row in rows) + 2 * GAP
    sheet = Image.new("RGB", (width, TITLE + sum(row.height + GAP for row in rows)), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, 6), title, INK, font_size=15)
    shown = sum(outcomes[number] for number in chosen)
    counts = f"{len(outcomes)} episodes; shown: {shown} with success, {len(chosen) - shown} without."
    draw.text((GAP, 25), f"{counts} Green: success in this very frame; red: not; grey: unsure.", INK, font_size=12)
    top = TITLE
    for row in rows:
        sheet.paste(row, (GAP, top))
        top += row.height + GAP
    encoded = io.BytesIO()
    sheet.save(encoded, format="png")
    return replace_file(out_png, encoded.getvalue())


def _choose(outcomes: Sequence[bool], count: int) -> list[int]:
    """Return numbers of episodes: both outcomes in equal parts where there are enough, spread over the data set."""
    successes = [number for number, success in enumerate(outcomes) if success]
    failures = [number for number, success in enumerate(outcomes) if not success]
    wanted = min(len(successes), max(count // 2, count - len(failures)))
    return _spread(successes, wanted) + _spread(failures, min(len(failures), count - wanted))


def _spread(episodes: list[int], count: int) -> list[int]:
    return [episodes[i] for i in np.linspace(0, len(episodes) - 1, count).round().astype(int)]


def _draw_row(episode: _Shown, count: int, camera: str | None, crops: Mapping[str, Sequence[float]]) -> Image.Image:
    facts, labels, rows = episode.facts, episode.labels, episode.rows
    if not facts.cameras:
        raise DataError(f"{episode.name} has no images to show")
    camera = camera or next(iter(facts.cameras))
    times = rows[_places(labels[rows], count)].tolist()
    crop = crop_box(crops[camera], *facts.cameras[camera], f"the crop of {camera}") if camera in crops else None
    tiles = [_draw_tile(episode.frame(camera, t), t, _colour(episode, t), crop) for t in times]
    row = Image.new("RGB", (SIDE + count * (tiles[0].width + GAP), tiles[0].height), PAPER)
    draw = ImageDraw.Draw(row)
    outcome, colour = ("success", GREEN) if facts.success else ("failure", RED)
    if episode.unsure.all():
        outcome, colour = "unsure", GREY
    policy = facts.policy[-24:]  # of a path, the end says more
    texts = (episode.name, outcome, facts.task, policy, f"{len(rows)} frames")
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


def _colour(episode: _Shown, t: int) -> tuple[int, int, int]:
    return GREEN if episode.labels[t] else GREY if episode.unsure[t] else RED


def _draw_tile(frame: npt.NDArray[np.uint8], t: int, colour: tuple[int, int, int], crop: Crop | None) -> Image.Image:
    # Whole-number nearest scaling keeps small frames as sharp as the classifier sees them.
    scale = max(1, -(-TILE // min(frame.shape[:2])))
    picture = ImageOps.scale(Image.fromarray(frame), scale, Image.Resampling.NEAREST)
    if crop is not None:
        top, left, height, width = (side * scale for side in crop)
        box = (left, top, left + width - 1, top + height - 1)
        ImageDraw.Draw(picture).rectangle(box, outline=MARK)
    tile = ImageOps.expand(picture, (BORDER, BORDER, BORDER, BORDER + CAPTION), colour)
    text = f"t={t} {WORDS[colour]}"
    ImageDraw.Draw(tile).text((BORDER + 2, picture.height + 2 * BORDER), text, (255, 255, 255), font_size=12)
    return tile
