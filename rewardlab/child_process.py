"""Processes that this one starts: a new interpreter (never a fork), a channel, and an end that is never missed."""

import fcntl
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from rewardlab.errors import is_users_file

_CLOSING = 5.0  # seconds that a process has to end by itself
_KEPT_LINES = 50  # of what a process printed


class ChildProcess:
    """A process that answers messages. It ends with this one in every case, even if this one is killed."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        fds: tuple[int, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run `python -m module ARGUMENTS CHANNEL PARENT FDS`, the last ones numbers of file descriptors."""
        self._channel, theirs = Pipe()
        alive, self._alive = os.pipe()
        passed = (theirs.fileno(), alive, *fds)
        import_path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=passed,
                env={**os.environ, **(environment or {}), "PYTHONPATH": import_path},
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        finally:
            theirs.close()
            os.close(alive)
        self._printed: deque[bytes] = deque(maxlen=_KEPT_LINES)
        assert self._popen.stderr is not None
        self._reader = threading.Thread(target=_pass_on, args=(self._popen.stderr, self._printed), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def send(self, message: bytes) -> None:
        with suppress(OSError):  # it has died: `receive` finds that out
            self._channel.send_bytes(message)

    def receive(self, limit: float) -> bytes | None:
        """Return the next message, or None if the process has ended or said nothing for `limit` seconds."""
        try:
            return self._channel.recv_bytes() if self._channel.poll(limit) else None
        except (EOFError, OSError):
            return None

    def explain(self, limit: float, variable: str = "") -> str:
        """End the process if it has not ended, and say in words why it gave no answer.

        `variable` is the environment variable that sets `limit`, the seconds that it was waited for.
        """
        title = f"process {self._popen.pid}"
        try:
            status = self._popen.wait(1.0)  # its end of the connection is closed a moment before
        except subprocess.TimeoutExpired:
            why = f"{title} gave no answer for {limit:g} s" + (f" (${variable})" if variable else "")
        else:
            why = f"{title} ended with exit status {status}"
            if status < 0:
                why = f"{title} was killed by {signal.Signals(-status).name}"
                why += " (perhaps because memory ran out)" if -status == signal.SIGKILL else ""
        self.end()
        self._reader.join(1.0)
        printed = last_error(b"".join(self._printed).decode(errors="replace"))
        return f"{why} and printed last: {printed}" if printed else why

    def close(self, farewell: bytes) -> None:
        """Send a last message and close the channel, so that the process ends; end it if that takes long."""
        self.send(farewell)
        self._channel.close()  # the loop there ends
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(_CLOSING)
        self.end()

    def end(self) -> None:
        """End the process at once, and what it has started: a simulator may have a server of its own."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # it leads a session
        self._popen.wait()
        self._channel.close()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1


def last_error(printed: str) -> str:
    """Return the line that says most about the end of a process: of a crash and its place in a user's file, or last."""
    crash = re.search(r"^Fatal Python error: .*$", printed, re.MULTILINE)
    if crash:
        frames = re.findall(r'^  File "(.*)", line (\d+)', printed[crash.end() :], re.MULTILINE)
        places = [f" ({file}, line {line})" for file, line in frames if is_users_file(file)]
        return "".join([crash[0], *places[:1]])
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _pass_on(stream: Any, printed: deque[bytes]) -> None:
    """Write what a process prints to this one's standard error, and keep the last lines of it."""
    with stream:
        for line in stream:
            printed.append(line)
            with suppress(OSError):  # closed
                os.write(2, line)


def end_with_parent(pipe: int) -> None:
    """Let the system end this process when nobody holds the other end of the pipe any more, whatever it is doing.

    Nothing is ever written to the pipe: SIGIO, which ends a process, is sent when its other end is closed. A thread
    could not do that while an environment hangs in C code.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:  # it was closed before
        os._exit(1)


@dataclass
class Answer:
    """What a call in the other process returned or raised."""

    number: int  # of the call
    result: Any = None
    error: BaseException | None = None
    traceback: str = ""
    warnings: list[tuple[str, type[Warning]]] = field(default_factory=list)


def packed_answer(answer: Answer, unsendable: Callable[[Exception], Exception]) -> bytes:
    """Pickle an answer; where that fails, one whose error says so. `unsendable` words it for a result."""
    try:
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        answer.warnings = [(text, UserWarning) for text, _ in answer.warnings]
        if answer.error is not None:  # of a class that cannot be pickled
            answer.error = RuntimeError(f"{type(answer.error).__name__}: {answer.error}")
        else:
            answer.result, answer.error = None, unsendable(error)
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
