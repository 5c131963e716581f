"""Collects episodes of parallel environments: a buffer for each, targets per outcome, background writing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Self, TypeAlias

import numpy as np

from rewardlab.data.episodes import (
    UNKNOWN,
    Array,
    Columns,
    Episode,
    Identity,
    check_finite,
    check_form,
    check_forms,
)
from rewardlab.data.writer import BackgroundWriter, WritesEpisodes
from rewardlab.errors import DataError
from rewardlab.keys import FRAME_ROWS, IMAGES

Forms: TypeAlias = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]  # of columns: dtype and shape of a row


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
    kept_frames: int | None = None  # keep the last so many pictures; None: all that are put
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # small columns; stacked when the episode ends
    frame_rows: list[int] = field(default_factory=list)  # the rows of all pictures that were put
    frames: Columns = field(default_factory=dict)  # pictures, one after the other where they will be written from

    def put_frames(self, pictures: Iterable[tuple[str, Array]]) -> None:
        """Copy in the pictures of the newest row."""
        place = len(self.frame_rows) % (self.kept_frames or len(self.frame_rows) + 1)
        for name, frame in pictures:
            frames = self.frames.get(name)
            if frames is None:
                length = self.kept_frames or self.expected_length
                frames = self.frames[name] = np.empty((length, *frame.shape), frame.dtype)
            elif place == len(frames):
                frames = self.frames[name] = np.concatenate([frames, np.empty_like(frames)])
            frames[place] = frame
        self.frame_rows.append(len(self.rows) - 1)

    def put_last_frames(self, pictures: Columns) -> None:
        """Take the pictures of the last rows, if some were drawn after the episode had ended."""
        if not pictures:
            return
        count = max(map(len, pictures.values()))
        self.frames = self._frames_in_order() | pictures
        self.frame_rows = list(range(len(self.rows) - count, len(self.rows)))

    def _frames_in_order(self) -> Columns:
        put = len(self.frame_rows)
        if self.kept_frames is None or put <= self.kept_frames:
            return {name: frames[:put] for name, frames in self.frames.items()}
        oldest = put % self.kept_frames  # newer pictures took the places of older ones
        return {name: np.roll(frames, -oldest, axis=0) for name, frames in self.frames.items()}

    def _pictures(self) -> Columns:
        """Return the pictures in the order of their rows, and the rows if some have no picture."""
        columns, rows = self._frames_in_order(), self.frame_rows[-(self.kept_frames or len(self.rows)) :]
        if columns and len(rows) < len(self.rows):
            columns[FRAME_ROWS] = np.array(rows, np.int64)
        return columns

    def build(self, dtypes: dict[str, np.dtype[Any]], success: bool, identity: Identity | None) -> Episode:
        """The finished episode; called in the writer's thread."""
        values = zip(dtypes.items(), zip(*self.rows, strict=True), strict=True)
        columns = {name: np.array(column, dtype=dtype) for (name, dtype), column in values}
        columns |= self._pictures()
        episode = Episode.from_columns(columns, task=self.task, seed=self.seed, policy=self.policy, success=success)
        if identity is None:
            return episode
        return episode.with_origin(*identity)


