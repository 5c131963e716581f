import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))  # the modules that make recordings

Frame = npt.NDArray[np.uint8]


def numbered(number: int, size: tuple[int, int] = (48, 64)) -> Frame:
    """Return a frame with eight stripes, dark or bright as the bits of its number: a codec does not change them."""
    bits = np.unpackbits(np.array([number], np.uint8))
    return np.broadcast_to(np.repeat(bits * 200 + 20, size[1] // 8)[None, :, None], (*size, 3)).astype(np.uint8)


@pytest.fixture
def write_pictures() -> Callable[..., Path]:
    """Writes pictures of random noise under the given names."""

    def write(directory: Path, names: Sequence[str], size: tuple[int, int] = (12, 16)) -> Path:
        rng = np.random.default_rng(len(names))
        for name in names:
            file = directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (*size, 3), dtype=np.uint8)).save(file)
        return directory

    return write


@pytest.fixture
def write_video() -> Callable[..., Path]:
    """Writes a video at 10 frames a second, of which every frame tells its number."""
    av = pytest.importorskip("av")

    def write(path: Path, frames: int, size: tuple[int, int] = (48, 64), codec: str = "libx264") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w") as container:
            options = {"preset": "ultrafast"} if codec == "libx264" else {}
            stream = container.add_stream(codec, rate=10, options=options)
            stream.thread_count = 1
            stream.height, stream.width = size
            stream.pix_fmt, stream.gop_size = "yuvj420p" if codec == "mjpeg" else "yuv420p", 10
            for number in range(frames):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(numbered(number, size), format="rgb24")))
            container.mux(stream.encode())
        return path

    return write
