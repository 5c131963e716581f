"""What a run shows while it goes on, and what people press on its page: shared by the run and the page's server.

A run writes to it from its own threads, for microseconds; a page reads from it in others. Where no page is open it is
written all the same, so that a page can be opened at any time. It is also a source of human input
(`rewardlab.envs.robot.people.HumanInput`).
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT_POINTS = 600  # of the curve of probabilities
KEPT_MESSAGES = 50
HELD_SECONDS = 0.3  # a motion that the page asked for lasts so long, unless it is asked for again
STOP = "stop"


@dataclass(frozen=True)
class Snapshot:
    """A copy of everything but the pictures."""

    values: dict[str, float | str]  # such as hold, hold_needed, threshold, replay_size, act_hz, updates_per_second
    probabilities: list[tuple[float, float]]  # (seconds since the start, probability), oldest first
    outcomes: dict[str, int]  # number of episodes by outcome: success, failure, redo, discarded ...
    messages: list[tuple[float, str]]  # (seconds since the start, text), oldest first
    cameras: list[str]
    frame_number: int  # grows with each new set of pictures
    seconds: float  # since the start


@dataclass
class _Written:
    values: dict[str, float | str] = field(default_factory=dict)
    probabilities: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT_POINTS))
    outcomes: Counter[str] = field(default_factory=Counter)
    messages: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=KEPT_MESSAGES))
    frames: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)
    frame_number: int = 0


class LiveState:
    """Safe to use from several threads."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._written = _Written()
        self._events: list[str] = []
        self._motion: tuple[npt.NDArray[np.float64], float] | None = None
        self._on_stop: list[Callable[[], Any]] = []

    # The run writes:

    def show(self, **values: float | str) -> None:
        """Show these numbers and words, beside those that were shown before."""
        with self._lock:
            self._written.values.update(values)

    def show_frames(self, frames: Mapping[str, npt.NDArray[np.uint8]]) -> None:
        """Show the newest picture [H, W, 3] of each camera; the arrays must not be written to afterwards."""
        with self._lock:
            self._written.frames.update(frames)
            self._written.frame_number += 1

    def show_probability(self, probability: float) -> None:
        """Add a point to the curve of the success classifier."""
        with self._lock:
            self._written.probabilities.append((self._seconds, probability))

    def count_episode(self, outcome: str) -> None:
        with self._lock:
            self._written.outcomes[outcome] += 1

    def say(self, message: str) -> None:
        """Show a line that a person should read."""
        with self._lock:
            self._written.messages.append((self._seconds, message))

    def on_stop(self, stop: Callable[[], Any]) -> None:
        """Call this, in the thread of the page's server, the moment somebody presses stop."""
        with self._lock:
            self._on_stop.append(stop)

    def take_events(self) -> list[str]:
        """Return what was pressed since the last call, in order."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def motion(self) -> npt.NDArray[np.float64] | None:
        """Return the motion that is asked for now, 7 shares from -1 to 1 (x, y, z, roll, pitch, yaw, gripper)."""
        with self._lock:
            held = self._motion is not None and time.monotonic() - self._motion[1] < HELD_SECONDS
            return self._motion[0] if held and self._motion is not None else None

    # The page writes and reads:

    def press(self, event: str) -> list[str]:
        """Queue an event (success, failure, redo, stop, resume); return what went wrong while stopping, if anything.

        For a stop, the robot is stopped before anything else.
        """
        problems = []
        if event == STOP:
            with self._lock:
                stops = list(self._on_stop)
            for stop in stops:
                try:
                    stop()
                except Exception as error:  # the others must still be stopped
                    problems.append(str(error))
        with self._lock:
            self._events.append(event)
        return problems

    def hold(self, motion: Sequence[float]) -> None:
        """Move like this until HELD_SECONDS have passed, unless it is asked for again."""
        with self._lock:
            self._motion = np.clip(np.asarray(motion, np.float64), -1, 1), time.monotonic()

    def snapshot(self) -> Snapshot:
        with self._lock:
            written = self._written
            return Snapshot(
                dict(written.values),
                list(written.probabilities),
                dict(written.outcomes),
                list(written.messages),
                list(written.frames),
                written.frame_number,
                self._seconds,
            )

    def frame(self, camera: str) -> npt.NDArray[np.uint8] | None:
        """Return the newest picture of a camera."""
        with self._lock:
            return self._written.frames.get(camera)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._start
