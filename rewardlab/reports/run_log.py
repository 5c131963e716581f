"""The log of a run: TensorBoard, metrics.jsonl with one row per iteration, and a progress bar."""

import json
import math
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from rich.console import Console
from torch.utils.tensorboard import SummaryWriter

from rewardlab.console import make_progress, print_line
from rewardlab.errors import StorageError
from rewardlab.reports.history import HISTORY
from rewardlab.reports.wandb_log import Picture, WandbLog

# Columns for workers that died, each with the label of the worker, such as "env_1".
ENV_PROCESS = "env_process"  # label of a process that steps environments for a worker
WORKER_TITLES = {"actor_0": "the learner", ENV_PROCESS: "a process with environments"}
REPLACED = "replaced/"  # how often: each time, the rollout was collected again
WENT_BACK = "went_back/"  # complete iterations that were dropped: the run went back to its last checkpoint


class RunLog:
    """Writes the metrics of a run to disk and shows its progress. Without a directory it only shows progress.

    A full disk is reported once, and rows wait until there is room, but not longer than until the next checkpoint: a
    run that is resumed there would never write them. TensorBoard's files are a second view of the same figures; a run
    goes on without them.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        total: int,
        console: Console,
        completed: int = 0,
        wandb: WandbLog | None = None,
    ) -> None:
        self.directory = directory
        self._wandb = wandb
        self._progress = make_progress(console)
        self._bar = self._progress.add_task("training", total=total, completed=completed, words="")
        self._tensorboard: SummaryWriter | None = None
        self._waiting: list[str] = []  # rows that could not be written yet
        self._warned = False

    def __enter__(self) -> Self:
        self._excepthook, threading.excepthook = threading.excepthook, self._handle_thread_error
        if self.directory is not None:
            with self._optional("TensorBoard's files"):
                self.directory.mkdir(parents=True, exist_ok=True)
                self._tensorboard = SummaryWriter(str(self.directory))
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._progress.stop()
        if self._tensorboard is not None:
            with self._optional("TensorBoard's files"):
                self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.close()
        threading.excepthook = self._excepthook
        if kind is None:
            self.flush()

    @property
    def speed(self) -> float:
        """Iterations per second; 0 while it is not known yet."""
        return self._progress.tasks[self._bar].speed or 0.0

    def write(self, iteration: int, figures: Mapping[str, float], words: str) -> None:
        """Log the figures of an iteration and show `words`, its summary, beside the progress bar."""
        self.plot(iteration, self.record(iteration, figures))
        self.show(iteration, words)

    def record(self, iteration: int, figures: Mapping[str, float]) -> dict[str, float]:
        """Add a row to metrics.jsonl only; returns the figures in it, without those that are not finite."""
        known = {name: value for name, value in figures.items() if math.isfinite(value)}
        if self.directory is not None:
            self._waiting.append(json.dumps({"iteration": iteration, **known}) + "\n")
            with self._optional("the metrics of some iterations"):
                self._append()
        return known

    def flush(self) -> None:
        """Raise a StorageError if rows still wait that cannot be written: to be called before a checkpoint is saved."""
        if self._waiting:
            assert self.directory is not None
            try:
                self._append()
            except OSError as error:
                raise StorageError(
                    f"could not write {self.directory / HISTORY}: {error.strerror or error}; its last "
                    f"{len(self._waiting)} rows are missing"
                ) from error

    def plot(self, iteration: int, figures: Mapping[str, float]) -> None:
        """Log figures to TensorBoard and Weights & Biases only."""
        if self._wandb is not None:
            self._wandb.plot(iteration, figures)
        if self._tensorboard is not None:
            try:
                for name, value in figures.items():
                    self._tensorboard.add_scalar(name, value, iteration)
            except OSError as error:
                self._tensorboard = None
                self._warn("TensorBoard's files", error)

    def show_pictures(self, iteration: int, pictures: Mapping[str, Picture]) -> None:
        """Show pictures [H, W, 3] in TensorBoard and Weights & Biases."""
        if self._wandb is not None and pictures:
            self._wandb.show(iteration, pictures)
        if self._tensorboard is not None:
            try:
                for name, picture in pictures.items():
                    self._tensorboard.add_image(name, picture, iteration, dataformats="HWC")
            except OSError as error:
                self._tensorboard = None
                self._warn("TensorBoard's files", error)

    def show(self, iteration: int, words: str) -> None:
        self._progress.update(self._bar, completed=iteration, words=words)

    def say(self, words: str, *, title: str = "", style: str = "bold") -> None:
        """Print a line above the progress bar."""
        print_line(self._progress.console, words, title=title, style=style)

    def _append(self) -> None:
        """Write the rows that wait, all of them or none."""
        assert self.directory is not None
        path = self.directory / HISTORY
        size = path.stat().st_size if path.exists() else 0
        try:
            with path.open("ab") as file:
                file.write("".join(self._waiting).encode())
        except OSError:
            with suppress(OSError):  # half a row would make the next one unreadable
                os.truncate(path, size)
            raise
        self._waiting = []

    def _handle_thread_error(self, error: threading.ExceptHookArgs) -> None:
        """Print no traceback of a full disk in TensorBoard's own thread: its writer raises the error again later."""
        is_tensorboards = type(error.thread).__module__.startswith("tensorboard.")
        if not (is_tensorboards and isinstance(error.exc_value, OSError)):
            self._excepthook(error)

    @contextmanager
    def _optional(self, what: str) -> Iterator[None]:
        """Go on after an OSError, with a warning that `what` is not written."""
        try:
            yield
        except OSError as error:
            self._warn(what, error)

    def _warn(self, what: str, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            reason = error.strerror or error
            warnings.warn(f"{self.directory}: {what} cannot be written ({reason}); training goes on", stacklevel=4)


def plot_scalars(
    directory: Path, step: int, figures: Mapping[str, float], pictures: Mapping[str, Picture] | None = None
) -> None:
    """Log figures and pictures of a run that has ended to TensorBoard."""
    try:
        with SummaryWriter(str(directory)) as writer:
            for name, value in figures.items():
                writer.add_scalar(name, value, step)
            for name, picture in (pictures or {}).items():
                writer.add_image(name, picture, step, dataformats="HWC")
    except OSError as error:
        warnings.warn(f"{directory}: figures cannot be written for TensorBoard ({error.strerror})", stacklevel=2)


def describe_replacements(row: Mapping[str, float]) -> list[str]:
    """Say which workers died before or in an iteration, and what was made again because of that."""
    number, sentences = int(row["iteration"]), []
    for name, value in row.items():
        component, _, index = name.rpartition("/")[2].partition("_")
        worker = WORKER_TITLES.get(name.rpartition("/")[2], f"{component} worker {index}")
        if name.startswith(REPLACED):
            times = "" if value == 1 else f" {value:.0f} times"
            sentences.append(f"iteration {number}: {worker} was replaced{times}; its rollout was made again")
        elif name.startswith(WENT_BACK):
            where = "its beginning" if number == 1 else f"the checkpoint of iteration {number - 1}"
            last = number + int(value) - 1
            dropped = f"iteration {number} was" if last == number else f"iterations {number} to {last} were"
            again = f"; {dropped} made again" if value else ""
            sentences.append(f"iteration {number}: {worker} was replaced and the run went back to {where}{again}")
    return sentences
