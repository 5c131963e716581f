"""Tries in a child process whether something works: a driver that does not may end the process that loads it."""

import os
import subprocess
import sys
from collections.abc import Mapping

SECONDS = 300


def why_it_fails(code: str, settings: Mapping[str, str] | None = None) -> str | None:
    """Run Python code in a child with these environment variables; return None if it ends well, else the reason."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    try:
        done = subprocess.run(
            command, env={**os.environ, **(settings or {})}, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} s"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"the process was ended by signal {-done.returncode}"
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
