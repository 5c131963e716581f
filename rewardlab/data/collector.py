"""Collects episodes of parallel environments: a buffer for each, targets per outcome, background writing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from rewardlab.data.episodes import UNKNOWN, Array, Columns, Episode, check_finite, check_forms
from rewardlab.data.writer import BackgroundWriter, EpisodeWriter
from rewardlab.errors import DataError
from rewardlab.keys import IMAGES


@dataclass
class OutcomeCount:
    """Number of episodes of one outcome: on disk before, kept now, and ended in all (kept or not)."""

    target: int | None
    on_disk: int = 0
    kept: int = 0
    seen: int = 0

    @property
    def full(self) -> bool:
        return self.target is not None and self.on_disk + self.kept >= self.target


@dataclass
class EpisodeBuffer:
    """The rows of one environment's running episode."""

    task: str
    policy: str
    seed: int | None
    expected_length: int
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # small columns; stacked when the episode ends
    frames: Columns = field(default_factory=dict)  # pictures, one after the other where they will be written from

    def put_frame(self, name: str, frame: Array) -> None:
        """Copy in the frame of the next row."""
        t = len(self.rows)
        frames = self.frames.get(name)
        if frames is None:
            frames = self.frames[name] = np.empty((self.expected_length, *frame.shape), frame.dtype)
        elif t == len(frames):
            frames = self.frames[name] = np.concatenate([frames, np.empty_like(frames)])
        frames[t] = frame

    def build(self, dtypes: dict[str, np.dtype[Any]], success: bool) -> Episode:
        """The finished episode; called in the writer's thread."""
        values = zip(dtypes.items(), zip(*self.rows, strict=True), strict=True)
        columns = {name: np.array(column, dtype=dtype) for (name, dtype), column in values}
        columns |= {name: frames[: len(self.rows)] for name, frames in self.frames.items()}
        return Episode.from_columns(columns, task=self.task, seed=self.seed, policy=self.policy, success=success)


class EpisodeCollector:
    """Collects rows per environment and writes each episode that ends, until both targets are reached.

    Not responsible for knowing when an episode begins or ends: the caller that steps the environments calls `begin`,
    `add` and `end`. Columns are named as in `rewardlab.data.episodes`, one row per environment in `env_ids`. Episodes
    of an outcome whose target is reached are counted, not kept; episodes already on disk count. Unfinished episodes
    are never written.
    """

    def __init__(
        self,
        writer: EpisodeWriter,
        num_envs: int,
        *,
        target_success: int | None = None,
        target_failure: int | None = None,
        max_episodes: int | None = None,
        task: str = UNKNOWN,
        policy: str = UNKNOWN,
    ) -> None:
        self.task = task
        self.policy = policy
        self.seed: int | None = None
        self._longest = 16  # rows of the longest episode so far: memory for as many is reserved for the next
        # Environments with one time limit end together: a queue with a place for each does not block stepping.
        self._background = BackgroundWriter(writer, capacity=max(8, num_envs))
        self._buffers: list[EpisodeBuffer | None] = [None] * num_envs
        self._columns: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        # An equal number from each environment: the first to end would be the short ones, which are mostly successes.
        self._left = None if max_episodes is None else _shares(max_episodes, num_envs)
        self._targets = {"success": target_success, "failure": target_failure}

    @cached_property
    def counts(self) -> dict[str, OutcomeCount]:
        """Counts under "success" and "failure"; the first use reads what is on disk."""
        on_disk = self._background.writer.count
        return {name: OutcomeCount(target, on_disk(name == "success")) for name, target in self._targets.items()}

    @property
    def full(self) -> bool:
        """Whether nothing more will be kept, so that nothing more need be rendered."""
        spent = self._left is not None and not any(self._left)
        return spent or all(count.full for count in self.counts.values())

    def running(self) -> Array:
        """Return which environments have an unfinished episode."""
        return np.array([buffer is not None for buffer in self._buffers])

    def begin(self, env_ids: Sequence[int], columns: Columns) -> None:
        """Begin a new episode in each environment with its reset frame; an unfinished one there is dropped."""
        for env in env_ids:
            self._buffers[env] = EpisodeBuffer(self.task, self.policy, self.seed, self._longest)
        self.add(env_ids, columns)

    def add(self, env_ids: Sequence[int], columns: Columns) -> None:
        """Add the arrival at one more frame in each environment."""
        if len(env_ids) == 0:
            return
        self._check(env_ids, columns)
        columns = {name: columns[name] for name in self._columns}  # rows go by position
        # Rows are copied: environments reuse their arrays, and a view would keep the whole batch in memory.
        pictures = {name: column for name, column in columns.items() if name.startswith(IMAGES)}
        numbers = [
            column.tolist() if column.ndim == 1 else [row.copy() for row in column]
            for name, column in columns.items()
            if name not in pictures
        ]
        for index, (env, row) in enumerate(zip(env_ids, zip(*numbers, strict=True), strict=True)):
            buffer = self._buffers[env]
            if buffer is None:
                raise DataError(f"env {env}: a step arrived, but no episode was begun; reset the environment first")
            for name, frames in pictures.items():
                buffer.put_frame(name, frames[index])
            buffer.rows.append(row)

    def end(self, env_ids: Iterable[int], success: Array | None = None) -> None:
        """End the episodes; `success[env]` marks one a success even if no frame was.

        Blocks while the queue of the writer is full.
        """
        dtypes = {name: dtype for name, (dtype, _) in self._columns.items() if not name.startswith(IMAGES)}
        label = list(dtypes).index("success") if dtypes else 0
        failure: DataError | None = None
        ended = []
        for env in env_ids:  # all of them first: an error below must not leave an ended episode unfinished
            ended.append((env, self._buffers[env]))
            self._buffers[env] = None
        for env, buffer in ended:
            if buffer is None or not buffer.rows:
                continue
            self._longest = max(self._longest, len(buffer.rows))
            if self._left is not None:
                if self._left[env] == 0:
                    continue
                self._left[env] -= 1
            told = success is not None and bool(success[env])
            succeeded = told or any(row[label] for row in buffer.rows)
            count = self.counts["success" if succeeded else "failure"]
            count.seen += 1
            if not count.full:
                count.kept += 1
                try:
                    self._background.submit(partial(buffer.build, dtypes, told))
                except DataError as error:  # of an earlier episode; the others of this step are still queued
                    failure = failure or error
        if failure is not None:
            raise failure

    def flush(self) -> None:
        """Wait until every ended episode is on disk."""
        self._background.flush()

    def close(self) -> None:
        """Finish writing. Episodes still running are dropped."""
        self._buffers = [None] * len(self._buffers)
        self._background.close()

    def _check(self, env_ids: Sequence[int], columns: Columns) -> None:
        def locate(row: int) -> str:
            buffer = self._buffers[env_ids[row]]
            return f"env {env_ids[row]}, step {0 if buffer is None else len(buffer.rows)}"

        try:
            check_forms(columns)
        except DataError as error:
            raise DataError(f"{locate(0)}: {error}") from None
        check_finite(columns, locate)
        found = {name: (column.dtype, column.shape[1:]) for name, column in columns.items()}
        if not self._columns:
            self._columns = found
        elif found != self._columns:
            name = next(n for n in [*found, *self._columns] if found.get(n) != self._columns.get(n))
            texts = [f"{c[name][0]} {list(c[name][1])}" if name in c else "nothing" for c in (found, self._columns)]
            raise DataError(f"{locate(0)}: '{name}' is {texts[0]}; it was {texts[1]} before")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._background.__exit__(*error)


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]
