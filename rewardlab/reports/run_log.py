"""The log of a run: TensorBoard, metrics.jsonl with one row per iteration, and a progress bar."""

import json
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

from rewardlab.console import print_line
from rewardlab.data.atomic import replace_file
from rewardlab.errors import DataError

HISTORY = "metrics.jsonl"


class RunLog:
    """Writes the metrics of a run to disk and shows its progress. Without a directory it only shows progress.

    Logging never ends a run: a full disk is reported once, and training goes on without the log.
    """

    def __init__(self, directory: Path | None, *, total: int, console: Console, completed: int = 0) -> None:
        self.directory = directory
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar = self._progress.add_task("", total=total, completed=completed, words="")
        self._tensorboard: SummaryWriter | None = None

    def __enter__(self) -> Self:
        self._try(self._open)
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()
        if self._tensorboard is not None:
            self._try(self._tensorboard.close)

    @property
    def speed(self) -> float:
        """Iterations per second; 0 while it is not known yet."""
        return self._progress.tasks[self._bar].speed or 0.0

    def write(self, iteration: int, figures: Mapping[str, float], words: str) -> None:
        """Log the figures of an iteration and show `words`, its summary, beside the progress bar."""
        known = {name: value for name, value in figures.items() if math.isfinite(value)}
        self._try(lambda: self._append({"iteration": iteration, **known}))
        self.plot(iteration, known)
        self.show(iteration, words)

    def plot(self, iteration: int, figures: Mapping[str, float]) -> None:
        """Log figures to TensorBoard only."""
        for name, value in figures.items():
            if self._tensorboard is not None:
                self._tensorboard.add_scalar(name, value, iteration)

    def show(self, iteration: int, words: str) -> None:
        self._progress.update(self._bar, completed=iteration, words=words)

    def say(self, words: str, *, title: str = "", style: str = "bold") -> None:
        """Print a line above the progress bar."""
        print_line(self._progress.console, words, title=title, style=style)

    def _open(self) -> None:
        assert self.directory is not None
        self.directory.mkdir(parents=True, exist_ok=True)
        self._tensorboard = SummaryWriter(str(self.directory))

    def _append(self, row: Mapping[str, Any]) -> None:
        assert self.directory is not None
        with (self.directory / HISTORY).open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _try(self, write: Callable[[], object]) -> None:
        if self.directory is None:
            return
        try:
            write()
        except OSError as error:
            warnings.warn(
                f"{self.directory}: the log cannot be written ({error.strerror}); training goes on", stacklevel=3
            )
            self.directory = self._tensorboard = None


def read_history(path: str | Path) -> list[dict[str, float]]:
    """Read the rows of metrics.jsonl, one per iteration. A last row that a kill cut off is left out."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise DataError(f"{path}, line {number}: not valid JSON ({error})") from error
        if not isinstance(row, dict) or not {"iteration", "env_steps"} <= set(row):
            raise DataError(f"{path}, line {number}: expected an object with 'iteration' and 'env_steps'")
        rows.append(row)
    return rows


def forget_after(directory: Path, iteration: int) -> None:
    """Drop the rows after an iteration: a resumed run writes them again."""
    path = directory / HISTORY
    if path.exists():
        rows = [row for row in read_history(path) if row["iteration"] <= iteration]
        replace_file(path, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
