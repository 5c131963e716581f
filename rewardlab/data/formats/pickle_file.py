"""A pickled episode: a dictionary of frames, each with its observation, action, reward, done, grasp and success.

The dictionary has one `done` where a Batch has `terminated` and `truncated`: a done frame that is a success is read as
terminated, any other as truncated. Task, seed and policy have no place in it. Frames may have no pictures. A frame
that nobody could judge has `unsure`.
"""

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab import unpickle
from rewardlab.data.episodes import Array, Columns, Episode, as_action
from rewardlab.data.formats.format import Buffer, EpisodeFormat, as_labels, read_trailer, trailer
from rewardlab.data.images import to_uint8_hwc
from rewardlab.errors import DataError
from rewardlab.input_files import open_file
from rewardlab.keys import DEFAULT_CAMERA, FRAME_ROWS, IMAGES, MAIN_IMAGES, STATE, UNSURE
from rewardlab.observations import to_numpy

KEY_OF_CAMERA = {DEFAULT_CAMERA: MAIN_IMAGES, "main_camera": "main_camera"}


class PickleFormat(EpisodeFormat):
    name = "pickle"
    suffix = ".pkl"

    def encode(self, episode: Episode) -> list[Buffer]:
        content = {
            "frames": list(_frames(episode)),
            "success": episode.facts.success,
            "label": int(episode.facts.success),
        }
        return [pickle.dumps(content, protocol=4), *trailer(episode)]

    def decode(self, path: Path) -> Episode:
        with open_file(path) as file:
            content = unpickle.load(file, str(path))
        if isinstance(content, list):
            raise DataError("is a recording of transitions: cut it into episodes by `rewardlab data process`")
        if not isinstance(content, dict) or not isinstance(content.get("frames"), list) or not content["frames"]:
            raise DataError("is a pickle, but not an episode: expected a dictionary with a list of 'frames'")
        success = _as_bool(content.get("success", False))
        if _as_bool(content.get("label", success)) != success:
            raise DataError(f"says success={success} but label={content['label']}")
        return Episode.from_columns(_columns(content["frames"]), success=success, origin=read_trailer(path))


def _frames(episode: Episode) -> Iterator[dict[str, Any]]:
    columns, length = episode.columns, episode.facts.length
    cameras = {_image_key(name.removeprefix(IMAGES)): a for name, a in columns.items() if name.startswith(IMAGES)}
    picture = {int(row): place for place, row in enumerate(episode.frame_rows)}
    states = columns.get(STATE, np.zeros((length, 0), np.float32))
    never = np.zeros(length, dtype=bool)
    at_end = np.arange(length) == length - 1
    ends = [columns[name] for name in ("terminated", "truncated") if name in columns]
    done = np.logical_or.reduce(ends) if ends else at_end
    for t in range(length):
        pictures = {key: frames[picture[t]] for key, frames in cameras.items()} if t in picture else {}
        yield {
            "obs": {**pictures, "states": states[t]},
            "action": columns["action"][t] if "action" in columns else None,
            "reward": float(columns["reward"][t]) if "reward" in columns else None,
            "done": bool(done[t]),
            "grasp": bool(columns.get("grasp", never)[t]),
            "success": bool(columns["success"][t]),
            **({UNSURE: True} if episode.unsure[t] else {}),
        }


def _columns(frames: list[Any]) -> Columns:
    observations = _column(frames, "obs")
    if not all(isinstance(observation, dict) for observation in observations):
        raise DataError("'obs' of a frame is not a dictionary")
    columns = _pictures(observations)
    if "states" in observations[0]:
        states = _stack(observations, "states")
        if states.size:
            columns[STATE] = states.reshape(len(frames), -1).astype(np.float32)
    if frames[0].get("action") is not None:
        columns["action"] = as_action(_stack(frames, "action"))
    if frames[0].get("reward") is not None:
        columns["reward"] = _stack(frames, "reward").astype(np.float32).reshape(len(frames))
    success = _flags(frames, "success")
    done = _flags(frames, "done")
    columns.update(success=success, terminated=done & success, truncated=done & ~success)
    # A file always has `grasp`; in a Batch an absent column means that nothing was grasped.
    grasp = _flags(frames, "grasp")
    if grasp.any():
        columns["grasp"] = grasp
    unsure = _flags(frames, UNSURE)
    if unsure.any():
        columns[UNSURE] = unsure
    return columns


def _pictures(observations: list[dict[str, Any]]) -> Columns:
    """Return the pictures by camera, and the rows that have them if some have none."""
    seen = [[key for key in part if key != "states" and part[key] is not None] for part in observations]
    rows = [t for t, keys in enumerate(seen) if keys]
    cameras = seen[rows[0]] if rows else []
    for t in rows:
        for key in cameras:
            if key not in seen[t]:
                raise DataError(f"frame {t} has no '{key}', but a picture of another camera")
    pictured = [observations[t] for t in rows]
    columns = {IMAGES + _camera_name(key): to_uint8_hwc(_stack(pictured, key), key) for key in cameras}
    if 0 < len(rows) < len(observations):
        columns[FRAME_ROWS] = np.array(rows, np.int64)
    return columns


def _flags(frames: list[Any], key: str) -> Array:
    values = [0 if isinstance(frame, dict) and frame.get(key) is None else _one(frame[key], key) for frame in frames]
    return as_labels(np.array(values, dtype=np.float32))


def _column(frames: list[Any], key: str) -> list[Any]:
    for t, frame in enumerate(frames):
        if not isinstance(frame, dict) or key not in frame:
            raise DataError(f"frame {t} has no '{key}'")
    return [frame[key] for frame in frames]


def _stack(frames: list[Any], key: str) -> Array:
    rows = [to_numpy(value) for value in _column(frames, key)]
    for t, row in enumerate(rows):
        if row.shape != rows[0].shape or row.dtype.kind not in "biuf":
            raise DataError(f"'{key}' of frame {t} is {row.dtype} {list(row.shape)}; frame 0 has {list(rows[0].shape)}")
    return np.stack(rows)


def _one(value: Any, key: str) -> float:
    array = to_numpy(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise DataError(f"'{key}' of a frame is {array.dtype} {list(array.shape)}; expected one number")
    return float(array.reshape(-1)[0])


def _as_bool(value: Any) -> bool:
    return bool(as_labels(np.array([_one(value, "success")])))


def _image_key(camera: str) -> str:
    # "main_camera" keeps its name: "main_images" is the base camera.
    key = KEY_OF_CAMERA.get(camera, re.sub("_camera$", "_images", camera))
    if _camera_name(key) != camera or key == "states":
        raise DataError(f"a camera named '{camera}' has no place in the pickle format; rename it <name>_camera")
    return key


def _camera_name(key: str) -> str:
    return DEFAULT_CAMERA if key == MAIN_IMAGES else re.sub("_images$", "_camera", key)
