"""What a run says of itself: TensorBoard, a line of metrics.jsonl an iteration, and one line on the screen."""

import json
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

HISTORY = "metrics.jsonl"


class RunLog:
    """Logging must not end a run: a disk that is full is reported once, and training goes on without the log."""

    def __init__(self, directory: Path, *, total: int, console: Console, label: str = "training") -> None:
        self.directory = directory
        self._label = label
        self._lost = False
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar = self._progress.add_task(label, total=total, words="")
        self._tensorboard: SummaryWriter | None = None

    def __enter__(self) -> Self:
        self._try(self._open)
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()
        if self._tensorboard is not None:
            self._try(self._tensorboard.close)

    @property
    def tensorboard(self) -> SummaryWriter | None:
        return self._tensorboard

    def write(self, iteration: int, figures: Mapping[str, float], words: str) -> None:
        """The figures of an iteration; `words` are its summary on the screen."""
        row = {"iteration": iteration, **{name: value for name, value in figures.items() if math.isfinite(value)}}
        self._try(lambda: self._append(row))
        for name, value in row.items():
            if self._tensorboard is not None and name != "iteration":
                self._tensorboard.add_scalar(name, value, iteration)
        self._progress.update(self._bar, completed=iteration, words=words)

    def say(self, words: str) -> None:
        """A line above the progress bar."""
        self._progress.console.print(words, highlight=False, soft_wrap=True)

    def _open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._tensorboard = SummaryWriter(str(self.directory))

    def _append(self, row: Mapping[str, Any]) -> None:
        with (self.directory / HISTORY).open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _try(self, write: Callable[[], object]) -> None:
        if self._lost:
            return
        try:
            write()
        except OSError as error:
            self._lost = True
            self._tensorboard = None
            warnings.warn(
                f"{self.directory}: the log cannot be written ({error.strerror}); training goes on", stacklevel=3
            )


def forget_after(directory: Path, iteration: int) -> None:
    """Drop the rows after an iteration: a resumed run writes them again."""
    path = directory / HISTORY
    if path.exists():
        rows = [line for line in path.read_text().splitlines() if _iteration(line) <= iteration]
        path.write_text("".join(f"{line}\n" for line in rows))


def _iteration(line: str) -> float:
    try:
        return float(json.loads(line)["iteration"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line that a kill cut off
