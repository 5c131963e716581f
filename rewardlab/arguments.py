"""Checks of values that configs and the command line take alike: paths, devices, seeds.

Each function returns the value in its usual form, or raises a ValueError that says what was expected.
"""

import os
import re

MAX_SEED = 2**63 - 1  # what every random generator accepts, with a small number added
MAX_NAME_BYTES = 255  # of a file or directory, on all customary file systems
MAX_PATH_BYTES = 4096


def check_path(path: str) -> str:
    """Return the text of a path, if a file could have it."""
    if not path:
        raise ValueError("a path; it is empty")
    if "\0" in path:
        raise ValueError("a path; it has a NUL character, which no name of a file has")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError("a path; it has characters that no name of a file has") from None
    if len(encoded) >= MAX_PATH_BYTES or max(map(len, encoded.split(b"/"))) > MAX_NAME_BYTES:
        raise ValueError(
            f"a path with names of at most {MAX_NAME_BYTES} bytes, and fewer than {MAX_PATH_BYTES} bytes in all"
        )
    return path


def split_device(device: str) -> tuple[str, int | None]:
    """Return the kind and the number of a device: cuda and 1 for cuda:1, cpu and None for cpu."""
    found = re.fullmatch(r"(?!auto:)([a-z]+)(?::([0-9]{1,4}))?", device)
    if found is None:
        raise ValueError("auto, cpu, cuda or another device of PyTorch such as cuda:1")
    kind, number = found[1], None if found[2] is None else int(found[2])
    if kind == "cpu" and number:
        raise ValueError("cpu, which has no numbers")
    return kind, None if kind == "cpu" else number


def check_seed(seed: int) -> int:
    """Return a seed, if every random generator takes it."""
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"a whole number from 0 to {MAX_SEED}")
    return seed