class EpisodeCollector:
    """Collects rows per environment and writes each episode that ends, until both targets are reached.

    Not responsible for knowing when an episode begins or ends: the caller that steps the environments calls `begin`,
    `add` and `end`. Columns are named as in `rewardlab.data.episodes`, one row per environment in `env_ids`. Episodes
    of an outcome whose target is reached are counted, not kept; episodes already on disk count. Unfinished episodes
    are never written.

    Pictures are columns too. Where not every row has them, they are given apart, by `add_frames` or `end`; of those
    that are given, an episode has the last `kept_frames` (None: all).

    If `run` names the run that collects, episodes carry their identity: the run, the `worker` and a number. With the
    state of `state_dict`, a resumed run goes on counting, and does not write again what it wrote before.
    """

    def __init__(
        self,
        writer: WritesEpisodes,
        num_envs: int,
        *,
        target_success: int | None = None,
        target_failure: int | None = None,
        max_episodes: int | None = None,
        task: str = UNKNOWN,
        policy: str = UNKNOWN,
        kept_frames: int | None = None,
        run: str | None = None,
        worker: int = 0,
    ) -> None:
        self._kept_frames = kept_frames
        self.run = run
        self.worker = worker
        self._number = 0  # of the next episode that ends
        self._counted: set[Identity] = set()  # episodes that are among those counted on disk
        self.task = task
        self.policy = policy
        self.seed: int | None = None
        self._longest = 16  # rows of the longest episode so far: memory for as many is reserved for the next
        # Environments with one time limit end together: a queue with a place for each does not block stepping.
        self._background = BackgroundWriter(writer, capacity=max(8, num_envs))
        self._buffers: list[EpisodeBuffer | None] = [None] * num_envs
        self._columns: Forms = {}
        self._pictures: Forms = {}  # of pictures that are given apart
        # An equal number from each environment: the first to end would be the short ones, which are mostly successes.
        self._shares = None if max_episodes is None else _shares(max_episodes, num_envs)
        self._ended = [0] * num_envs  # episodes of each environment
        self._targets = {"success": target_success, "failure": target_failure}

    @cached_property
    def counts(self) -> dict[str, OutcomeCount]:
        """Counts under "success" and "failure"; the first use reads what is on disk."""
        return {
            name: OutcomeCount(target, self._count_on_disk(name == "success")) for name, target in self._targets.items()
        }

    def _count_on_disk(self, success: bool) -> int:
        """Count what is there already, without what other workers of this run wrote: they count for themselves."""
        writer = self._background.writer
        if self.run is None:
            return writer.count(success)
        of_run = writer.identities(self.run, success)
        own = [identity for identity in of_run if identity[1] == self.worker]
        self._counted |= set(own)
        return writer.count(success) - len(of_run) + len(own)

    @property
    def full(self) -> bool:
        """Whether nothing more will be kept, so that nothing more need be rendered."""
        shares = self._shares
        spent = shares is not None and all(n >= share for n, share in zip(self._ended, shares, strict=True))
        return spent or all(count.full for count in self.counts.values())

    def running(self) -> Array:
        """Return which environments have an unfinished episode."""
        return np.array([buffer is not None for buffer in self._buffers])

    def wanted(self) -> Array:
        """Return which environments' episodes can still be kept; those of others need no pictures."""
        if self._shares is None:
            return np.ones(len(self._buffers), bool)
        return np.array(self._ended) < np.array(self._shares)

    def lengths(self) -> Array:
        """Return the number of rows of each environment's unfinished episode; 0 where there is none."""
        return np.array([0 if buffer is None else len(buffer.rows) for buffer in self._buffers])

    def begin(self, env_ids: Sequence[int], columns: Columns) -> None:
        """Begin a new episode in each environment with its reset frame; an unfinished one there is dropped."""
        for env in env_ids:
            self._buffers[env] = EpisodeBuffer(self.task, self.policy, self.seed, self._longest, self._kept_frames)
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
            buffer.rows.append(row)
            if pictures:
                buffer.put_frames((name, frames[index]) for name, frames in pictures.items())

    def add_frames(self, env_ids: Sequence[int], pictures: Columns) -> None:
        """Add the pictures of the newest row of each environment, if they were not among its columns."""
        if len(env_ids) == 0 or not pictures:
            return
        where = self.locate(env_ids[0], newest=True)
        for name, frames in pictures.items():
            try:
                check_form(name, frames)
            except DataError as error:
                raise DataError(f"{where}: {error}") from None
        self._pictures = _same_forms(pictures, self._pictures, where)
        for index, env in enumerate(env_ids):
            buffer = self._buffers[env]
            assert buffer is not None
            buffer.put_frames((name, frames[index]) for name, frames in pictures.items())

    def end(
        self,
        env_ids: Iterable[int],
        success: Array | None = None,
        last_frames: Callable[[list[int]], Sequence[Columns]] | None = None,
    ) -> None:
        """End the episodes; `success[env]` marks one a success even if no frame was.

        `last_frames` returns pictures of the last rows, for each environment whose episode is kept. Blocks while the
        queue of the writer is full.
        """
        dtypes = {name: dtype for name, (dtype, _) in self._columns.items() if not name.startswith(IMAGES)}
        label = list(dtypes).index("success") if dtypes else 0
        failure: DataError | None = None
        ended, kept = [], []
        for env in env_ids:  # all of them first: an error below must not leave an ended episode unfinished
            ended.append((env, self._buffers[env]))
            self._buffers[env] = None
        for env, buffer in ended:
            if buffer is None or not buffer.rows:
                continue
            self._longest = max(self._longest, len(buffer.rows))
            identity = None if self.run is None else (self.run, self.worker, self._number)
            self._number += 1
            self._ended[env] += 1
            if self._shares is not None and self._ended[env] > self._shares[env]:
                continue
            told = success is not None and bool(success[env])
            succeeded = told or any(row[label] for row in buffer.rows)
            count = self.counts["success" if succeeded else "failure"]
            count.seen += 1
            if not count.full:
                count.kept += 1
                # A run that begins again collects what its first start left on disk: that is counted once.
                count.on_disk -= identity in self._counted
                kept.append((env, buffer, partial(buffer.build, dtypes, told, identity)))
        if last_frames is not None and kept:
            for (_, buffer, _), pictures in zip(kept, last_frames([env for env, _, _ in kept]), strict=True):
                buffer.put_last_frames(pictures)
        for _, _, build in kept:
            try:
                self._background.submit(build)
            except DataError as error:  # of an earlier episode; the others of this step are still queued
                failure = failure or error
        if failure is not None:
            raise failure

    def drop(self, env_ids: Iterable[int]) -> None:
        """Forget the running episodes of these environments; they count for nothing."""
        for env in env_ids:
            self._buffers[env] = None

    def flush(self) -> None:
        """Wait until every ended episode is on disk."""
        self._background.flush()

    def state_dict(self) -> dict[str, Any]:
        """Wait until every ended episode is on disk, and return what a resumed run needs to count on."""
        self.flush()
        counts = {name: [count.on_disk, count.kept, count.seen] for name, count in self.counts.items()}
        return {"run": self.run, "number": self._number, "ended": list(self._ended), "counts": counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting where `state_dict` was called; {"run": name} only names the run."""
        self.run, self._number = state["run"], state.get("number", 0)
        if "counts" in state:
            self.counts = {name: OutcomeCount(self._targets[name], *state["counts"][name]) for name in self._targets}
            self._counted = set()
        if len(state.get("ended", ())) == len(self._ended):
            self._ended = list(state["ended"])

    def close(self) -> None:
        """Finish writing. Episodes still running are dropped."""
        self._buffers = [None] * len(self._buffers)
        self._background.close()

    def locate(self, env: int, *, newest: bool = False) -> str:
        """Say in words which environment and which step of its episode the next row belongs to, or the newest row."""
        buffer = self._buffers[env] if env < len(self._buffers) else None
        name = "" if self.task == UNKNOWN else f"'{self.task}', "
        return f"{name}env {env}, step {0 if buffer is None else len(buffer.rows) - newest}"

    def _check(self, env_ids: Sequence[int], columns: Columns) -> None:
        def locate(row: int) -> str:
            return self.locate(env_ids[row])

        try:
            check_forms(columns)
        except DataError as error:
            raise DataError(f"{locate(0)}: {error}") from None
        check_finite(columns, locate)
        self._columns = _same_forms(columns, self._columns, locate(0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._background.__exit__(*error)


def _same_forms(columns: Columns, known: Forms, where: str) -> Forms:
    """Return the forms of the columns; raise if they are not those that were known before."""
    found = {name: (column.dtype, column.shape[1:]) for name, column in columns.items()}
    if not known or found == known:
        return known or found
    name = next(n for n in [*found, *known] if found.get(n) != known.get(n))
    texts = [f"{c[name][0]} {list(c[name][1])}" if name in c else "nothing" for c in (found, known)]
    raise DataError(f"{where}: '{name}' is {texts[0]}; it was {texts[1]} before")


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]
