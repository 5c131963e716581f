"""metrics.jsonl of a collection: how many episodes of which outcome there were, and after how many steps."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from rewardlab.reports.history import HISTORY

EVERY = 1.0  # seconds between two rows at least


class CollectionLog:
    """Adds a row when episodes have ended, and one at the end. Episodes matter more: a full disk does not end it."""

    def __init__(self, directory: Path, before: int) -> None:
        """`before` is the number of episodes that the directory has already."""
        self._path, self._before = directory / HISTORY, before
        self._began = self._written = time.monotonic()
        self._row: dict[str, float] = {}
        self._shown = 0  # episodes in the last row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, env_steps: int, success: int, failure: int) -> None:
        """Note the episodes that were kept so far, and the steps of all environments together."""
        self._row = {
            "iteration": self._before + success + failure,
            "env_steps": env_steps,
            "episodes/success": success,
            "episodes/failure": failure,
            "time/seconds": time.monotonic() - self._began,
        }
        if time.monotonic() - self._written >= EVERY:
            self._write()

    def _write(self) -> None:
        if self._row and self._row["iteration"] != self._shown:
            self._shown, self._written = int(self._row["iteration"]), time.monotonic()
            with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._row) + "\n")
