"""Ends a run in order: the first Ctrl-C, SIGTERM or SIGHUP lets it write its state, a second one ends it at once."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol
from weakref import WeakSet

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, schedulers, closed terminals
ONE_PRESS = 0.5  # seconds in which signals are one request: `timeout` and process managers send it twice
SHOW_CURSOR = "\x1b[?25h"  # a progress bar may have hidden it

Handler = Callable[[int, FrameType | None], object] | int | None


def is_taken(number: int) -> bool:
    """Return whether a signal may be handled: not one that nohup, or the job of a script, ignores."""
    return signal.getsignal(number) not in (signal.SIG_IGN, None)


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to end; its number decides the exit status."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Interruptible(Protocol):
    """What can be told, from any thread, to end what it is doing in another: a robot that moves to its start."""

    def interrupt(self) -> None: ...


INTERRUPTIBLE: "WeakSet[Interruptible]" = WeakSet()  # in this process


def interrupt_all() -> None:
    """Interrupt everything in this process that can be, before it is waited for: robots are stopped."""
    for one in list(INTERRUPTIBLE):
        with suppress(Exception):  # the others must be told too
            one.interrupt()


def end_at_once(number: int) -> None:
    """Stop the robots and end this process; what it has started ends with it. Files are written whole or not at all."""
    interrupt_all()
    cursor = SHOW_CURSOR if sys.stderr is not None and sys.stderr.isatty() else ""
    _write(f"{cursor}\nended at once\n")
    os._exit(128 + number)


class StopRequest:
    """Whether a run was asked to stop, by a signal or by the process that leads it."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._since = 0.0

    @property
    def requested(self) -> bool:
        return self.number is not None

    @property
    def words(self) -> str:
        """Return what asked, for people."""
        return "Ctrl-C" if self.number == signal.SIGINT else signal.Signals(self.number or signal.SIGTERM).name

    def request(self, number: int) -> None:
        self.number, self._since = number, time.monotonic()

    def repeat(self, number: int) -> None:
        """End the process at once, unless this signal is still part of the same request."""
        if time.monotonic() - self._since >= ONE_PRESS:
            end_at_once(number)

    @contextmanager
    def deferred(self, what: str, *, at_once: bool = False) -> Iterator[None]:
        """Within the block, let a signal only ask. `what` is finished first; with `at_once` nothing is."""
        yield


class StopSignals(StopRequest):
    """A StopRequest that the signals of this process make."""

    def __init__(self) -> None:
        super().__init__()
        self._previous: dict[int, Handler] = {}
        self._what: str | None = None  # what is finished first; None: nothing is, the handlers from before decide
        self._raises = False

    @contextmanager
    def deferred(self, what: str, *, at_once: bool = False) -> Iterator[None]:
        """Let the first signal only set `requested`, and say that `what` is finished first.

        With `at_once` it also raises Interrupted: where a robot moves, nothing is finished first.
        """
        self._what, self._raises = what, at_once
        try:
            yield
        finally:
            self._what = None

    def install(self) -> None:
        for number in SIGNALS:
            if is_taken(number):
                self._previous[number] = signal.getsignal(number)
                signal.signal(number, self._handle)

    def restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def deliver(self) -> None:
        """Pass a request that was deferred on to the handler from before, now that everything is written."""
        if self.number is not None and self.number in self._previous:
            self._pass_on(self.number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            self.repeat(number)
        elif self._what is None:
            self._pass_on(number, frame)
        else:
            self.request(number)
            if self._raises:
                raise Interrupted(number)
            _write(f"\n{self.words}: stops after {self._what} and writes its state; a second one ends it at once\n")

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        handler = self._previous[number]
        if callable(handler):
            handler(number, frame)
        else:  # the system's: it ends the process
            signal.signal(number, handler)
            signal.raise_signal(number)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Handle the signals that ask a run to stop while the block runs.

    Within `deferred` a signal only asks; at the end of the block it is passed on to the handler from before, which
    raises KeyboardInterrupt or ends the process. Elsewhere in the block it is passed on at once. In other threads than
    the main one signals are left alone.
    """
    stop = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    stop.install()
    try:
        yield stop
    finally:
        stop.restore()
    stop.deliver()


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Take back the signals that a library takes for itself in the block: on SIGTERM, Ray would abort the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, handler)


def _write(words: str) -> None:
    """Write to the standard error past Python's buffers: a signal may come while they are being written to."""
    with suppress(OSError):
        os.write(2, words.encode(errors="replace"))
