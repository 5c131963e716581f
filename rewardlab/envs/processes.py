"""Copies of an environment in other processes: the side of the process that steps them all.

A process is a new interpreter (never a fork: a simulator that has opened a render device would hang), has some of the
copies and gets one message per step. If it dies or gives no answer, it is replaced and `ProcessDied` raised: what its
copies did since their last reset is lost, so that the caller resets all environments and does its work again.
"""

import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rewardlab.data.episodes import Array
from rewardlab.envs.shared_memory import SharedMemory
from rewardlab.errors import ConfigError, ProcessDied, ProcessLost, RewardlabError, is_users_file

# Environment variable: seconds without an answer after which a process is replaced. While copies are built, they are at
# least _TIMEOUT for each copy.
TIMEOUT = "REWARDLAB_ENV_TIMEOUT"
_TIMEOUT = 300.0
SOON = 60.0  # seconds of work after a replacement; a process that dies again before is an error
_CLOSING = 5.0  # seconds that environments have to close
_KEPT_LINES = 50  # of what a process printed
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1"
    for library in ("OMP", "OPENBLAS", "MKL", "LP")  # LP: the software Vulkan driver
}

FramePlaces: TypeAlias = dict[str, tuple[tuple[int, ...], str, int]]  # camera -> shape, dtype and offset of its frames


@dataclass
class Answer:
    """What a call in the other process returned or raised."""

    number: int  # of the call
    result: Any = None
    error: BaseException | None = None
    traceback: str = ""
    warnings: list[tuple[str, type[Warning]]] = field(default_factory=list)


