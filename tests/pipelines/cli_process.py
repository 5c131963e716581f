"""The command line as the target of a process: it ends with the exit code that a shell would see."""

import os
import signal
import sys
import time
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from rewardlab.cli import main

SECONDS = 120.0


def run_cli(arguments: list[str]) -> None:
    sys.exit(main(arguments))


class CliProcess:
    """A command in a process of its own, whose output goes to a file."""

    def __init__(self, context: ForkServerContext, output: Path, *arguments: str) -> None:
        self.output = output
        self._process: BaseProcess = context.Process(target=_run_into, args=(str(output), list(arguments)))
        self._process.start()

    @property
    def said(self) -> str:
        """What it printed, without the line breaks of a narrow terminal."""
        return " ".join(self.output.read_text().split()) if self.output.exists() else ""

    def wait_for(self, path: Path, pattern: str = "*") -> None:
        """Wait until there is a file like this."""
        end = time.monotonic() + SECONDS
        while not list(path.glob(pattern)):
            assert self._process.is_alive(), self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.01)

    def wait_for_words(self, words: str) -> None:
        end = time.monotonic() + SECONDS
        while words not in self.said:
            assert self._process.is_alive(), self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.01)

    def send(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def join(self) -> int | None:
        """Return its exit status once it has ended."""
        self._process.join(SECONDS)
        if self._process.is_alive():
            self._process.kill()
            raise AssertionError(f"still running: {self.said}")
        return self._process.exitcode


def _run_into(output: str, arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where pytest runs in the background
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    run_cli(arguments)
