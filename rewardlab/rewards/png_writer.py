"""Writes PNG files from a thread, so that the caller does not wait for the disk."""

import contextlib
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from rewardlab.data.images import to_uint8_hwc


class PngWriter:
    """Writes PNG files from its own thread; drops images that come faster than the disk can write them.

    Never raises an error: after the first failure it warns that `what` is no longer written, and stops.
    """

    def __init__(self, what: str, backlog: int = 256) -> None:
        self.what = what
        self.broken = False
        self._room = threading.Semaphore(backlog)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="png-writer")  # started by the first image

    def add(self, target: Path, image: Any, newest: int | None = None) -> bool:
        """Queue an image, [H, W, 3] or [3, H, W]; return False if it is dropped.

        With `newest`, the directory keeps only that many files: those whose names sort last.
        """
        if self.broken or not self._room.acquire(blocking=False):
            return False
        try:
            # A copy: the caller may write the next frame into the same memory.
            pixels = np.array(to_uint8_hwc(image, target.name))
            self._thread.submit(self._write, target, pixels, newest)
        except Exception as error:  # scoring must continue, whatever the error is
            self.give_up(error)
        return not self.broken

    def give_up(self, error: Exception) -> None:
        """Warn about an error and write nothing from now on."""
        if not self.broken:
            self.broken = True
            warnings.warn(f"no more {self.what} are written: {error}", stacklevel=2)

    def flush(self) -> None:
        """Wait until everything queued is written."""
        self._thread.submit(lambda: None).result()

    def _write(self, target: Path, pixels: npt.NDArray[np.uint8], newest: int | None) -> None:
        try:
            if not self.broken:
                target.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(target)
                for old in sorted(target.parent.glob("*.png"))[: -newest if newest else 0]:
                    old.unlink(missing_ok=True)
        except Exception as error:  # for example a full disk, or a directory without write permission
            with contextlib.suppress(OSError):
                target.unlink(missing_ok=True)
            self.give_up(error)
        finally:
            self._room.release()
