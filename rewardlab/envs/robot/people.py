"""What a person says to a robot environment: labels, a stop, and motions that take the place of the policy's.

A source of input has `take_events()` and `motion()`; the page of a run (`rewardlab.live_state.LiveEnv`) is one too.
"""

import os
import select
import struct
import sys
import termios
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import numpy as np

from rewardlab.envs.robot.protocol import Floats
from rewardlab.errors import ConfigError
from rewardlab.live_state import FAILURE, REDO, RESUME, STOP, SUCCESS

HELD_SECONDS = 0.3  # a key counts as held for so long: terminals only tell that it was pressed, again and again
_LABEL_KEYS = {"1": SUCCESS, "0": FAILURE, "r": REDO, " ": STOP, "c": RESUME}
# Along x, y, z, roll, pitch, yaw, gripper.
_MOTION_KEYS = {
    "w": (0, 1), "s": (0, -1), "a": (1, 1), "d": (1, -1), "e": (2, 1), "q": (2, -1),
    "u": (3, 1), "o": (3, -1), "i": (4, 1), "k": (4, -1), "j": (5, 1), "l": (5, -1), "+": (6, 1), "-": (6, -1),
}  # fmt: skip
KEYBOARD_HELP = (
    "1 success, 0 failure, r redo, space STOP, c continue; move: w/s a/d q/e, turn: u/o i/k j/l, gripper + -"
)
INPUT_HELP = {
    "keyboard": KEYBOARD_HELP,
    "gamepad": "A success, B failure, X redo, Y STOP, Start continue; the sticks move and turn about the vertical",
}
DEADBAND = 0.1


class HumanInput(Protocol):
    def take_events(self) -> Sequence[str]:
        """Return what was pressed since the last call, in order."""

    def motion(self) -> Floats | None:
        """Return the motion that is held now, 7 shares from -1 to 1 (x, y, z, roll, pitch, yaw, gripper), or None."""


class AllInputs:
    """Several sources as one; more can be added while a run goes on."""

    def __init__(self, sources: Sequence[HumanInput]) -> None:
        self._sources = list(sources)

    def add(self, source: HumanInput) -> None:
        self._sources.append(source)

    def close(self) -> None:
        for source in self._sources:
            if hasattr(source, "close"):
                source.close()

    def take_events(self) -> list[str]:
        return [event for source in self._sources for event in source.take_events()]

    def motion(self) -> Floats | None:
        return next((motion for source in self._sources if (motion := source.motion()) is not None), None)


class Keyboard:
    """Keys of this terminal, without Enter."""

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            raise ConfigError("env.train.options.input: keyboard needs a terminal, and the input of this run is none")
        self._file = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._file)
        raw = termios.tcgetattr(self._file)
        raw[3] &= ~(termios.ICANON | termios.ECHO)  # Ctrl-C still works
        termios.tcsetattr(self._file, termios.TCSANOW, raw)
        self._events: list[str] = []
        self._held: dict[int, tuple[int, float]] = {}  # axis: direction, when it was pressed last

    def take_events(self) -> list[str]:
        self._read()
        events, self._events = self._events, []
        return events

    def motion(self) -> Floats | None:
        self._read()
        now, motion = time.monotonic(), np.zeros(7)
        for axis, (direction, pressed) in self._held.items():
            if now - pressed < HELD_SECONDS:
                motion[axis] = direction
        return motion if motion.any() else None

    def close(self) -> None:
        with suppress(termios.error):  # it was closed
            termios.tcsetattr(self._file, termios.TCSANOW, self._before)

    def _read(self) -> None:
        while select.select([self._file], [], [], 0)[0]:
            try:
                keys = os.read(self._file, 100).decode(errors="replace")
            except OSError:  # the terminal was closed
                return
            if not keys:
                return
            for key in keys:
                if key in _LABEL_KEYS:
                    self._events.append(_LABEL_KEYS[key])
                elif key in _MOTION_KEYS:
                    axis, direction = _MOTION_KEYS[key]
                    self._held[axis] = (direction, time.monotonic())


class GamePad:
    """The first game pad, as Linux shows it: sticks move, buttons A, B, X, Y are success, failure, redo, STOP.

    Start continues after a stop. A game pad that is unplugged stops the robot, until it is back and Start is pressed.
    """

    _EVENTS = (SUCCESS, FAILURE, REDO, STOP, None, None, None, RESUME)  # by number of the button; 7 is Start
    _AXES = ((1, 0, -1), (0, 1, -1), (4, 2, -1), (3, 5, -1))  # of the pad: which axis of the robot, and its sign

    def __init__(self, device: str = "/dev/input/js0") -> None:
        self._device = device
        try:
            self._file = self._open()
        except OSError as error:
            raise ConfigError(f"env.train.options.input: no game pad at {device} ({error.strerror})") from error
        self._events: list[str] = []
        self._motion = np.zeros(7)

    def take_events(self) -> list[str]:
        self._read()
        events, self._events = self._events, []
        return events

    def motion(self) -> Floats | None:
        self._read()
        motion = np.where(np.abs(self._motion) < DEADBAND, 0, self._motion)
        return motion if motion.any() else None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int | None:
        return os.open(self._device, os.O_RDONLY | os.O_NONBLOCK)

    def _lost(self) -> None:
        """Stop: a stick that was held when the game pad vanished must not go on moving the robot."""
        self.close()
        self._motion = np.zeros(7)
        self._events.append(STOP)

    def _read(self) -> None:
        """Read events of 8 bytes: time, value, type (1 button, 2 axis; 0x80 means its state at the start), number."""
        if self._file is None:
            with suppress(OSError):
                self._file = self._open()
        while self._file is not None:
            try:
                event = os.read(self._file, 8)
            except BlockingIOError:
                return
            except OSError:
                event = b""
            if len(event) < 8:
                self._lost()
                return
            _, value, kind, number = struct.unpack("IhBB", event)
            if kind == 1 and value and number < len(self._EVENTS) and (name := self._EVENTS[number]) is not None:
                self._events.append(name)
            elif kind & 2:
                for pad, axis, sign in self._AXES:
                    if pad == number:
                        self._motion[axis] = sign * value / 32767


class Queue:
    """Events that a program pushes, and a motion that it sets: for tests, and for input that other code reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[str] = []
        self._motion: tuple[Floats, float] | None = None

    def push(self, event: str) -> None:
        with self._lock:
            self._events.append(event)

    def hold(self, motion: Sequence[float]) -> None:
        """Move like this until HELD_SECONDS have passed, unless it is said again."""
        with self._lock:
            self._motion = np.asarray(motion, np.float64), time.monotonic()

    def take_events(self) -> list[str]:
        with self._lock:
            events, self._events = self._events, []
        return events

    def motion(self) -> Floats | None:
        with self._lock:
            held = self._motion is not None and time.monotonic() - self._motion[1] < HELD_SECONDS
            return self._motion[0] if held and self._motion is not None else None
