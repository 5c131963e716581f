"""PNG files written by a thread, so that whoever has a picture to keep does not wait for the disk."""

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
    """Drops pictures that come faster than the disk takes them.

    Never raises into its caller: the first failure is a warning that says what ends (`what`), and nothing is written
    after it.
    """

    def __init__(self, what: str, backlog: int = 256) -> None:
        self.what = what
        self.broken = False
        self._room = threading.Semaphore(backlog)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="png-writer")  # starts with the first picture

    def add(self, target: Path, image: Any, newest: int | None = None) -> bool:
        """Queue one picture, [H, W, 3] or [3, H, W]; false if it is dropped.

        With `newest`, the folder keeps only so many: those whose names sort last.
        """
        if self.broken or not self._room.acquire(blocking=False):
            return False
        try:
            # A copy: the caller may fill the same memory with the next frame.
            pixels = np.array(to_uint8_hwc(image, target.name))
            self._thread.submit(self._write, target, pixels, newest)
        except Exception as error:  # whatever it is, the caller goes on
            self.give_up(error)
        return not self.broken

    def give_up(self, error: Exception) -> None:
        if not self.broken:
            self.broken = True
            warnings.warn(f"{self.what} stop here: {error}", stacklevel=2)

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
        except Exception as error:  # a full disk, a directory without permission
            with contextlib.suppress(OSError):
                target.unlink(missing_ok=True)
            self.give_up(error)
        finally:
            self._room.release()
