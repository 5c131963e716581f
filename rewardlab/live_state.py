"""What a run shows while it goes on, and what people press on its page: shared by the run and the page's server.

A run writes to it from its own threads, for microseconds; a page reads from it in others. Where no page is open it is
written all the same, so that a page can be opened at any time.
"""

import math
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT_POINTS = 600  # of the curve of probabilities, and at most of each curve of metrics
KEPT_MESSAGES = 50
KEPT_OUTCOMES = 40
HELD_SECONDS = 0.3  # a motion that the page asked for lasts so long, unless it is asked for again
SUCCESS, FAILURE, REDO, STOP, RESUME = "success", "failure", "redo", "stop", "resume"
LABELS = (SUCCESS, FAILURE, REDO)
DISCARDED = "discarded"  # outcome of an episode that is not kept because the robot or a camera failed, or was stopped

Values = dict[str, float | str]
Frame = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Message:
    seconds: float  # since the start of the run
    text: str
    alarm: bool


@dataclass(frozen=True)
class EnvSnapshot:
    """A copy of what is shown of one environment, except its pictures."""

    name: str
    controls: bool
    stopped: bool
    values: Values
    probabilities: list[tuple[float, float]]  # (seconds since the start of the run, probability), oldest first
    cameras: list[str]
    frame_number: int  # grows with each new set of pictures


@dataclass(frozen=True)
class Snapshot:
    """A copy of everything but the pictures and the curves."""

    run: str  # differs between runs
    title: str
    seconds: float  # since the start
    ended: Message | None  # how the run ended
    values: Values
    metrics: dict[str, float]  # of the last iteration
    curve_number: int  # grows with each new point of the curves
    outcomes: dict[str, int]  # number of episodes by outcome: success, failure, discarded ...
    last_outcomes: list[str]  # of the last episodes, oldest first
    messages: list[Message]  # oldest first
    envs: list[EnvSnapshot]


class LiveEnv:
    """One environment, such as a robot: what is shown of it, and what people press for it.

    It is also a source of human input (`rewardlab.envs.robot.people.HumanInput`). Safe to use from several threads.
    """

    def __init__(self, name: str, run: "LiveState", *, controls: bool) -> None:
        self.name, self.controls = name, controls
        self._run = run
        self._lock = threading.Lock()
        self._values: Values = {}
        self._probabilities: deque[tuple[float, float]] = deque(maxlen=KEPT_POINTS)
        self._frames: dict[str, Frame] = {}
        self._frame_number = 0
        self._events: list[str] = []
        self._motion: tuple[npt.NDArray[np.float64], float] | None = None
        self._on_stop: Callable[[], Any] | None = None
        # A person has stopped it and not let it go on yet; true before the run has read that event.
        self.stopped = False

    # The run writes and reads:

    def show(self, **values: float | str) -> None:
        """Show these numbers and words, beside those that were shown before."""
        with self._lock:
            self._values.update(values)

    def show_frames(self, frames: Mapping[str, Frame]) -> None:
        """Show the newest picture [H, W, 3] of each camera; the arrays must not be written to afterwards."""
        with self._lock:
            self._frames.update(frames)
            self._frame_number += 1

    def show_probability(self, probability: float) -> None:
        """Add a point to the curve of the success classifier."""
        with self._lock:
            self._probabilities.append((self._run.seconds, probability))

    def say(self, message: str, *, alarm: bool = False) -> None:
        """Show a line that a person should read, among those of the run."""
        self._run.say(message, alarm=alarm)

    def on_stop(self, stop: Callable[[], Any]) -> None:
        """Call this, in a thread of the page's server, the moment somebody presses stop."""
        self._on_stop = stop

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

    def press(self, event: str) -> None:
        """Queue an event. One that goes on after a stop that the run has not read yet takes that stop back."""
        with self._lock:
            if event in (STOP, RESUME):
                self.stopped = event == STOP
                self._motion = None
            if event == RESUME and STOP in self._events:
                self._events = [other for other in self._events if other != STOP]
            else:
                self._events.append(event)

    def call_stop(self) -> None:
        """Stop the robot itself; raises what its adapter raises."""
        if self._on_stop is not None:
            self._on_stop()

    def hold(self, motion: Sequence[float]) -> None:
        """Move like this until HELD_SECONDS have passed, unless it is asked for again; all zero: let go."""
        values = np.clip(np.asarray(motion, np.float64), -1, 1)
        with self._lock:
            self._motion = (values, time.monotonic()) if values.any() else None

    def frame(self, camera: str) -> tuple[int, Frame] | None:
        """Return the newest picture of a camera and its number."""
        with self._lock:
            frame = self._frames.get(camera)
            return None if frame is None else (self._frame_number, frame)

    def snapshot(self) -> EnvSnapshot:
        with self._lock:
            return EnvSnapshot(
                self.name,
                self.controls,
                self.stopped,
                dict(self._values),
                list(self._probabilities),
                list(self._frames),
                self._frame_number,
            )


