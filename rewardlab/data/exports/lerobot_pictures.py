"""The pictures of a LeRobotDataset: PNG files inside its parquet files, or videos."""

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

from PIL import Image

from rewardlab.data.episodes import Array
from rewardlab.data.lerobot_layout import VIDEO_PATH
from rewardlab.data.packages import need
from rewardlab.errors import DataError

MAX_VIDEO_BYTES = 200 * 2**20  # a file
CODEC, PIXELS, KEYFRAMES, QUALITY = "libx264", "yuv420p", 2, 18


def encode_png(frame: Array, row: int) -> dict[str, Any]:
    """Return the cell of a picture, as `datasets` stores one."""
    encoded = io.BytesIO()
    Image.fromarray(frame).save(encoded, "png")
    return {"bytes": encoded.getvalue(), "path": f"frame-{row:06d}.png"}


class VideoWriter:
    """The pictures of one camera, episode after episode, in as few videos as their size allows."""

    def __init__(self, root: Path, key: str, fps: int, files_per_chunk: int) -> None:
        self._root, self._key, self._fps, self._per_chunk = root, key, fps, files_per_chunk
        self._av = need("av", "writing videos")
        self._file = -1
        self._path = root
        self._container: Any = None
        self._stream: Any = None
        self._frames = 0  # in the open video

    def write(self, frames: Array) -> dict[str, Any]:
        """Write the pictures of an episode, and return what its metadata say of them."""
        if self._container is None or self._path.stat().st_size >= MAX_VIDEO_BYTES:
            self._open(*frames.shape[1:3])
        first = self._frames
        for frame in frames:
            picture = self._av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts, picture.time_base = self._frames, Fraction(1, self._fps)
            self._container.mux(self._stream.encode(picture))
            self._frames += 1
        return {
            f"videos/{self._key}/chunk_index": self._file // self._per_chunk,
            f"videos/{self._key}/file_index": self._file % self._per_chunk,
            f"videos/{self._key}/from_timestamp": first / self._fps,
            f"videos/{self._key}/to_timestamp": self._frames / self._fps,
        }

    def close(self) -> None:
        if self._container is not None:
            self._container.mux(self._stream.encode())
            self._container.close()
        self._container = None

    def describe(self, height: int, width: int) -> dict[str, Any]:
        """Return the `info` of the feature."""
        values = {"height": height, "width": width, "codec": "h264", "pix_fmt": PIXELS, "fps": self._fps}
        values |= {"channels": 3, "g": KEYFRAMES, "crf": QUALITY}
        return {f"video.{name}": value for name, value in values.items()} | {"has_audio": False, "is_depth_map": False}

    def _open(self, height: int, width: int) -> None:
        if height % 2 or width % 2:
            raise DataError(
                f"{self._key}: pictures of {height}x{width}; videos need even sides. Write pictures instead, without "
                "--video"
            )
        self.close()
        self._file, self._frames = self._file + 1, 0
        place = {"chunk_index": self._file // self._per_chunk, "file_index": self._file % self._per_chunk}
        self._path = self._root / VIDEO_PATH.format(video_key=self._key, **place)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._container = self._av.open(str(self._path), "w")
        options = {"g": str(KEYFRAMES), "crf": str(QUALITY)}
        self._stream = self._container.add_stream(CODEC, rate=self._fps, options=options)
        self._stream.pix_fmt, self._stream.height, self._stream.width = PIXELS, height, width
        self._stream.codec_context.time_base = Fraction(1, self._fps)
