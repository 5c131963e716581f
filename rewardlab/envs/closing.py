"""Closes environments where an error leaves them to nobody: a simulator or a robot may need it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol


class Closable(Protocol):
    """What can be closed: an environment, or several."""

    def close(self) -> object: ...


@contextmanager
def closed_after_errors(opened: Closable) -> Iterator[None]:
    """Close an environment after an error or Ctrl-C, which is raised again, also if closing fails too."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the first error says more
            opened.close()
        raise
