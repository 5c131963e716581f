"""Closes environments where an error leaves them to nobody: a simulator or a robot may need it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rewardlab.stopping import interrupt_all


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
