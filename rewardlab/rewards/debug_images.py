"""Scored frames as PNG files, to look at what the classifier calls a success."""

import contextlib
import os
import queue
import re
import threading
import warnings
import weakref
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from rewardlab.models.images import ImageArray, to_unit_floats

SUCCESS, FAIL = "resnet_success", "resnet_fail"
_NAME = re.compile(r"^(\d{6,})_prob[0-9.]+\.png$")


def debug_directory(debug_save_dir: str | None) -> Path | None:
    """Where debug images go: what the config says, else $DEBUG_IMAGE_SAVE_DIR, else nowhere."""
    chosen = debug_save_dir or os.environ.get("DEBUG_IMAGE_SAVE_DIR")
    return Path(chosen) if chosen else None


class DebugImageWriter:
    """Writes `resnet_success/` and `resnet_fail/{id:06d}_prob{p:.4f}.png` from a thread of its own.

    At most `limit` images a folder, counting those of earlier runs; frames that come faster than the disk takes them
    are dropped. Never raises into scoring: the first failure is a warning, and the last thing it writes.
    """

    def __init__(self, directory: str | Path, limit: int = 1000, backlog: int = 256) -> None:
        self.directory = Path(directory)
        self.limit = limit
        self._jobs: queue.Queue[tuple[str, np.ndarray, float] | None] = queue.Queue(backlog)
        self._taken: dict[str, int] | None = None  # images a folder has or is about to have
        self._thread: threading.Thread | None = None
        self._broken = threading.Event()

    def add(self, images: ImageArray, probabilities: Tensor, threshold: float) -> None:
        """Queue the frames [B, ...] of one camera; returns at once."""
        if self._broken.is_set():
            return
        try:
            self._start()
            for index, probability in enumerate(probabilities.tolist()):
                folder = SUCCESS if probability > threshold else FAIL
                if self._taken is not None and self._taken[folder] < self.limit:
                    pixels = to_unit_floats(images[index : index + 1], "debug")[0]
                    frame = (pixels.permute(1, 2, 0) * 255).round().byte().cpu().numpy()
                    self._jobs.put_nowait((folder, frame, probability))
                    self._taken[folder] += 1
        except queue.Full:
            pass
        except Exception as error:  # whatever it is, scoring goes on
            self._give_up(error)

    def flush(self) -> None:
        """Wait until everything queued is written."""
        if self._thread is not None and self._thread.is_alive():
            self._jobs.join()

    def _start(self) -> None:
        if self._thread is not None:
            return
        numbers = {folder: _numbers(self.directory / folder) for folder in (SUCCESS, FAIL)}
        self._taken = {folder: len(found) for folder, found in numbers.items()}
        first = max((number for found in numbers.values() for number in found), default=-1) + 1
        self._thread = threading.Thread(target=self._write, args=(first,), daemon=True, name="debug-images")
        self._thread.start()
        # A daemon dies with the program: let it finish what is queued.
        weakref.finalize(self, _finish, self._jobs, self._thread)

    def _write(self, number: int) -> None:
        while (job := self._jobs.get()) is not None:
            folder, frame, probability = job
            try:
                if not self._broken.is_set():
                    target = self.directory / folder / f"{number:06d}_prob{probability:.4f}.png"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(frame).save(target)
                    number += 1
            except Exception as error:  # a full disk, a directory without permission
                with contextlib.suppress(OSError):
                    target.unlink(missing_ok=True)
                self._give_up(error)
            finally:
                self._jobs.task_done()

    def _give_up(self, error: Exception) -> None:
        if not self._broken.is_set():
            self._broken.set()
            warnings.warn(f"debug images in {self.directory} stop here: {error}", stacklevel=2)


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(match.group(1)) for file in folder.iterdir() if (match := _NAME.match(file.name))]


def _finish(jobs: "queue.Queue[tuple[str, np.ndarray, float] | None]", thread: threading.Thread) -> None:
    with contextlib.suppress(queue.Full):
        jobs.put(None, timeout=5)
        thread.join(timeout=5)
