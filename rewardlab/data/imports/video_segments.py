"""Pictures of a part of a video, at given times. Parts that follow one another are decoded in one go."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewardlab.data.imports.lerobot_episodes import VideoSegment
from rewardlab.data.imports.picture_size import PictureSize, Size
from rewardlab.data.packages import need
from rewardlab.data.video import opened_video
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_sizes import resize_picture
from rewardlab.limits import excerpt

Frames = npt.NDArray[np.uint8]
_NEAR = 8  # frames that are faster decoded than jumped over


class VideoReader:
    """Reads the pictures of one camera; keeps the last video open."""

    def __init__(self, fps: float, size: PictureSize) -> None:
        self._half = 0.5 / fps
        self._size = size
        self._av = need("av", "importing videos")
        self._opened = ExitStack()
        self._path: Path | None = None
        self._container: Any = None
        self._stream: Any = None
        self._decoded: Iterator[Any] = iter(())
        self._after = -1.0  # the time of the last decoded frame
        self._to_rgb = (
            self._av.video.reformatter.VideoReformatter()
        )  # one for all frames: setting one up takes longer than using it

    def recorded_size(self, path: Path) -> Size:
        """Return height and width of the frames of a video."""
        self._open(path)
        return int(self._stream.height), int(self._stream.width)

    def count(self, segment: VideoSegment) -> int | None:
        """Return the number of frames that the container states for a part; None if it does not."""
        self._open(segment.path)
        if segment.stop is not None:
            return round((segment.stop - segment.start) / (2 * self._half))
        return int(self._stream.frames) or None

    def read(self, segment: VideoSegment, times: npt.NDArray[np.float64]) -> Frames:
        """Return the pictures at rising times since the start of the part, [times, height, width, 3]."""
        try:
            recorded = self.recorded_size(segment.path)
            self._seek(segment.start + float(times[0]))
            return self._collect(segment, times, recorded)
        except (DataError, ConfigError):
            raise
        except (self._av.FFmpegError, OSError, ValueError, EOFError) as error:
            self.close()
            raise DataError(f"{segment.path} is damaged ({excerpt(error)})") from error

    def close(self) -> None:
        self._opened.close()
        self._path, self._container, self._decoded = None, None, iter(())

    def _collect(self, segment: VideoSegment, times: npt.NDArray[np.float64], recorded: Size) -> Frames:
        height, width = self._size.of(recorded)
        frames = np.empty((len(times), height, width, 3), np.uint8)
        taken = 0
        for frame in self._decoded:
            if frame.is_corrupt:
                continue
            if frame.time is None:
                raise DataError(f"{segment.path} has pictures without a time")
            self._after = frame.time
            late = frame.time - (segment.start + times[taken])
            if late < -self._half:  # before the part, or between two times
                continue
            if late > self._half:
                break
            frames[taken] = self._picture(frame, recorded, segment.path, (height, width))
            taken += 1
            if taken == len(times):
                return frames
        at = segment.start + float(times[taken])
        raise DataError(
            f"{segment.path} has no picture at {at:.3f} s, for row {taken} of {len(times)}: the video and the rows do "
            "not belong together, or it is cut short"
        )

    def _picture(self, frame: Any, recorded: Size, path: Path, size: Size) -> npt.NDArray[np.uint8]:
        if (frame.height, frame.width) != recorded:
            raise DataError(
                f"{path}: the pictures change from {recorded[0]}x{recorded[1]} to {frame.height}x{frame.width} at "
                f"{frame.time:.3f} s"
            )
        plane = self._to_rgb.reformat(frame, format="rgb24", threads=1).planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: recorded[0], : 3 * recorded[1]]
        return resize_picture(rows.reshape(*recorded, 3), size)

    def _open(self, path: Path) -> None:
        if self._path == path:
            return
        self.close()
        try:
            self._container, self._stream = self._opened.enter_context(opened_video(path))
        except FileNotFoundError:
            raise DataError(f"{path} does not exist") from None
        self._path = path
        self._decoded, self._after = self._container.decode(self._stream), -1.0

    def _seek(self, start: float) -> None:
        """Go to a time, unless the next frame is the one at it or shortly before it."""
        following = 0.0 if self._after < 0 else self._after + 2 * self._half
        if -self._half < start - following < _NEAR * 2 * self._half:
            return
        stream = self._stream
        self._container.seek(max(int((start - self._half) / stream.time_base), 0), stream=stream, backward=True)
        self._decoded, self._after = self._container.decode(stream), start
