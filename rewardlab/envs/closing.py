"""Closes environments where an error leaves them to nobody: a simulator or a robot may need it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol
from weakref import WeakSet


class Interruptible(Protocol):
    """What can be told, from any thread, to end what it is doing in another: a robot that moves to its start."""

    def interrupt(self) -> None: ...


INTERRUPTIBLE: "WeakSet[Interruptible]" = WeakSet()  # in this process


def interrupt_all() -> None:
    """Interrupt everything in this process that can be, before it is waited for: robots are stopped."""
    for one in list(INTERRUPTIBLE):
        with suppress(Exception):  # the others must be told too
            one.interrupt()


@contextmanager
def closed_after_errors(
    close: Callable[[], object], *, except_for: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Call `close` after an error or Ctrl-C, which is raised again, also if closing fails too.

    After errors of the classes `except_for`, somebody else closes. After Ctrl-C, robots are stopped before anything is
    waited for.
    """
    try:
        yield
    except except_for:
        raise
    except BaseException as error:
        if not isinstance(error, Exception):
            interrupt_all()
        with suppress(Exception):  # the first error says more
            close()
        raise
