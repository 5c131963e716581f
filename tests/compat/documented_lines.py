"""Runs command lines of the older documentation, through the real scripts, without starting Python for each."""

import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rewardlab.cli import main

# Stands where the scripts look for Python and writes down how it was called. (`-c` is their check that rewardlab is
# there.)
RECORDER = """#!/bin/sh
[ "$1" = -c ] || printf '%s\\0' "$EMBODIED_PATH" "$PWD" "$@"
"""
RunLine = Callable[..., int]  # (command, *more words, cwd=...) -> exit status


def words_of(command: str) -> list[str]:
    return shlex.split(command.replace("\\\n", ""))


def run_words(words: list[str], cwd: Path) -> int:
    """Run a command and return its exit status; what it gives to Python is run in this process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(cwd)
        if words[0] == "python":
            patched.setenv("EMBODIED_PATH", str(cwd / "examples" / "embodiment"))
            return _run_python(words[1:], patched)
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        embodied_path, place, *arguments = done.stdout.removesuffix("\0").split("\0")
        patched.setenv("EMBODIED_PATH", embodied_path)
        patched.chdir(place)
        return _run_python(arguments, patched)


def _run_python(words: list[str], patched: pytest.MonkeyPatch) -> int:
    if words[:2] == ["-m", "rewardlab.cli"]:
        return main(words[2:])
    is_module = words[0] == "-m"
    patched.setattr(sys, "argv", words[is_module:])
    run: Callable[..., Any] = runpy.run_module if is_module else runpy.run_path
    with pytest.raises(SystemExit) as end:
        run(words[is_module], run_name="__main__")
    return int(end.value.code or 0)
