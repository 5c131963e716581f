"""The acting side's link to the learner of an asynchronous run: acting never waits for it.

A thread writes transitions to the log on disk, hands them to the learner, and takes its newest policy. It also starts
the learner again where that dies, from the last checkpoint and the log.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewardlab.data.packed_batch import PackedBatch
from rewardlab.data.transition_log import Chunk, TransitionLog
from rewardlab.errors import ProcessLost, StorageError
from rewardlab.workers.async_learner import LearnerState, PolicyVersion
from rewardlab.workers.group import Worker, WorkerDied

EXCHANGE = 0.1  # seconds between two exchanges while nothing is to be sent
LONGEST_END = 300.0  # seconds for what is under way at the end of a run, such as a checkpoint
DEATHS_IN_A_ROW = 3  # of the learner, without an exchange in between, after which the run stops


@dataclass
class Heard:
    """What the acting side knows of the learner."""

    policy: PolicyVersion | None = None  # the newest one, not yet taken
    acting: PolicyVersion | None = None  # the one that acts
    acting_since: float = 0.0
    updates: int = 0
    transitions: int = 0
    demonstrations: int = 0
    figures: dict[str, float] = field(default_factory=dict)  # of the last exchange that made updates
    updates_per_second: float = 0.0
    deaths: list[str] = field(default_factory=list)  # what happened, not yet told


class LearnerLink:
    """Holds the worker of an AsyncLearner."""

    def __init__(
        self, worker: Worker, log: TransitionLog, restore: Callable[[Worker], None], *, restart: bool = True
    ) -> None:
        """`restore` gives a learner that was started again its state and lets it begin; `restart`: start it again."""
        self.worker, self.log = worker, log
        self._restore, self._restart = restore, restart
        self._queue: queue.SimpleQueue[Chunk | Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._heard = Heard()
        self._error: BaseException | None = None
        self._ending = threading.Event()
        self._next_number = 0
        self._unlogged: list[Chunk] = []  # taken from the queue, and not on disk yet
        self._deaths_in_a_row = 0
        self._thread: threading.Thread | None = None

    def begin(self, next_number: int) -> None:
        """Begin to exchange; chunks are numbered from `next_number` on."""
        self._next_number = next_number
        self._thread = threading.Thread(target=self._run, name="learner link", daemon=True)
        self._thread.start()

    def send(self, batch: PackedBatch, env_steps: int) -> None:
        """Send transitions to the learner; returns at once. An error of the link is raised here."""
        self.raise_error()
        self._queue.put(Chunk(self._next_number, batch, env_steps))
        self._next_number += 1

    def take_policy(self) -> PolicyVersion | None:
        """Return a policy that is newer than the one taken last, or None."""
        with self._lock:
            policy, self._heard.policy = self._heard.policy, None
            if policy is not None:
                self._heard.acting, self._heard.acting_since = policy, time.monotonic()
        return policy

    def figures(self) -> dict[str, float]:
        """Return what is known of the learner, to log."""
        with self._lock:
            heard, waiting = self._heard, self._queue.qsize()
            figures = {f"train/{name}": value for name, value in heard.figures.items()}
            figures["async/updates_per_second"] = heard.updates_per_second
            figures["async/replay_size"] = heard.transitions
            figures["async/demonstrations"] = heard.demonstrations
            figures["async/chunks_waiting"] = waiting
            if heard.acting is not None:
                figures["async/staleness_updates"] = max(0, heard.updates - heard.acting.updates)
                figures["async/staleness_seconds"] = time.monotonic() - heard.acting_since
        return figures

    def take_deaths(self) -> list[str]:
        """Return, in words, how the learner died since the last call."""
        with self._lock:
            deaths, self._heard.deaths = self._heard.deaths, []
        return deaths

    def save(self, path: Path, state: Mapping[str, Any], facts: Mapping[str, Any]) -> "threading.Event":
        """Let the learner write a checkpoint; returns at once. The event is set when it is on disk."""
        saved = threading.Event()

        def write() -> None:
            received = self.worker.submit("save", path, state, facts).result()
            self.log.forget(received)
            saved.set()

        self._queue.put(write)
        return saved

    def wait_until_saved(self, saved: threading.Event) -> None:
        while not saved.wait(EXCHANGE):
            self.raise_error()
            if self._thread is None or not self._thread.is_alive():
                raise StorageError("the checkpoint was not written: the link to the learner has ended")

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Stop exchanging; what was sent before is still logged."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(LONGEST_END)
            if self._thread.is_alive():
                raise ProcessLost(f"{self.worker.name}: it does not answer; what was sent to it is logged")
        while not self._queue.empty():  # of a link that ended with an error
            item = self._queue.get()
            if isinstance(item, Chunk):
                self._unlogged.append(item)
        for chunk in self._unlogged:  # in order: after one that cannot be written, the others would be of no use
            self.log.append(chunk)

    def _run(self) -> None:
        try:
            while not (self._ending.is_set() and self._queue.empty()):
                self._exchange_once()
        except BaseException as error:  # raised by the next `send`
            self._error = error

    def _exchange_once(self) -> None:
        chunks, task = self._take()
        self._unlogged += chunks
        while self._unlogged:
            self.log.append(self._unlogged[0])
            self._unlogged.pop(0)
        with self._lock:
            known = self._heard.policy or self._heard.acting
        try:
            if chunks or task is None:
                version = -1 if known is None else known.number
                self._hear(self.worker.submit("exchange", chunks, version).result())
            if task is not None:
                task()
            self._deaths_in_a_row = 0
        except WorkerDied as error:
            self._revive(error)
            if task is not None:
                self._queue.put(task)

    def _take(self) -> tuple[list[Chunk], Callable[[], None] | None]:
        """Return the chunks that wait, up to the first task behind them, and that task."""
        chunks: list[Chunk] = []
        try:
            item = self._queue.get(timeout=EXCHANGE)
            while True:
                if not isinstance(item, Chunk):
                    return chunks, item
                chunks.append(item)
                item = self._queue.get_nowait()
        except queue.Empty:
            return chunks, None

    def _hear(self, said: LearnerState) -> None:
        with self._lock:
            heard = self._heard
            if said.policy is not None:
                heard.policy = said.policy
            heard.updates, heard.transitions = said.updates, said.transitions
            heard.demonstrations = said.demonstrations
            heard.updates_per_second = said.metrics.pop("updates_per_second", 0.0)
            if said.metrics:
                heard.figures = said.metrics

    def _revive(self, error: WorkerDied) -> None:
        """Start the learner again; its chunks since the last checkpoint are in the log."""
        self._deaths_in_a_row += 1
        if not self._restart or self._deaths_in_a_row == DEATHS_IN_A_ROW:
            raise ProcessLost(str(error)) from error
        with self._lock:
            self._heard.deaths.append(str(error))
            # Its versions are numbered anew.
            self._heard.acting = self._heard.policy = None
        self.worker.restart()
        self._restore(self.worker)
