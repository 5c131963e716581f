"""An episode: named columns in time order, plus the facts about it.

Columns are NumPy arrays under flat names ("observation.images.base_camera", "success", ...), so that files can be read,
checked and converted without importing torch; `Episode.steps` gives them as the Batch of `rewardlab.types`.
Every column but `success` is optional. An episode may have pictures of some of its rows only: the column `frame_rows`
then lists these rows, and the columns of images are as long as it. Frames that nobody could judge are marked in the
column `unsure`: nothing is trained or measured on them.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rewardlab.errors import DataError
from rewardlab.keys import DEFAULT_CAMERA, FRAME_ROWS, IMAGES, STATE, UNSURE
from rewardlab.limits import excerpt
from rewardlab.observations import to_numpy

if TYPE_CHECKING:  # importing tensordict takes seconds
    from rewardlab.types import Batch

Array: TypeAlias = npt.NDArray[Any]
Columns: TypeAlias = dict[str, Array]
Identity: TypeAlias = tuple[str, int, int]  # run, worker, number

UNKNOWN = "unknown"

# Allowed dtypes and numbers of dimensions (time included) of the columns that `rewardlab.types` names.
_FLOAT, _INT, _BOOL = np.dtype("float32"), np.dtype("int64"), np.dtype("bool")
_KNOWN: dict[str, tuple[tuple[np.dtype[Any], ...], tuple[int, ...]]] = {
    STATE: ((_FLOAT,), (2,)),
    "action": ((_FLOAT, _INT), (1, 2, 3)),
    "reward": ((_FLOAT,), (1,)),
    "env_reward": ((_FLOAT,), (1,)),
    "terminated": ((_BOOL,), (1,)),
    "truncated": ((_BOOL,), (1,)),
    "success": ((_BOOL,), (1,)),
    UNSURE: ((_BOOL,), (1,)),
    "grasp": ((_BOOL,), (1,)),
    "intervention": ((_BOOL,), (1,)),
    FRAME_ROWS: ((_INT,), (1,)),
}


@dataclass(frozen=True)
class EpisodeFacts:
    """What is known about an episode without looking at its frames."""

    length: int
    success: bool  # in any frame, or reported by the environment for the episode as a whole
    success_at_end: bool
    task: str = UNKNOWN
    seed: int | None = None  # of the run it is from: what the environments were reset with
    policy: str = UNKNOWN  # who acted
    cameras: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> (height, width)

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, values: Any) -> "EpisodeFacts":
        """Return the facts that a file states; a DataError names the first that is not of its kind."""
        known = _known_facts("facts", cls, values)
        for name in ("length", "success", "success_at_end"):
            if name not in known:
                raise DataError(f"the facts have no '{name}'; found {', '.join(map(str, known)) or 'nothing'}")
        cameras = known.get("cameras", {})
        _check_fact("cameras", cameras, isinstance(cameras, dict), "a size for each camera")
        for camera, size in cameras.items():
            pair = isinstance(size, (list, tuple)) and len(size) == 2 and all(_is_count(side, 1) for side in size)
            _check_fact(f"cameras.{camera}", size, pair, "height and width in pixels")
        _check_fact("length", known["length"], _is_count(known["length"], 1), "a number of frames")
        for name in ("success", "success_at_end"):
            _check_fact(name, known[name], isinstance(known[name], bool), "true or false")
        for name in ("task", "policy"):
            _check_fact(name, known.get(name, ""), isinstance(known.get(name, ""), str), "a text")
        seed = known.get("seed")
        _check_fact("seed", seed, seed is None or (isinstance(seed, int) and not isinstance(seed, bool)), "a number")
        return cls(**{**known, "cameras": {name: (size[0], size[1]) for name, size in cameras.items()}})


@dataclass(frozen=True)
class EpisodeOrigin:
    """The identity of an episode (the run and the worker that collected it, and its number there), and its content.

    A resumed run collects episodes again that it wrote before it was stopped; by their origin they are recognised, and
    not written twice. If it takes another course, the digest differs, and the episode is a new one.
    """

    run: str
    worker: int
    number: int  # counts all episodes that ended in this worker, whether they were kept or not
    digest: str  # of the content; see `content_digest`

    @property
    def identity(self) -> Identity:
        """Return the origin without the content."""
        return self.run, self.worker, self.number

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> "EpisodeOrigin":
        """Read what `to_json` wrote; a DataError says what is wrong with it."""
        try:
            values = _known_facts("origin", cls, json.loads(text))
        except (ValueError, RecursionError) as error:
            raise DataError(f"the origin is not valid JSON ({error})") from error
        for name, kind in (("run", str), ("digest", str), ("worker", int), ("number", int)):
            good = isinstance(values.get(name), kind) and not isinstance(values.get(name), bool)
            _check_fact(f"origin.{name}", values.get(name), good, "a text" if kind is str else "a number")
        return cls(**values)


def _known_facts(what: str, cls: type[Any], values: Any) -> dict[str, Any]:
    """Return the entries that this version knows; later versions may add some."""
    if not isinstance(values, dict):
        raise DataError(f"the {what} are a {type(values).__name__}; expected a dictionary")
    return {name: value for name, value in values.items() if name in cls.__dataclass_fields__}


def _as_pictures(frames: Any, camera: str) -> Array:
    from rewardlab.data.images import to_uint8_hwc  # imports Pillow

    if not hasattr(frames, "shape"):
        pictures = [to_numpy(frame) for frame in frames]
        if len({picture.shape for picture in pictures}) != 1:
            sizes = ", ".join(dict.fromkeys(str(list(picture.shape)) for picture in pictures)) or "no frames"
            raise DataError(f"frames of camera '{camera}': found {sizes}, expected one size for all")
        frames = np.stack(pictures)
    if len(frames.shape) != 4:
        raise DataError(f"frames of camera '{camera}': found {list(frames.shape)}, expected [T, height, width, 3]")
    return to_uint8_hwc(frames, camera)


def _as_labels(success: Any, count: int) -> Array:
    labels = to_numpy(success)
    if labels.ndim == 0:
        labels = np.full(count, labels)
    if labels.shape != (count,) or not np.isin(labels, (0, 1)).all():
        raise DataError(
            f"success: found {labels.dtype} {list(labels.shape)}, expected true or false for each of the {count} "
            "frames, or one for all"
        )
    return labels.astype(np.bool_)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_fact(name: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise DataError(f"the facts say {name} = {repr(value)[:60]}; expected {expected}")


@dataclass(frozen=True)
class Episode:
    """Rows in time order, row t being the arrival at frame t (see `rewardlab.types`), and the facts."""

    columns: Columns
    facts: EpisodeFacts
    origin: EpisodeOrigin | None = None  # None: not collected by a run of this package, or by an earlier version

    @classmethod
    def from_columns(
        cls,
        columns: Columns,
        *,
        task: str = UNKNOWN,
        seed: int | None = None,
        policy: str = UNKNOWN,
        success: bool = False,
        origin: EpisodeOrigin | None = None,
    ) -> "Episode":
        """Check the columns and work out the facts; `success=True` makes it a success whatever the frames say."""
        check_columns(columns)
        return cls(columns, EpisodeFacts(**_facts_in(columns, success), task=task, seed=seed, policy=policy), origin)

    @classmethod
    def from_frames(
        cls,
        frames: Any,
        success: Any,
        *,
        state: Any = None,
        task: str = UNKNOWN,
        seed: int | None = None,
        policy: str = UNKNOWN,
    ) -> "Episode":
        """Build an episode from the frames of a camera and their labels.

        >>> episode = Episode.from_frames(frames, success=[False] * 40 + [True] * 10, task="peg in hole")

        `frames` are an array [T, height, width, 3] or a list of pictures (uint8, or floats in [0, 1]); for several
        cameras, a dictionary of them. `success` says of each frame whether the task is done in this very frame; a
        single True or False labels all frames. `state`, an array [T, S], is what a policy sees besides pictures.
        """
        cameras = frames if isinstance(frames, Mapping) else {DEFAULT_CAMERA: frames}
        columns = {f"{IMAGES}{camera}": _as_pictures(pictures, str(camera)) for camera, pictures in cameras.items()}
        if not columns:
            raise DataError("frames: found an empty dictionary, expected the frames of a camera")
        columns["success"] = _as_labels(success, len(next(iter(columns.values()))))
        if state is not None:
            columns[STATE] = to_numpy(state).astype(np.float32)
        return cls.from_columns(columns, task=task, seed=seed, policy=policy)

    @cached_property
    def steps(self) -> "Batch":
        """The rows as a Batch of shape [T], with pictures if all rows have them; shares memory with the columns."""
        import torch
        from tensordict import TensorDict

        batch = TensorDict({}, batch_size=[self.facts.length])
        for name, array in self.columns.items():
            if name != FRAME_ROWS and not (self.lacks_pictures and name.startswith(IMAGES)):
                batch[_nested_key(name)] = torch.from_numpy(array)
        return batch

    @property
    def frame_rows(self) -> Array:
        """The rows that have pictures; all rows of an episode without cameras."""
        return frame_rows(self.columns)

    @property
    def unsure(self) -> Array:
        """Which rows are neither a success nor a failure, bool [T]."""
        return unsure_rows(self.columns)

    @property
    def lacks_pictures(self) -> bool:
        """Whether there are pictures of some rows only, so that transitions have none."""
        return len(self.frame_rows) < len(self)

    @cached_property
    def checksums(self) -> dict[str, int]:
        """The CRC-32 of each column, with its name, type and shape."""
        return {name: checksum(name, np.ascontiguousarray(array)) for name, array in self.columns.items()}

    def with_origin(self, run: str, worker: int, number: int) -> "Episode":
        """Return the same episode with an origin. Its checksums are not computed a second time."""
        named = replace(self, origin=EpisodeOrigin(run, worker, number, content_digest(self.checksums)))
        vars(named)["checksums"] = self.checksums
        return named

    def transitions(self) -> "Batch":
        """The T-1 transitions: observation, the action taken in it, what followed, and ("next", "observation").

        They have no pictures if some rows have none.
        """
        steps = self.steps
        moves = steps[1:].copy()
        observation = steps.get("observation", None)
        if observation is None:
            raise DataError(f"this episode has no observations, so it has no transitions{self.explain_missing()}")
        moves["next"] = {"observation": moves["observation"]}
        moves["observation"] = observation[:-1]
        return moves

    def explain_missing(self) -> str:
        """Return a half-sentence for errors about missing pictures: why transitions have none, and what to do."""
        if not self.lacks_pictures:
            return ""
        return (
            f". Only {len(self.frame_rows)} of its {len(self)} frames have pictures, and every frame needs them here: "
            "collect with data.collection.frames=all"
        )

    def __len__(self) -> int:
        return self.facts.length


def frame_rows(columns: Columns) -> Array:
    """Return the rows that have pictures; all rows of an episode without cameras."""
    return columns[FRAME_ROWS] if FRAME_ROWS in columns else np.arange(len(columns["success"]))


def unsure_rows(columns: Columns) -> Array:
    """Return which rows are neither a success nor a failure, bool [T]."""
    return columns[UNSURE] if UNSURE in columns else np.zeros(len(columns["success"]), bool)


def checksum(name: str, array: Array) -> int:
    return zlib.crc32(array.data, checksum_of_form(name, array.dtype, array.shape))


def checksum_of_form(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    return zlib.crc32(f"{name} {dtype.str} {shape}".encode())


def content_digest(checksums: Mapping[str, int]) -> str:
    """Return a digest of all columns, from their checksums: equal for copies of an episode, whatever their names."""
    return hashlib.sha256(json.dumps(dict(checksums), sort_keys=True).encode()).hexdigest()[:16]


def _nested_key(name: str) -> tuple[str, ...]:
    if name.startswith(IMAGES):  # a camera's name may contain dots
        return ("observation", "images", name.removeprefix(IMAGES))
    return tuple(name.split("."))


def _facts_in(columns: Columns, success: bool) -> dict[str, Any]:
    """The facts that the columns themselves show; `success` is what the environment said of the whole."""
    labels = columns["success"]
    return {
        "length": len(labels),
        "success": bool(labels.any()) or success,
        "success_at_end": bool(labels[-1]),
        "cameras": {name.removeprefix(IMAGES): a.shape[1:3] for name, a in columns.items() if name.startswith(IMAGES)},
    }


def as_action(actions: Array) -> Array:
    """Return actions in the type that episodes store: int64 for choices, float32 for vectors."""
    return actions.astype(np.int64 if actions.dtype.kind in "biu" else np.float32)


def check_episode(episode: Episode) -> None:
    """Raise a DataError that names the column, what was found and what was expected."""
    check_columns(episode.columns)
    found = len(episode.columns["success"])
    if found != episode.facts.length:
        raise DataError(f"the facts say {episode.facts.length} frames, the columns have {found}")
    for name, seen in _facts_in(episode.columns, episode.facts.success).items():
        told = getattr(episode.facts, name)
        if told != seen:
            raise DataError(f"the facts say {name} = {told}, the columns say {seen}")


def check_columns(columns: Columns) -> None:
    """The one place where columns are checked."""
    check_forms(columns)
    check_finite(columns, "step {}".format)


def check_forms(columns: Columns) -> None:
    """The right columns, of the right types and shapes, all of one length; images as long as `frame_rows`, if given."""
    if "success" not in columns:
        raise DataError(f"no column 'success'; found {', '.join(sorted(columns)) or 'nothing'}")
    rows = len(columns["success"])
    if rows == 0:
        raise DataError("no rows: an episode has at least one frame")
    for name, array in columns.items():
        check_form(name, array)
        if FRAME_ROWS in columns and name.startswith(IMAGES):
            if len(array) != len(columns[FRAME_ROWS]):
                raise DataError(f"'{name}' has {len(array)} pictures, '{FRAME_ROWS}' has {len(columns[FRAME_ROWS])}")
        elif name != FRAME_ROWS and len(array) != rows:
            raise DataError(f"'{name}' has {len(array)} rows, the labels ('success') have {rows}")
    check_unsure(columns.get(UNSURE), columns["success"])
    if FRAME_ROWS in columns:
        check_frame_rows(columns[FRAME_ROWS], rows)
        if not any(name.startswith(IMAGES) for name in columns):
            raise DataError(f"'{FRAME_ROWS}' lists rows with pictures, but there are no pictures")


def check_unsure(unsure: Array | None, success: Array) -> None:
    """Raise if a frame is both a success and unsure."""
    if unsure is not None and (both := np.flatnonzero(unsure & success)).size:
        raise DataError(f"step {both[0]} is a success in 'success' and open in '{UNSURE}'; expected one of the two")


def check_frame_rows(found: Array, rows: int) -> None:
    """Rising numbers of rows, at least one."""
    check_form(FRAME_ROWS, found)
    if not len(found) or found[0] < 0 or found[-1] >= rows or (np.diff(found) <= 0).any():
        raise DataError(f"'{FRAME_ROWS}' is {excerpt(found.tolist())}; expected rising numbers from 0 to {rows - 1}")


def check_finite(columns: Columns, locate: Callable[[int], str]) -> None:
    """No NaN and no infinity; `locate` says in words which row is meant."""
    for name, array in columns.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = np.argwhere(~np.isfinite(array))[0]
            raise DataError(f"'{name}' is {array[tuple(bad)]} at {locate(int(bad[0]))}; expected finite numbers")


def check_form(name: str, array: Array) -> None:
    if name.startswith(IMAGES):
        good = array.dtype == np.uint8 and array.ndim == 4 and array.shape[-1] == 3 and 0 not in array.shape[1:3]
        expected = "uint8 [rows, height, width, 3]"
    elif name in _KNOWN:
        dtypes, ndims = _KNOWN[name]
        good = array.dtype in dtypes and array.ndim in ndims
        expected = f"{' or '.join(map(str, dtypes))}, {' or '.join(f'{n}-d' for n in ndims)}" if not good else ""
    else:
        good = array.dtype.kind in "biuf" and array.ndim > 0
        expected = "numbers, one row per frame"
    if not good:
        raise DataError(f"'{name}' is {array.dtype} {list(array.shape)}; expected {expected}")
