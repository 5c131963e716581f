"""Files that appear complete or not at all, and never replace one another."""

import errno
import fcntl
import itertools
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from rewardlab.errors import StorageError

_LEFTOVER = re.compile(r"^\..+\.(\d+)\.([0-9a-f]{8})?[0-9a-f]{8}\.tmp$")
_FIRST_TOKEN = secrets.randbits(32)  # machines that share a directory may share process ids
_counter = itertools.count()
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


@cache
def _machine() -> str:
    """Return where process ids mean what they mean here: this start of this machine, and this container of it."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 (not a file)
        text = f"{Path('/proc/sys/kernel/random/boot_id').read_text()} {namespace}"
    except OSError:
        text = secrets.token_hex()  # not known: what this process leaves behind stays
    return f"{zlib.crc32(text.encode()):08x}"


def temporary_path(target: Path) -> Path:
    """A hidden name beside `target` that tells which process is writing it."""
    token = (_FIRST_TOKEN + next(_counter)) % 2**32
    return target.with_name(f".{target.stem}.{os.getpid()}.{_machine()}{token:08x}.tmp")


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


def remove_leftovers(directory: Path, *, of: str = "", whoever: bool = False) -> None:
    """Remove temporary files and directories that killed processes left; `of` is the stem of their target, "" for all.

    Only those of processes of this machine: others may share the directory. With `whoever`, all of them, for one who
    holds a lock without which nobody writes there.
    """
    prefix = f".{of}." if of else "."
    for entry in directory.iterdir() if directory.is_dir() else ():
        match = _LEFTOVER.match(entry.name)
        if match is None or not entry.name.startswith(prefix):
            continue
        if whoever or (match[2] == _machine() and leftover_of(entry) is not None):
            shutil.rmtree(entry, ignore_errors=True)
            with suppress(OSError):
                entry.unlink()


def write_new(
    names: Iterable[Path], pieces: Sequence[bytes | memoryview], *, elsewhere: Path | None, durable: bool
) -> Path:
    """Write a file and publish it under the first of `names` (in one directory) that is free, there and `elsewhere`.

    Nothing is visible under a final name before it is complete (with `durable`: on the disk, so that it survives a
    power cut too), and nothing is replaced, whoever else writes there. On any failure, Ctrl-C included, the temporary
    file is removed.
    """
    candidates = iter(names)
    target = next(candidates)
    temporary = temporary_path(target)
    try:
        _write(temporary, pieces, durable)
        while (elsewhere is not None and (elsewhere / target.name).exists()) or not _publish(temporary, target):
            target = next(candidates)
        if durable:
            sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return target


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield the path for a temporary file or directory; it becomes `target` at the end, and is removed on errors."""
    temporary = temporary_path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise StorageError(f"could not write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):
            temporary.unlink()


def replace_file(target: Path, content: bytes, *, durable: bool = True) -> Path:
    """Write a file that people open, in place of an earlier one: either the old or the new one is there, whole.

    `durable` waits for the disk, so that this holds after a power cut too.
    """
    with replacing(target) as temporary:
        _write(temporary, [content], durable=durable)
    return target


def sync_directory(directory: Path) -> None:
    """A name survives a power cut only when its directory is on the disk too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, pieces: Sequence[bytes | memoryview], durable: bool) -> None:
    # A large buffer, for few system calls: each lets go of the GIL, and environments that are stepping meanwhile wait
    # longer to win it back than the call takes.
    with path.open("xb", buffering=2**20) as file:
        file.writelines(pieces)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _publish(temporary: Path, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _rename_locked(temporary, target)
    return True


def _rename_locked(temporary: Path, target: Path) -> bool:
    """For file systems without hard links. A rename replaces its target, so writers take turns to look and rename."""
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        if target.exists():
            return False
        temporary.rename(target)
        return True
    finally:
        os.close(directory)
