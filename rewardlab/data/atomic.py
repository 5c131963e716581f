"""Files that appear complete or not at all, and never replace one another."""

import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_LEFTOVER = re.compile(r"^\..+\.(\d+)\.[0-9a-f]{8}\.tmp$")
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


def temporary_path(target: Path) -> Path:
    """A hidden name beside `target` that tells which process is writing it."""
    return target.with_name(f".{target.stem}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def leftover_of(path: Path) -> int | None:
    """The process id if `path` is a temporary file of a process that is gone, else None."""
    match = _LEFTOVER.match(path.name)
    if match is None:
        return None
    process = int(match.group(1))
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return process
    except PermissionError:
        pass
    return None


def write_new(
    names: Iterable[Path], pieces: Sequence[bytes | memoryview], *, shared: Sequence[Path], durable: bool
) -> Path:
    """Write a file and publish it under the first of `names` that is free in every directory of `shared`.

    The names are all in one of these directories, the first of which is locked while a name is taken. Nothing is
    visible under a final name before it is complete (with `durable`: on the disk, so that it survives a power cut too);
    on any failure, Ctrl-C included, the temporary file is removed.
    """
    candidates = iter(names)
    target = next(candidates)
    temporary = temporary_path(target)
    try:
        _write(temporary, pieces, durable)
        with _locked(shared[0]):
            others = [folder for folder in shared if folder != target.parent]
            while any((folder / target.name).exists() for folder in others) or not _publish(temporary, target):
                target = next(candidates)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _write(path: Path, pieces: Sequence[bytes | memoryview], durable: bool) -> None:
    # In as few system calls as possible: each lets go of the GIL, and a collector's environments, busy with
    # short calls of their own, then pay for winning it back.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        waiting = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        while waiting:
            written = os.writev(descriptor, waiting)
            while waiting and written >= len(waiting[0]):
                written -= len(waiting.pop(0))
            if waiting:
                waiting[0] = waiting[0][written:]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a lock that two collectors share, so that they number their episodes one after the other."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:  # some network file systems have no locks
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
                raise
        yield
    finally:
        os.close(descriptor)


def _publish(temporary: Path, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # A rename would replace the target; the lock makes this test hold until the rename.
        if target.exists():
            return False
        temporary.rename(target)
    return True