class ProcessTraceback(Exception):
    """Shows where in the other process an error was raised, as the cause of that error."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class ProcessGroup:
    """Some of the copies, in another process; has the methods of `CopyGroup`, by `submit` and `collect`."""

    def __init__(
        self, name: str, makers: Sequence[Callable[[], Any]], rows: Sequence[int], observations: SharedMemory
    ) -> None:
        self._name = name
        self._copies = len(rows)
        listed = list(map(str, rows))
        self._title = ", ".join(listed if len(listed) <= 4 else [*listed[:2], "...", listed[-1]])
        self._makers = packed_makers(name, [makers[row] for row in rows])
        self._memory = observations
        self._frames = SharedMemory()
        self._setup: dict[str, tuple[Any, ...]] = {}
        self._number = 0
        self._method = ""
        self._replaced = False
        self._started = self._last_answer = 0.0
        self._process: _Process | None = None

    def start(self) -> None:
        """Start the process and let it build the copies; `collect` returns the description of the first."""
        fds = (self._memory.fd, self._frames.fd)
        self._process = process = _Process(self._name, fds)
        weakref.finalize(self, process.end)
        self._started = self._last_answer = time.monotonic()
        self.submit("build", self._makers)

    def remember(self, method: str, *args: Any) -> None:
        """Repeat this call in a process that replaces this one, instead of earlier calls of the same method."""
        self._setup[method] = args

    def submit(self, method: str, *args: Any) -> None:
        """Begin a call; other processes can be called before its result is collected."""
        self._number, self._method = self._number + 1, method
        self._running().send(pickle.dumps((self._number, method, args), pickle.HIGHEST_PROTOCOL))

    def collect(self) -> Any:
        """Wait for the result of the last call; raise its error, or ProcessDied."""
        answer = self._wait()
        self._last_answer = time.monotonic()
        for text, category in answer.warnings:
            warnings.warn(text, category, stacklevel=4)
        if answer.error is None:
            return self._copied(answer.result) if self._method == "draw" else answer.result
        answer.error.traceback_str = answer.traceback  # type: ignore[attr-defined]  # read by errors.user_traceback
        raise answer.error from ProcessTraceback(answer.traceback)

    def close(self) -> None:
        self._setup = {}
        process, self._process = self._process, None
        if process is not None:
            process.close()
        self._frames.close()

    def _wait(self) -> Answer:
        limit = max(timeout(), _TIMEOUT) * self._copies if self._method == "build" else timeout()
        while True:
            received = self._running().receive(limit)
            if received is None:
                raise self._replace(limit)
            answer: Answer = pickle.loads(received)
            if answer.number == self._number:  # else of a call that was interrupted (Ctrl-C)
                return answer

    def _replace(self, limit: float) -> RewardlabError:
        """Start another process instead of the one that died, and return the error that says so."""
        process, self._process = self._running(), None
        built = self._method == "build"
        doing = {"build": "while they were built", "draw": "while they were drawn"}.get(self._method)
        why = f"{doing or f'in {self._method}()'}: {process.explain(limit)}"
        found = f"copies {self._title} of '{self._name}' are lost, {why}"
        soon = self._replaced and self._last_answer - self._started < SOON
        if built or soon:
            again = "" if not soon else f". They were lost less than {SOON:g} s of work ago, too"
            return ProcessLost(f"{found}{again}. With env.train.processes=1 they run in the main process")
        self._replaced = True
        self.start()
        self.collect()
        for name, args in self._setup.items():
            self.submit(name, *args)
            self.collect()
        return ProcessDied(f"{found}; they were built again in a new process")

    def _running(self) -> "_Process":
        if self._process is None:
            raise gymnasium.error.ClosedEnvironmentError(f"copies {self._title} of '{self._name}' are closed")
        return self._process

    def _copied(self, places: FramePlaces) -> dict[str, Array]:
        return {camera: np.array(self._frames.array(*place)) for camera, place in places.items()}


def start_groups(
    name: str, makers: Sequence[Callable[[], Any]], shares: Sequence[Sequence[int]], observations: SharedMemory
) -> tuple[list[ProcessGroup], Any]:
    """Start a process for each share of the copies; return them and the description of the first copy."""
    groups = [ProcessGroup(name, makers, rows, observations) for rows in shares]
    try:
        for group in groups:
            group.start()
        descriptions = [group.collect() for group in groups]
        return groups, descriptions[0]
    except BaseException:
        for group in groups:
            group.close()
        raise


def packed_makers(name: str, makers: Sequence[Callable[[], Any]]) -> bytes:
    """Return what builds copies as another process can read it."""
    try:
        packed = pickle.dumps(list(makers), pickle.HIGHEST_PROTOCOL)
        found = "it is defined in the script that was started (__main__)" if b"__main__" in packed else ""
    except Exception as error:
        found = str(error)
    if found:
        expected = _expected_instead(makers[0], found)
        raise ConfigError(
            f"'{name}' cannot be built in another process: {found}. {expected}, or set env.train.processes=1"
        )
    return packed


def _expected_instead(maker: Callable[[], Any], found: str) -> str:
    """Return what another process could build instead of something in the script, or a lambda, or a local class."""
    if "__main__" in found:
        return "Define and register it in a module of its own and import that"
    for part in getattr(maker, "args", ()):
        if isinstance(part, EnvSpec) and not _can_be_pickled(part):
            module = getattr(part.entry_point, "__module__", "module")
            return (
                "Register it with entry_point='module:Class' or a function that a module defines, or name the module "
                f"that registers it, such as env.train.id={module}:{part.id}"
            )
    return "Expected functions and classes that a module defines, also among its options: no lambdas, no local ones"


def _can_be_pickled(value: Any) -> bool:
    try:
        pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return False
    return True


def timeout() -> float:
    """Return the seconds without an answer after which a process counts as hanging."""
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text or _TIMEOUT)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ConfigError(f"{TIMEOUT}: found {text!r}, expected a number of seconds above 0")
    return seconds


class _Process:
    """A process that answers messages. It ends with this one in every case, even if this one is killed."""

    def __init__(self, name: str, fds: tuple[int, ...]) -> None:
        self._channel, theirs = Pipe()
        alive, self._alive = os.pipe()
        passed = (theirs.fileno(), alive, *fds)
        import_path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "rewardlab.envs.process_main", name, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=passed,
                env={**os.environ, **_ONE_THREAD, "PYTHONPATH": import_path},
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        finally:
            theirs.close()
            os.close(alive)
        self._printed: deque[bytes] = deque(maxlen=_KEPT_LINES)
        assert self._popen.stderr is not None
        self._reader = threading.Thread(target=_pass_on, args=(self._popen.stderr, self._printed), daemon=True)
        self._reader.start()

    def send(self, message: bytes) -> None:
        with suppress(OSError):  # it has died: `receive` finds that out
            self._channel.send_bytes(message)

    def receive(self, limit: float) -> bytes | None:
        """Return the next message, or None if the process has ended or said nothing for `limit` seconds."""
        try:
            return self._channel.recv_bytes() if self._channel.poll(limit) else None
        except (EOFError, OSError):
            return None

    def explain(self, limit: float) -> str:
        """End the process if it has not ended, and say in words why it gave no answer."""
        title = f"process {self._popen.pid}"
        try:
            status = self._popen.wait(1.0)  # its end of the connection is closed a moment before
        except subprocess.TimeoutExpired:
            why = f"{title} gave no answer for {limit:g} s (${TIMEOUT})"
        else:
            why = f"{title} ended with exit status {status}"
            if status < 0:
                why = f"{title} was killed by {signal.Signals(-status).name}"
                why += " (perhaps because memory ran out)" if -status == signal.SIGKILL else ""
        self.end()
        self._reader.join(1.0)
        printed = last_error(b"".join(self._printed).decode(errors="replace"))
        return f"{why} and printed last: {printed}" if printed else why

    def close(self) -> None:
        """Let the process close its environments, and end it if that takes long."""
        self.send(pickle.dumps((0, "close", ())))
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
