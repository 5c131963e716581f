"""PNG files written from a thread, so that whoever has a picture to keep does not wait for the disk."""

import contextlib
import queue
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from rewardlab.data.images import to_uint8_hwc


class _Job(NamedTuple):
    target: Path
    pixels: npt.NDArray[np.uint8]
    newest: int | None


class PngWriter:
    """Pictures that come faster than the disk takes them are dropped.

    Never raises into its caller: the first failure is a warning that says what ends (`what`), and the last thing it
    writes.
    """

    def __init__(self, what: str, backlog: int = 256) -> None:
        self.what = what
        self._jobs: queue.Queue[_Job | None] = queue.Queue(backlog)
        self._thread: threading.Thread | None = None
        self._broken = threading.Event()

    @property
    def broken(self) -> bool:
        return self._broken.is_set()

    def add(self, target: Path, image: Any, newest: int | None = None) -> bool:
        """Queue one picture, [H, W, 3] or [3, H, W]; false if it is dropped.

        With `newest`, the folder keeps only so many: those whose names sort last.
        """
        if self.broken:
            return False
        try:
            if self._jobs.full():
                return False
            self._start()
            # A copy: the caller may fill the same memory with the next frame.
            self._jobs.put_nowait(_Job(target, np.array(to_uint8_hwc(image, target.name)), newest))
        except Exception as error:  # whatever it is, the caller goes on
            self.give_up(error)
            return False
        return True

    def give_up(self, error: Exception) -> None:
        if not self.broken:
            self._broken.set()
            warnings.warn(f"{self.what} stop here: {error}", stacklevel=2)

    def flush(self) -> None:
        """Wait until everything queued is written."""
        if self._thread is not None and self._thread.is_alive():
            self._jobs.join()

    def _start(self) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._write, daemon=True, name="png-writer")
        self._thread.start()
        # A daemon dies with the program: let it finish what is queued.
        weakref.finalize(self, _finish, self._jobs, self._thread)

    def _write(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if not self.broken:
                    job.target.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(job.pixels).save(job.target)
                    if job.newest is not None:
                        _keep_newest(job.target.parent, job.newest)
            except Exception as error:  # a full disk, a directory without permission
                with contextlib.suppress(OSError):
                    job.target.unlink(missing_ok=True)
                self.give_up(error)
            finally:
                self._jobs.task_done()


def _keep_newest(folder: Path, count: int) -> None:
    for old in sorted(folder.glob("*.png"))[:-count]:
        old.unlink(missing_ok=True)


def _finish(jobs: "queue.Queue[_Job | None]", thread: threading.Thread) -> None:
    with contextlib.suppress(queue.Full):
        jobs.put(None, timeout=5)
        thread.join(timeout=5)
