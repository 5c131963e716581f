"""A trajectory as `np.save` of {'images': {key: float32 [T, C, H, W] in [0, 1]}, 'labels': float32 [T]}.

Rows without pictures are left out. If somebody was unsure of frames, there is also 'unsure': bool [T].
"""

import io
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab import unpickle
from rewardlab.data.episodes import Columns, Episode, check_form
from rewardlab.data.formats.format import Buffer, EpisodeFormat, as_labels, read_trailer, told_by_folder, trailer
from rewardlab.data.images import to_float_chw, to_uint8_hwc
from rewardlab.errors import DataError
from rewardlab.input_files import open_file
from rewardlab.keys import IMAGES, UNSURE
from rewardlab.limits import excerpt, listed
from rewardlab.observations import to_numpy


class NpyFormat(EpisodeFormat):
    name = "npy"
    suffix = ".npy"
    success_folder = "positive"
    failure_folder = "negative"
    stem = "{:06d}"
    shared_counter = False

    def encode(self, episode: Episode) -> list[Buffer]:
        images = {
            name.removeprefix(IMAGES): to_float_chw(frames)
            for name, frames in episode.columns.items()
            if name.startswith(IMAGES)
        }
        if not images:
            raise DataError("the npy format holds images and labels only, and this episode has no images")
        content: Any = {"images": images, "labels": episode.columns["success"][episode.frame_rows].astype(np.float32)}
        if UNSURE in episode.columns:
            content[UNSURE] = episode.columns[UNSURE][episode.frame_rows]
        file = io.BytesIO()
        np.save(file, content, allow_pickle=True)
        return [file.getbuffer(), *trailer(episode)]

    def decode(self, path: Path) -> Episode:
        content = _load_dictionary(path)
        images = content.get("images")
        if not isinstance(images, dict) or not images or "labels" not in content:
            raise DataError(f"has the keys {listed(content)}; expected 'images' (a dictionary) and 'labels'")
        columns: Columns = {"success": as_labels(_flat_labels(content["labels"]))}
        if UNSURE in content:
            columns[UNSURE] = to_numpy(content[UNSURE])
            check_form(UNSURE, columns[UNSURE])
        for key, frames in images.items():
            if to_numpy(frames).ndim != 4:
                raise DataError(f"image '{key}' has shape {list(to_numpy(frames).shape)}; expected [T, C, H, W]")
            # Always channels first here; guessing would turn pictures that are three pixels wide.
            columns[f"{IMAGES}{key}"] = to_uint8_hwc(np.moveaxis(to_numpy(frames), 1, -1), str(key))
        return Episode.from_columns(columns, success=told_by_folder(path), origin=read_trailer(path))


def _flat_labels(labels: Any) -> np.ndarray[Any, Any]:
    array = to_numpy(labels)
    if array.dtype.kind not in "biuf" or array.ndim != 1:
        raise DataError(f"'labels' is {array.dtype} {list(array.shape)}; expected float32 [T]")
    return array


def _load_dictionary(path: Path) -> dict[Any, Any]:
    """What `np.load(path, allow_pickle=True).item()` gives, without running anything that the file asks for."""
    with open_file(path) as file:
        try:
            version = np.lib.format.read_magic(file)
            read_header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, _, dtype = read_header(file)
        except Exception as error:  # a damaged header is parsed as Python text and can fail in any way
            raise DataError(f"is damaged or not a NumPy file ({excerpt(error)})") from error
        if shape != () or dtype.kind != "O":
            found = excerpt(f"{dtype} {list(shape)}")
            raise DataError(f"holds an array {found}; expected a dictionary with 'images' and 'labels'")
        content = unpickle.load(file, str(path))
    content = content.item() if isinstance(content, np.ndarray) and content.shape == () else content
    if not isinstance(content, dict):
        raise DataError(f"holds a {type(content).__name__}; expected a dictionary with 'images' and 'labels'")
    return content
