"""The learner of an asynchronous run: it takes what has arrived and updates the policy in a thread of its own."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rewardlab.data.transition_log import Chunk, TransitionLog
from rewardlab.rewards.manager import RewardRule
from rewardlab.run_state import load_state, save_state
from rewardlab.workers.actor import ActorWorker

IDLE = 0.05  # seconds between two looks for new transitions while no update is due
SPEED_SECONDS = 2.0  # over which the speed of updates is measured
NICENESS = 10  # acting goes first where both share a core


@dataclass(frozen=True)
class PolicyVersion:
    """Weights of the policy, as they were after a number of updates."""

    number: int
    updates: int
    weights: dict[str, Tensor]


@dataclass(frozen=True)
class LearnerState:
    """What the learner tells the acting side."""

    policy: PolicyVersion | None  # the newest one; None if the acting side has it already
    updates: int
    transitions: int  # in the replay buffer
    demonstrations: int
    received: int  # number of the last chunk that is in the replay buffer
    metrics: dict[str, float]  # means since the last exchange


class AsyncLearner:
    """Wraps an ActorWorker, whose state only the learning thread touches once it runs.

    `exchange` only queues transitions and returns what is known, so that it answers at once whatever the learner does.
    """

    def __init__(self, make: Callable[[], ActorWorker], publish_interval: int) -> None:
        self.actor = make()
        self._publish_interval = publish_interval
        self._inbox: deque[Chunk] = deque()
        self._tasks: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._total_env_steps = 1  # of the run
        self._error: BaseException | None = None
        self._lock = threading.Lock()  # of what follows
        self._policy: PolicyVersion | None = None
        self._metrics: list[dict[str, float]] = []
        self._received = -1
        self._begun = (time.perf_counter(), 0)
        self._updates_per_second = 0.0

    # Until `begin`, these run in the thread that calls them; from then on between two updates.

    def set_progress(self, env_steps: int, total_env_steps: int) -> None:
        """Say how much of the run is done; from then on, each chunk that is added says it."""
        self._total_env_steps = total_env_steps
        self._between_updates(lambda: self.actor.set_progress(env_steps, total_env_steps))

    def set_rewards(self, rule: RewardRule, models: Mapping[str, Any]) -> None:
        self._between_updates(lambda: self.actor.set_rewards(rule, models))

    def load_demonstrations(self) -> None:
        self._between_updates(self.actor.load_demonstrations)

    def begin_episodes(self) -> None:
        self._between_updates(self.actor.begin_episodes)

    def policy_weights(self) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = self._between_updates(self.actor.policy_weights)
        return weights

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._between_updates(lambda: self.actor.load_state_dict(state))

    def restore(self, checkpoint: Path, log: Path) -> None:
        """Continue from a checkpoint of this run, and from the transitions that were logged since."""
        state, _ = load_state(checkpoint)
        self.load_state_dict(state["actor"])
        self.read_log(log, state["received"])

    def read_log(self, directory: Path, after: int) -> None:
        """Add the logged transitions with larger numbers than `after` to the replay buffer."""

        def read() -> None:
            self._received = after
            for chunk in TransitionLog(directory).read(after):
                self._add(chunk)

        self._between_updates(read)

    def save(self, path: Path, state: Mapping[str, Any], facts: Mapping[str, Any]) -> int:
        """Write a checkpoint of the run, of which `state` is the acting side's part; return the last chunk in it."""

        def take() -> tuple[dict[str, Any], int]:
            return {"actor": self.actor.state_dict(), "policy": self.actor.policy_weights()}, self._received

        own, received = self._between_updates(take)
        save_state(path, {**state, **own, "received": received, "updates": self.actor.learner.updates}, facts)
        return received

    def begin(self) -> None:
        """Start learning in the background."""
        with suppress(OSError):
            os.nice(NICENESS)
        self._publish()
        self._begun = (time.perf_counter(), self.actor.learner.updates)
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)
        self._thread.start()

    def exchange(self, chunks: Sequence[Chunk], known_version: int) -> LearnerState:
        """Take new transitions; return the newest policy, if it is not the known one, and figures."""
        if self._error is not None:
            raise self._error
        self._inbox.extend(chunks)
        self._wake.set()
        with self._lock:
            metrics, self._metrics = self._metrics, []
            policy, received = self._policy, self._received
        actor = self.actor
        return LearnerState(
            policy if policy is not None and policy.number != known_version else None,
            actor.learner.updates,
            0 if actor.replay is None else len(actor.replay),
            sum(len(buffer) for buffer in (actor.demos, actor.interventions) if buffer is not None),
            received,
            _means(metrics) | self._speed(),
        )

    def end(self) -> None:
        """Stop learning."""
        self._ending.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _speed(self) -> dict[str, float]:
        """Return the updates per second, measured anew every SPEED_SECONDS."""
        now, updates = time.perf_counter(), self.actor.learner.updates
        start, before = self._begun
        if now - start >= SPEED_SECONDS:
            self._begun = (now, updates)
            self._updates_per_second = (updates - before) / (now - start)
        return {"updates_per_second": self._updates_per_second}

    def _between_updates(self, task: Callable[[], Any]) -> Any:
        """Run a task in the learning thread, or here if that does not run; return its result."""
        if self._thread is None or not self._thread.is_alive():
            return task()
        future: Future[Any] = Future()
        self._tasks.append((task, future))
        self._wake.set()
        while not future.done() and self._thread.is_alive():
            with suppress(TimeoutError):
                return future.result(0.5)
        return future.result(0) if future.done() else task()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._work_once()
        except BaseException as error:  # raised by the next exchange
            self._error = error

    def _work_once(self) -> None:
        while self._inbox:
            self._add(self._inbox.popleft())
        while self._tasks:
            task, future = self._tasks.popleft()
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)
        if not self.actor.updates_due:
            self._wake.wait(IDLE)
            self._wake.clear()
            return
        metrics = self.actor.update(1)
        with self._lock:
            self._metrics.append(metrics)
        if self.actor.learner.updates % self._publish_interval == 0:
            self._publish()

    def _add(self, chunk: Chunk) -> None:
        if chunk.number <= self._received:  # sent again after the learner was started again, which has read its log
            return
        self.actor.add(chunk.batch, chunk.env_steps)
        self.actor.set_progress(chunk.env_steps, self._total_env_steps)
        with self._lock:
            self._received = chunk.number

    def _publish(self) -> None:
        number = 0 if self._policy is None else self._policy.number + 1
        version = PolicyVersion(number, self.actor.learner.updates, self.actor.policy_weights())
        with self._lock:
            self._policy = version


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each figure over the rows that have it, but the last number of updates."""
    if not rows:
        return {}
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [row[name] for row in rows if name in row] for name in names}
    means = {name: sum(values) / len(values) for name, values in found.items()}
    return means | {"updates": rows[-1]["updates"]}
