"""The crops that belong to a directory of episodes: a file that training reads, and pictures that people look at."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from rewardlab.data.atomic import replace_file
from rewardlab.data.episodes import Episode
from rewardlab.data.images import write_png
from rewardlab.data.reader import episode_paths
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_crops import Crop, check_crop
from rewardlab.input_files import read_file
from rewardlab.keys import IMAGES

CROPS = "crops.json"
SIDE, GAP = 384, 12  # pixels of a drawn picture
MARK, PAPER = (255, 196, 0), (250, 250, 250)


def write_crops(directory: Path, crops: Mapping[str, Sequence[float]]) -> None:
    """Record the crops by camera: of the recorded frames, in pixels or shares."""
    content = {"crop": {camera: list(crop) for camera, crop in crops.items()}}
    replace_file(directory / CROPS, (json.dumps(content, indent=2) + "\n").encode(), durable=False)


def read_crops(paths: Sequence[str | Path]) -> dict[str, tuple[float, float, float, float]]:
    """Return the crops that the directories of these episodes record; a ConfigError if they disagree."""
    directories = {file.parent for path in paths for file in episode_paths(Path(path))} or {
        Path(path) for path in paths
    }
    found = {str(directory): _read(directory) for directory in sorted(directories)}
    first, crops = next(iter(found.items()), ("", {}))
    for path, others in found.items():
        if others != crops:
            raise ConfigError(
                f"data.data_path: the crops of {first} are {_shown(crops)}, those of {path} are {_shown(others)}; "
                "expected the same. Process one of them again with the other's --crop, or set reward.model.crop"
            )
    return crops


def _read(directory: Path) -> dict[str, tuple[float, float, float, float]]:
    """Return the crops beside some episodes, or beside the folder of their outcome."""
    files = [place / CROPS for place in (directory, directory.parent) if (place / CROPS).is_file()]
    if not files:
        return {}
    file = files[0]
    try:
        crops = json.loads(read_file(file))["crop"]
        return {str(camera): check_crop(crop, f"{file}: {camera}") for camera, crop in crops.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{file} is damaged ({error}); expected what `rewardlab data process` writes") from error


def _shown(crops: Mapping[str, object]) -> str:
    return json.dumps(crops) if crops else "none"


def draw_crops(directory: Path, episode: Episode, crops: Mapping[str, Crop]) -> list[Path]:
    """Draw the last frame of an episode with each crop in it, beside what is cut out."""
    drawn = []
    for number, (camera, crop) in enumerate(crops.items()):
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in camera) or str(number)
        frame = episode.columns[IMAGES + camera][-1]
        drawn.append(write_png(directory / f"crop_{name}.png", draw_crop(frame, crop)))
    return drawn


def draw_crop(frame: npt.NDArray[np.uint8], crop: Crop) -> npt.NDArray[np.uint8]:
    """Return a picture of a frame with a rectangle around the crop, and of the crop alone, enlarged."""
    top, left, height, width = crop
    whole, scale = _enlarged(frame)
    part, _ = _enlarged(frame[top : top + height, left : left + width])
    box = [left * scale - 2, top * scale - 2, (left + width) * scale + 1, (top + height) * scale + 1]
    ImageDraw.Draw(whole).rectangle(box, outline=MARK, width=2)
    sheet = Image.new("RGB", (whole.width + part.width + 3 * GAP, max(whole.height, part.height) + 2 * GAP), PAPER)
    sheet.paste(whole, (GAP, GAP))
    sheet.paste(part, (whole.width + 2 * GAP, GAP))
    return np.asarray(sheet)


def _enlarged(frame: npt.NDArray[np.uint8]) -> tuple[Image.Image, float]:
    """Return a picture with a longer side of SIDE pixels, and how much larger that is."""
    scale = SIDE / max(frame.shape[:2])
    size = round(frame.shape[1] * scale), round(frame.shape[0] * scale)
    return Image.fromarray(frame).resize(size, Image.Resampling.NEAREST), scale