class LiveState:
    """A run, with its environments. Safe to use from several threads."""

    def __init__(self, title: str = "") -> None:
        self.title, self.run = title, secrets.token_hex(4)
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._envs: dict[str, LiveEnv] = {}
        self._values: Values = {}
        self._metrics: dict[str, float] = {}
        self._curves: dict[str, list[tuple[float, float]]] = {}
        self._curve_number = 0
        self._outcomes: Counter[str] = Counter()
        self._last_outcomes: deque[str] = deque(maxlen=KEPT_OUTCOMES)
        self._messages: deque[Message] = deque(maxlen=KEPT_MESSAGES)
        self._ended: Message | None = None

    # The run writes:

    def env(self, name: str, *, controls: bool = False) -> LiveEnv:
        """Add an environment, in the place of an earlier one with its name; `controls`: people can move and stop it.

        One that a person has stopped stays stopped.
        """
        with self._lock:
            earlier = self._envs.get(name)
            env = self._envs[name] = LiveEnv(name, self, controls=controls)
        if earlier is not None and earlier.stopped:
            env.press(STOP)
        return env

    def show(self, **values: float | str) -> None:
        """Show these numbers and words of the whole run, beside those that were shown before."""
        with self._lock:
            self._values.update(values)

    def add_metrics(self, step: float, metrics: Mapping[str, float]) -> None:
        """Add what was measured in an iteration to the curves; points from `step` on are replaced."""
        known = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        with self._lock:
            self._metrics = known
            self._curve_number += 1
            for name, value in known.items():
                points = self._curves.setdefault(name, [])
                while points and points[-1][0] >= step:
                    points.pop()
                points.append((step, value))
                if len(points) > KEPT_POINTS:
                    del points[-2::-2]  # every other one, but not the newest

    def count_episode(self, outcome: str) -> None:
        with self._lock:
            self._outcomes[outcome] += 1
            self._last_outcomes.append(outcome)

    def say(self, message: str, *, alarm: bool = False) -> None:
        """Show a line that a person should read."""
        with self._lock:
            self._messages.append(Message(self.seconds, message, alarm))

    def end(self, sentence: str, *, alarm: bool = False) -> None:
        """Show that the run has ended, and how."""
        with self._lock:
            self._ended = Message(self.seconds, sentence, alarm)

    # The page writes and reads:

    @property
    def seconds(self) -> float:
        """Seconds since the start of the run."""
        return time.monotonic() - self._start

    @property
    def envs(self) -> list[LiveEnv]:
        with self._lock:
            return list(self._envs.values())

    def stop(self) -> list[str]:
        """Stop all robots, each in a thread, so that none waits for another; return what went wrong.

        The run finds the event before it sends its next command: else that would start a stopped robot again.
        """
        problems: list[str] = []

        def stop(env: LiveEnv) -> None:
            try:
                env.call_stop()
            except Exception as error:  # the others must still be stopped, and a person must read it
                problems.append(str(error) or type(error).__name__)

        controlled = [env for env in self.envs if env.controls]
        threads = [threading.Thread(target=stop, args=(env,), name="stop", daemon=True) for env in controlled]
        for env in controlled:
            env.press(STOP)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return problems

    def resume(self) -> None:
        """Let all robots go on."""
        for env in self.envs:
            if env.controls:
                env.press(RESUME)

    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """Return the points (step, value) of each metric, oldest first; long curves are thinned out."""
        with self._lock:
            return {name: list(points) for name, points in self._curves.items()}

    def snapshot(self) -> Snapshot:
        envs = [env.snapshot() for env in self.envs]
        with self._lock:
            return Snapshot(
                self.run,
                self.title,
                self.seconds,
                self._ended,
                dict(self._values),
                dict(self._metrics),
                self._curve_number,
                dict(self._outcomes),
                list(self._last_outcomes),
                list(self._messages),
                envs,
            )
