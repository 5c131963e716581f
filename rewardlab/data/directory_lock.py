"""Locks of directories, so that two runs do not write into one place.

The operating system holds a lock for the process and drops it when the process ends, however it ends. A file in the
directory says who holds it.
"""

import fcntl
import json
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rewardlab.data.atomic import remove_leftovers
from rewardlab.errors import DataError

LOCK = ".rewardlab.lock"
_held: set[Path] = set()  # by this process: the locks of the operating system do not keep out its own threads
_guard = threading.Lock()


@contextmanager
def run_lock(*directories: Path) -> Iterator[None]:
    """Hold the locks of the directories of a run; a DataError says who holds one of them already.

    What a killed run left half-written directly in them is removed. Directories are made if they are missing, and
    removed again at the end if nothing was written to them.
    """
    advice = "Wait until it ends, or choose another runner.logger.log_path or experiment_name"
    by_place = {directory.resolve(): directory for directory in directories}
    with ExitStack() as stack:
        for _, directory in sorted(by_place.items()):
            stack.enter_context(locked(directory, "a run", advice))
            remove_leftovers(directory, whoever=True)  # whoever wrote them held the lock, and is gone
        yield


@contextmanager
def locked(directory: Path, what: str, advice: str) -> Iterator[None]:
    """Hold the lock of one directory; `what` works there, and `advice` ends the error of whoever comes later."""
    place = directory.resolve()
    with _guard:
        if place in _held:
            raise DataError(f"{what} of this process is writing to {directory}. {advice}")
        _held.add(place)
    owner, is_new = os.getpid(), not directory.exists()
    descriptor: int | None = None
    try:
        descriptor = _acquire(directory, what, advice)
        yield
    finally:
        _held.discard(place)
        if descriptor is not None and os.getpid() == owner:  # not in a fork of the process
            with suppress(OSError):
                (directory / LOCK).unlink()
            os.close(descriptor)
            if is_new:
                with suppress(OSError):  # something was written
                    directory.rmdir()


def _acquire(directory: Path, what: str, advice: str) -> int:
    path = directory / LOCK
    try:
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                # Not flock, which processes forked by the holder would inherit and keep after its end.
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                os.close(descriptor)
                raise DataError(f"{what} is writing to {directory}: {_holder(path)}. {advice}") from None
            except OSError as error:
                warnings.warn(
                    f"{directory} cannot be locked ({error.strerror}): take care that no other run writes there",
                    stacklevel=4,
                )
            if _is_file(descriptor, path):
                _write_holder(descriptor)
                return descriptor
            os.close(descriptor)  # its last holder removed the file meanwhile
    except OSError as error:
        raise DataError(f"cannot write to the directory {directory}: {error.strerror or error}") from error


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    with suppress(OSError):  # a full disk: the lock holds without it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _holder(path: Path) -> str:
    try:
        found = json.loads(path.read_text())
        return f"process {int(found['pid'])} on {found['host']}, since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
