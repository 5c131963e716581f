"""The CPU cores that this process may use."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SHARED_BY: ContextVar[int] = ContextVar("workers that share the cores", default=1)


def available_cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_cores() -> int:
    """Return the number of cores for each of the workers that share them; see `sharing_cores`."""
    return max(1, available_cores() // _SHARED_BY.get())


@contextmanager
def sharing_cores(workers: int) -> Iterator[None]:
    """Say inside a `with` block that so many workers like this one run at the same time on the same cores."""
    token = _SHARED_BY.set(workers)
    try:
        yield
    finally:
        _SHARED_BY.reset(token)
