"""Files that appear complete or not at all, and never replace one another."""

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: publishing by hard link alone still never overwrites
    fcntl = None  # type: ignore[assignment]

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
    names: Iterable[Path], write: Callable[[BinaryIO], None], *, shared: Sequence[Path], durable: bool
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
        with temporary.open("xb", buffering=1 << 16) as file:
            write(file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        with _locked(shared[0]):
            others = [folder for folder in shared if folder != target.parent]
            while any((folder / target.name).exists() for folder in others) or not _publish(temporary, target):
                target = next(candidates)
    finally:
        temporary.unlink(missing_ok=True)
    return target


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a lock that two collectors share, so that they number their episodes one after the other."""
    if fcntl is None:
        yield
        return
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
