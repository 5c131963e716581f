"""The default: uint8 frames in a safetensors file, facts and checksums in its header.

A frame is read by its offset, whatever the length of the episode. Reading everything, in batches too, and reading the
labels verifies the CRC-32 of each tensor; a single frame is handed out as it is.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors

from rewardlab.data.episodes import (
    Array,
    Columns,
    Episode,
    EpisodeFacts,
    EpisodeOrigin,
    check_form,
    check_frame_rows,
    check_unsure,
    checksum,
    checksum_of_form,
    content_digest,
)
from rewardlab.data.formats.format import Buffer, EpisodeFormat, FrameRows, Ints, naming, no_camera, picture_index
from rewardlab.errors import DataError
from rewardlab.input_files import check_is_file, open_file
from rewardlab.keys import FRAME_ROWS, IMAGES, UNSURE
from rewardlab.limits import excerpt, listed

KIND = "rewardlab.episode"
# The second has pictures of some rows only, which readers of the first mix up; the third (also) has rows that nobody
# could judge, which earlier readers take for failures.
VERSION, SPARSE_VERSION, UNSURE_VERSION = "1", "2", "3"
_DTYPES = {np.dtype(bool): "BOOL"} | {
    np.dtype(f"{kind}{size}"): f"{kind.upper()}{8 * size}"
    for kind, sizes in (("f", (2, 4, 8)), ("i", (1, 2, 4, 8)), ("u", (1, 2, 4, 8)))
    for size in sizes
}


class SafetensorsFormat(EpisodeFormat):
    name = "safetensors"
    suffix = ".safetensors"

    def encode(self, episode: Episode) -> list[Buffer]:
        # Widest numbers first, as the library does, so that every tensor is aligned.
        by_width = sorted(episode.columns.items(), key=lambda item: (-item[1].itemsize, item[0]))
        columns = {name: np.ascontiguousarray(array) for name, array in by_width}
        facts = json.dumps(episode.facts.to_json(), sort_keys=True)
        metadata = {
            "kind": KIND,
            "version": _version(columns),
            "facts": facts,
            "facts_crc32": str(zlib.crc32(facts.encode())),
            "crc32": json.dumps({name: episode.checksums[name] for name in columns}),
        }
        if episode.origin is not None:
            origin = episode.origin.to_json()
            metadata |= {"origin": origin, "origin_crc32": str(zlib.crc32(origin.encode()))}
        # Not safetensors' own `save`: it builds the whole file in memory while holding the GIL, and a collector's
        # environments stand still meanwhile.
        header = _header(columns, metadata)
        return [struct.pack("<Q", len(header)), header, *(array.data for array in columns.values())]

    def decode(self, path: Path) -> Episode:
        with _opened(path) as (file, metadata):
            checksums = json.loads(metadata["crc32"])
            if set(checksums) != set(file.keys()):
                raise DataError(
                    f"has the tensors {listed(sorted(file.keys()))}, its header lists {listed(sorted(checksums))}: it "
                    "is damaged"
                )
            columns = {name: _verified(file, name, checksums) for name in checksums}
            return Episode(columns, _facts(metadata), _origin(metadata))

    def facts(self, path: Path) -> EpisodeFacts:
        with naming(path), _opened(path) as (_, metadata):
            return _facts(metadata)

    def identity(self, path: Path) -> str:
        """From the header alone, which has the checksums of everything."""
        with naming(path), open_file(path) as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > check_is_file(path):
                raise DataError("is damaged or not a safetensors file (its header is cut short)")
            return hashlib.sha256(file.read(length)).hexdigest()[:16]

    def origin(self, path: Path) -> EpisodeOrigin | None:
        with naming(path), _opened(path) as (_, metadata):
            return _origin(metadata)

    def digest(self, path: Path) -> str:
        with naming(path), _opened(path) as (_, metadata):
            return content_digest(json.loads(metadata["crc32"]))

    def labels(self, path: Path) -> npt.NDArray[np.bool_]:
        with naming(path), _opened(path) as (file, metadata):
            labels = _verified(file, "success", json.loads(metadata["crc32"]))
            length = _facts(metadata).length
            if len(labels) != length:
                raise DataError(f"has {len(labels)} labels for {length} frames")
            return labels

    def unsure(self, path: Path) -> npt.NDArray[np.bool_]:
        with naming(path), _opened(path) as (file, metadata):
            if UNSURE not in file.keys():  # noqa: SIM118 (the handle is not a dict)
                return np.zeros(_facts(metadata).length, bool)
            checksums = json.loads(metadata["crc32"])
            unsure = _verified(file, UNSURE, checksums)
            check_form(UNSURE, unsure)
            check_unsure(unsure, _verified(file, "success", checksums))
            return unsure

    def frame_rows(self, path: Path) -> Ints:
        with naming(path), _opened(path) as (file, metadata):
            rows = _frame_rows(file, metadata)
            return np.arange(_facts(metadata).length) if rows is None else rows

    def read_frame(self, path: Path, camera: str, t: int) -> npt.NDArray[np.uint8]:
        with naming(path), _opened(path) as (file, metadata):
            frames, rows = _pictures(file, camera), _frame_rows(file, metadata)
            length = frames.get_shape()[0] if rows is None else _facts(metadata).length
            frame: npt.NDArray[np.uint8] = frames[picture_index(t, length, rows)]
            return frame

    def read_batches(self, path: Path, cameras: Sequence[str], size: int) -> Iterator[FrameRows]:
        """Memory holds one batch. Damage to pictures shows in their checksum, which is complete after the last one."""
        labels = self.labels(path)[self.frame_rows(path)]
        checksums: dict[str, int] = {}
        for start in range(0, len(labels), size):
            rows = slice(start, min(start + size, len(labels)))
            # Opened anew for each batch: what was read through a mapping counts as memory until it is closed.
            with naming(path), _opened(path) as (file, metadata):
                pictures = {camera: _rows(file, camera, rows, len(labels), checksums) for camera in cameras}
            yield pictures, labels[rows]
        stored = json.loads(metadata["crc32"])
        with naming(path):
            for name, checksum in checksums.items():
                if checksum != stored.get(name):
                    raise _damaged(name)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    check_is_file(path)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("kind") != KIND:
                raise DataError("is a safetensors file, but not an episode (its header has no mark of one)")
            if metadata.get("version") not in (VERSION, SPARSE_VERSION, UNSURE_VERSION):
                found, known = metadata.get("version"), f"versions {VERSION} to {UNSURE_VERSION}"
                raise DataError(f"has episode format version {found}; this rewardlab reads {known}")
            yield file, metadata
    except (safetensors.SafetensorError, json.JSONDecodeError, KeyError, UnicodeDecodeError) as error:
        raise DataError(f"is damaged or not a safetensors file ({excerpt(error)})") from error


def _version(columns: Columns) -> str:
    return UNSURE_VERSION if UNSURE in columns else SPARSE_VERSION if FRAME_ROWS in columns else VERSION


def _header(columns: Columns, metadata: dict[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, array in columns.items():
        offsets = [offset, offset + array.nbytes]
        header[name] = {"dtype": _DTYPES[array.dtype], "shape": array.shape, "data_offsets": offsets}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _facts(metadata: dict[str, str]) -> EpisodeFacts:
    return EpisodeFacts.from_json(json.loads(_verified_text(metadata, "facts")))


def _origin(metadata: dict[str, str]) -> EpisodeOrigin | None:
    return EpisodeOrigin.from_json(_verified_text(metadata, "origin")) if "origin" in metadata else None


def _verified_text(metadata: dict[str, str], name: str) -> str:
    if str(zlib.crc32(metadata[name].encode())) != metadata[f"{name}_crc32"]:
        raise DataError(f"the {name} in the header does not match its checksum: the file is damaged")
    return metadata[name]


def _verified(file: Any, name: str, checksums: dict[str, int]) -> Array:
    array: Array = file.get_tensor(name)
    if checksum(name, array) != checksums.get(name):
        raise _damaged(name)
    return array


def _frame_rows(file: Any, metadata: dict[str, str]) -> Ints | None:
    """Return the rows that have pictures, checked; None for all."""
    if metadata["version"] == VERSION or FRAME_ROWS not in file.keys():  # noqa: SIM118 (the handle is not a dict)
        return None
    rows = _verified(file, FRAME_ROWS, json.loads(metadata["crc32"]))
    check_frame_rows(rows, _facts(metadata).length)
    return rows


def _damaged(name: str) -> DataError:
    return DataError(f"tensor '{name}' does not match its checksum: the file is damaged")


def _pictures(file: Any, camera: str) -> Any:
    """Return the stored frames of a camera, not yet read."""
    if IMAGES + camera not in file.keys():  # noqa: SIM118 (the handle is not a dict)
        raise no_camera(camera, list(file.keys()))
    return file.get_slice(IMAGES + camera)


def _rows(file: Any, camera: str, rows: slice, length: int, checksums: dict[str, int]) -> npt.NDArray[np.uint8]:
    """Some frames of a camera; `checksums` goes on with them."""
    name, column = IMAGES + camera, _pictures(file, camera)
    shape, dtype = tuple(column.get_shape()), column.get_dtype()
    if dtype != "U8" or len(shape) != 4 or shape[0] != length or shape[3] != 3 or 0 in shape:
        raise DataError(f"'{name}' is {dtype} {list(shape)}; expected U8 [{length}, height, width, 3]")
    frames: npt.NDArray[np.uint8] = column[rows]
    before = checksums.get(name, checksum_of_form(name, frames.dtype, shape))
    checksums[name] = zlib.crc32(frames.data, before)
    return frames
