"""Limits on the memory that reading one file may take: a small file must not be able to fill the machine.

Two environment variables change them. They are not keys of a config, because a config that lies in a directory from
somebody else could raise its own limits, and commands such as `rewardlab data info` have no config.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

from rewardlab.errors import ConfigError, DataError

MAX_PIXELS = "REWARDLAB_MAX_PIXELS"
MAX_FILE_BYTES = "REWARDLAB_MAX_FILE_BYTES"

_PIXELS = 2**26  # 8192 x 8192
# Contents that are larger than their file (shared references, compression) are fine up to here ...
_FREE_BYTES = 2**28
# ... or up to this multiple of the file. bfloat16 needs four times its size while it is read.
_EXPANSION = 8
_OBJECT_BYTES = 32  # of a Python object, on top of its text or numbers
_MAX_DEPTH = 100
_NUMBERS = {type(None), bool, int, float}
_MAX_TEXT = 200


def check_pixels(height: int, width: int, name: object) -> None:
    """Raise unless a picture of this size may be decoded; `name` is what the error calls it."""
    limit = _from_environment(MAX_PIXELS) or _PIXELS
    if height * width > limit:
        raise DataError(
            f"{name}: a picture of {width} x {height} pixels, more than the limit of {limit:,} pixels. If that is "
            f"right, set the environment variable {MAX_PIXELS}={height * width}"
        )


def check_bytes(needed: int, file_bytes: int, name: object) -> None:
    """Raise unless the contents of a file of `file_bytes` may take `needed` bytes of memory."""
    limit = max_bytes(file_bytes)
    if needed > limit:
        raise DataError(
            f"{name}: its contents take {_readable(needed)} in memory, more than the limit of {_readable(limit)} for "
            f"a file of {_readable(file_bytes)}. If you trust the file, set the environment variable "
            f"{MAX_FILE_BYTES} to a larger number of bytes"
        )


def max_bytes(file_bytes: int) -> int:
    """Return how much memory the contents of a file may take."""
    return _from_environment(MAX_FILE_BYTES) or max(_FREE_BYTES, _EXPANSION * file_bytes)


def check_file_size(file_bytes: int, name: object) -> None:
    """Raise unless a file of this size may be read into memory as a whole."""
    limit = _from_environment(MAX_FILE_BYTES) or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if file_bytes > limit:
        raise DataError(
            f"{name}: a file of {_readable(file_bytes)}, more than the limit of {_readable(limit)} (the memory of this "
            f"machine, or {MAX_FILE_BYTES}). If that is right, set the environment variable "
            f"{MAX_FILE_BYTES}={file_bytes}"
        )


def check_expanded(value: Any, name: object, bytes_of: Callable[[Any], int]) -> None:
    """Raise if a nested value would be far larger without its shared parts, which most code meets one by one.

    A list of two references to a list of two references ... is small in memory and endless to walk. `bytes_of` gives
    the size of what is not a container.
    """
    expanded, unshared = _measure(value, name, bytes_of)
    check_bytes(expanded, unshared, name)


def _measure(value: Any, name: object, bytes_of: Callable[[Any], int]) -> tuple[int, int]:
    """Return the size of a value with shared parts counted wherever they occur, and with each counted once."""
    measured: dict[int, tuple[int, int]] = {}  # by id: size with all that is inside, and depth
    entered: set[int] = set()
    unshared = 0
    pending: list[tuple[Any, list[Any] | None, int]] = [(value, None, 0)]  # a value, its parts and its own size
    while pending:
        node, parts, own = pending.pop()
        if id(node) in measured:
            continue
        if parts is None:
            items = container_items(node)
            parts = [] if items is None else [item for item in items if not _is_small(item)]
            own = _OBJECT_BYTES + (bytes_of(node) if items is None else _OBJECT_BYTES * len(items))
            unshared += own
            if parts:
                if id(node) in entered:
                    raise DataError(f"{name}: holds a {type(node).__name__} that contains itself")
                entered.add(id(node))
                pending.append((node, parts, own))
                pending.extend((part, None, 0) for part in parts)
                continue
        inside = [measured[id(part)] for part in parts]
        depth = 1 + max((depth for _, depth in inside), default=0)
        if depth > _MAX_DEPTH:
            raise DataError(f"{name}: is nested more than {_MAX_DEPTH} deep")
        measured[id(node)] = min(own + sum(size for size, _ in inside), 2**62), depth
    return measured[id(value)][0], unshared


def container_items(value: Any) -> list[Any] | None:
    """Return what is in a container, keys included, or None if `value` is not a container."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if getattr(getattr(value, "dtype", None), "hasobject", False):  # an array of objects
        return list(value.flat)
    return None


def _is_small(value: Any) -> bool:
    """Return whether a value costs so little that it does not matter whether it is shared."""
    kind = type(value)
    return kind in _NUMBERS or (kind is str and len(value) <= _MAX_TEXT)


def excerpt(text: object) -> str:
    """Return the beginning of a text from a file, for an error message."""
    words = str(text)
    return words if len(words) <= _MAX_TEXT else f"{words[:_MAX_TEXT]} ..."


def listed(names: Iterable[object], most: int = 8) -> str:
    """Return the first names of what a file holds, for an error message."""
    words = [excerpt(name) for name in names]
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _from_environment(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0):
        raise ConfigError(f"environment variable {variable}: found {excerpt(text)!r}, expected a whole number above 0")
    return int(text)


def _readable(count: int) -> str:
    """Return a number of bytes in words."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"
