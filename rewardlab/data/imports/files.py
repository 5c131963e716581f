"""The files of a directory that is to be imported. Links that lead out of it are not followed."""

import os
import re
from pathlib import Path
from typing import NamedTuple

LINK = "a link that leads out of the directory; not followed"
LINKED_FOLDER = "a link to a directory; not followed"


class Found(NamedTuple):
    """Regular files in the order in which people count, and what was left out: its name and why."""

    files: list[Path]
    left_out: list[tuple[str, str]]


def find_files(path: Path) -> Found:
    """Return the files in a directory and below, those in hidden directories excepted; or the one file itself."""
    if path.is_file():
        return Found([path], [])
    files: list[Path] = []
    left_out = []
    root = path.resolve()
    for folder, subfolders, names in os.walk(path):
        for name in list(subfolders):
            if (linked := Path(folder, name)).is_symlink():
                left_out.append((str(linked.relative_to(path)), LINKED_FOLDER))
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for file in (Path(folder, name) for name in names if not name.startswith(".")):
            # not Path.resolve, which raises at a link that leads to itself
            if file.is_symlink() and not Path(os.path.realpath(file)).is_relative_to(root):
                left_out.append((str(file.relative_to(path)), LINK))
            elif file.is_file():  # not a pipe or a device
                files.append(file)
    return Found(sorted(files, key=lambda file: in_order(file.relative_to(path).as_posix())), sorted(left_out))


def in_order(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts names as people do: frame_2 before frame_10."""
    return [
        (int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)
    ]
