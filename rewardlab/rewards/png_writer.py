"""Writes PNG files from a thread, so that the caller does not wait for the disk."""

import threading
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewardlab.data.images import to_uint8_hwc, write_png


class PngWriter:
    """Writes PNG files from a thread; drops images that come faster than the disk can write them.

    The thread ends when nothing is left to write, so that writers need not be closed. Never raises an error: after the
    first failure it warns that `what` is no longer written, and stops.
    """

    def __init__(self, what: str, backlog: int = 256) -> None:
        self.what = what
        self.backlog = backlog
        self.broken = False
        self._waiting: deque[tuple[Path, npt.NDArray[np.uint8], int | None]] = deque()
        self._thread: threading.Thread | None = None  # while there is something to write
        self._lock = threading.Lock()  # of the two above

    def add(self, target: Path, image: Any, newest: int | None = None) -> bool:
        """Queue an image, [H, W, 3] or [3, H, W]; return False if it is dropped.

        With `newest`, the directory keeps only that many files: those whose names sort last.
        """
        if self.broken or len(self._waiting) >= self.backlog:
            return False
        try:
            # A copy: the caller may write the next frame into the same memory.
            pixels = np.array(to_uint8_hwc(image, target.name))
            with self._lock:
                self._waiting.append((target, pixels, newest))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="png-writer")
                    self._thread.start()
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
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                job = self._waiting.popleft()
            if not self.broken:
                self._write(*job)

    def _write(self, target: Path, pixels: npt.NDArray[np.uint8], newest: int | None) -> None:
        try:
            write_png(target, pixels)
            for old in sorted(target.parent.glob("*.png"))[: -newest if newest else 0]:
                old.unlink(missing_ok=True)
        except Exception as error:  # for example a full disk, or a directory without write permission
            self.give_up(error)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the thread and its queue: copies of workers are sent to other processes."""
        return {"what": self.what, "backlog": self.backlog, "broken": self.broken}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["what"], state["backlog"])  # type: ignore[misc]
        self.broken = state["broken"]
