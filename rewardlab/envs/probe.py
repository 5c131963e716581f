"""Tries in a child process whether something works: a driver that does not may end the process that loads it."""

import os
import subprocess
import sys
from collections.abc import Mapping

SECONDS = 300
# Ends at once: what is half built may fail again when Python takes it down, and say so after the reason.
RUNNER = """
import os, sys
try:
    exec(sys.argv[1], {})
except BaseException as error:
    sys.stderr.write(f"{type(error).__name__}: {error}")
    sys.stderr.flush()
    os._exit(1)
os._exit(0)
"""


def why_it_fails(code: str, settings: Mapping[str, str] | None = None) -> str | None:
    """Run Python code in a child with these environment variables; return None if it ends well, else the reason."""
    command = [sys.executable, "-W", "ignore", "-c", RUNNER, code]
    environment = {**os.environ, **(settings or {})}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} s"
    if done.returncode < 0:
        return f"the process was ended by signal {-done.returncode}"
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else None
