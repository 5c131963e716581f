"""Videos, by PyAV (the extra `rewardlab[import]`): frames with their times, one in memory at a time.

A file gets to the demuxer that its first bytes name and to no other: FFmpeg has some that open further files, or
addresses in a network, that a playlist names.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from rewardlab.data.packages import need
from rewardlab.errors import DataError
from rewardlab.input_files import check_is_file, open_file
from rewardlab.limits import check_pixels, excerpt

if TYPE_CHECKING:
    import av

Frame = npt.NDArray[np.uint8]

VIDEO_SUFFIXES = (".mp4", ".mkv", ".avi", ".webm", ".mov", ".m4v", ".mpg", ".mpeg", ".ts", ".ogv")
_HEAD = 12  # bytes in which the kind of a file shows
_SLACK = 1.0  # seconds by which the header of a whole video may be wrong about its length


def video_format(path: Path) -> str | None:
    """Return FFmpeg's name for the kind of a video file, by its first bytes; None if it is no video."""
    try:
        with open_file(path) as file:
            head = file.read(_HEAD)
    except (OSError, DataError):
        return None
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        return "mov"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    kinds = {b"\x1a\x45\xdf\xa3": "matroska", b"OggS": "ogg", b"\x00\x00\x01\xba": "mpeg", b"FLV\x01": "flv"}
    return kinds.get(head[:4], "mpegts" if head[:1] == b"\x47" and path.suffix.lower() == ".ts" else None)


def is_video(path: Path) -> bool:
    """Whether a file is a video, or is called like one."""
    return path.suffix.lower() in VIDEO_SUFFIXES or video_format(path) is not None


@dataclass(frozen=True)
class VideoFacts:
    """What the header of a video says."""

    size: tuple[int, int]  # height and width of its frames as they are shown
    rate: float  # frames a second
    duration: float  # in seconds


class TimedFrame(NamedTuple):
    """A frame that is not yet converted to RGB, and its time from the beginning of the video in seconds."""

    time: float
    frame: "av.VideoFrame"
    convert: Callable[..., "av.VideoFrame"]  # of all frames of the video: a new one for each costs a quarter more

    @property
    def size(self) -> tuple[int, int]:
        return _shown_size(self.frame.height, self.frame.width, self.frame.rotation)

    def pixels(self) -> Frame:
        """Return the frame as it is shown, uint8 [H, W, 3]."""
        pixels = cast(Frame, self.convert(self.frame, format="rgb24").to_ndarray())
        turns = round(self.frame.rotation / 90) % 4  # telephones write frames as the chip sees them
        return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels


class BrokenVideo(DataError):
    """A video that cannot be read further; the frames before are fine."""


def read_facts(path: Path) -> VideoFacts:
    """Read the header of a video, and its first frame; a DataError says why it cannot be imported."""
    first = next(read_frames(path), None)
    if first is None:
        raise DataError(f"{path} is a video without frames")
    with opened_video(path) as (container, stream):
        rate = _rate(stream)
        duration = _duration(container, stream)
        if duration is None:
            duration = _last_time(path, container, stream) + 1 / rate
    return VideoFacts(first.size, rate, duration)


def read_frames(path: Path, start: float = 0.0) -> Iterator[TimedFrame]:
    """Yield the frames from `start` (in seconds) on; a BrokenVideo ends those of a file that is cut short or damaged.

    Frames that the decoder calls damaged are left out.
    """
    if start > 0:
        with opened_video(path) as (container, stream):
            if _seek(container, stream, start):
                frames = _decoded(path, container, stream)
                first = next(frames, None)
                if first is not None and first.time <= start:
                    yield from (timed for timed in chain([first], frames) if timed.time >= start)
                    return
    with opened_video(path) as (container, stream):
        yield from (timed for timed in _decoded(path, container, stream) if timed.time >= start)


def ends_early(facts: VideoFacts, last: float) -> bool:
    """Whether a video whose last frame is at this time (in seconds) is shorter than its header says."""
    return facts.duration - last > max(_SLACK, 2 / facts.rate)


def _seek(container: Any, stream: Any, start: float) -> bool:
    """Go to the last key frame before a time, if the file can do that."""
    import av

    try:
        container.seek(int((start + _origin(stream)) / stream.time_base), stream=stream)
    except av.FFmpegError:
        return False
    return True


def _decoded(path: Path, container: Any, stream: Any) -> Iterator[TimedFrame]:
    import av
    from av.video.reformatter import VideoReformatter

    origin, number, time, convert = _origin(stream), 0, 0.0, VideoReformatter().reformat
    try:
        for frame in container.decode(stream):
            known = frame.pts is not None
            time = float(frame.pts * stream.time_base) - origin if known else number / _rate(stream)
            number += 1
            if not frame.is_corrupt:
                yield TimedFrame(time, frame, convert)
    except av.FFmpegError as error:
        raise BrokenVideo(f"{path} cannot be read behind {time:.1f} s ({excerpt(error.strerror)})") from error


@contextmanager
def opened_video(path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield the open container of a video and its first stream of pictures."""
    av = need("av", f"{path}: reading a video")
    kind = video_format(path)
    if kind is None:
        empty = check_is_file(path) == 0
        raise DataError(f"{path} is {'empty' if empty else 'damaged or not a video that can be read (MP4, MKV, AVI)'}")
    try:
        container = av.open(
            f"file:{path.absolute()}", format=kind, options={"protocol_whitelist": "file"}, metadata_errors="replace"
        )
    except av.FFmpegError as error:
        advice = "; a recording that was not finished cannot be read" if kind == "mov" else ""
        raise DataError(f"{path} is damaged or not a video ({excerpt(error.strerror)}{advice})") from error
    with container:
        if not container.streams.video:
            found = ", ".join(one.type for one in container.streams) or "nothing"
            raise DataError(f"{path} has no pictures; found {found} in it")
        stream = container.streams.video[0]
        if stream.codec_context is None:
            raise DataError(f"{path} is damaged, or no decoder for its pictures is known")
        check_pixels(stream.codec_context.height, stream.codec_context.width, path)
        stream.thread_type = "AUTO"
        yield container, stream


def _rate(stream: Any) -> float:
    """Return the frames a second; the least that a file can say if it says nothing sensible."""
    return max(float(stream.average_rate or stream.guessed_rate or 0), 0.01)


def _origin(stream: Any) -> float:
    return float((stream.start_time or 0) * stream.time_base)


def _duration(container: Any, stream: Any) -> float | None:
    if stream.duration:
        return float(stream.duration * stream.time_base)
    return container.duration / 1e6 if container.duration else None


def _last_time(path: Path, container: Any, stream: Any) -> float:
    """Return the time of the last frame without decoding any."""
    import av

    last = 0
    try:
        for packet in container.demux(stream):
            last = max(last, packet.pts or 0)
    except av.FFmpegError as error:
        if not last:
            raise DataError(f"{path} is damaged ({excerpt(error.strerror)})") from error
    return float(last * stream.time_base) - _origin(stream)


def _shown_size(height: int, width: int, rotation: int) -> tuple[int, int]:
    return (width, height) if round(rotation / 90) % 2 else (height, width)
