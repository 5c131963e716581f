"""Opens files that others may have made: regular files alone, never a pipe, a device or a directory."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from rewardlab.errors import DataError
from rewardlab.limits import check_file_size
from rewardlab.registry import nearest_name

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def nearest_path(path: str | Path) -> str:
    """Return a hint, for the error about a path that does not exist, at the name beside it that is most like it."""
    path = Path(path)
    try:
        near = nearest_name(path.name, [file.name for file in path.parent.iterdir()])
    except OSError:
        near = None
    return "" if near is None else f" (did you mean {path.with_name(near)}?)"


def open_file(path: str | Path) -> BinaryIO:
    """Open a file for reading; raises a DataError for what is not a file, and OSError as `open` does."""
    check_is_file(path)  # before it is opened: opening a device may already do something
    # Without O_NONBLOCK, a pipe that took the file's place in the meantime would wait for a writer without end.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _check_kind(os.fstat(file.fileno()), path)
    except DataError:
        file.close()
        raise
    return file


def check_is_file(path: str | Path) -> int:
    """Raise unless `path` is a regular file, and return its size; for libraries that open files themselves."""
    return _check_kind(Path(path).stat(), path)


def read_file(path: str | Path) -> bytes:
    """Return the contents of a file; one that is larger than the memory is a DataError."""
    with open_file(path) as file:
        check_file_size(os.fstat(file.fileno()).st_size, path)
        return file.read()


def _check_kind(status: os.stat_result, path: str | Path) -> int:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise DataError(f"{path} is {kind}; expected a file")
    return status.st_size
