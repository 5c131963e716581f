"""Copies of an environment in other processes: the side of the process that steps them all.

A process is a new interpreter (never a fork: a simulator that has opened a render device would hang), has some of the
copies and gets one message per step. If it dies or gives no answer, it is replaced and `ProcessDied` raised: what its
copies did since their last reset is lost, so that the caller resets all environments and does its work again.
"""

import math
import os
import pickle
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rewardlab.child_process import Answer, ChildProcess
from rewardlab.data.episodes import Array
from rewardlab.envs.shared_memory import SharedMemory
from rewardlab.errors import ConfigError, ProcessDied, ProcessLost, RewardlabError

# Environment variable: seconds without an answer after which a process is replaced. While copies are built, they are at
# least _TIMEOUT for each copy.
TIMEOUT = "REWARDLAB_ENV_TIMEOUT"
_TIMEOUT = 300.0
SOON = 60.0  # seconds of work after a replacement; a process that dies again before is an error
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1"
    for library in ("OMP", "OPENBLAS", "MKL", "LP")  # LP: the software Vulkan driver
}

FramePlaces: TypeAlias = dict[str, tuple[tuple[int, ...], str, int]]  # camera -> shape, dtype and offset of its frames


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
        self._process: ChildProcess | None = None

    def start(self) -> None:
        """Start the process and let it build the copies; `collect` returns the description of the first."""
        fds = (self._memory.fd, self._frames.fd)
        self._process = process = ChildProcess("rewardlab.envs.process_main", [self._name], fds, _ONE_THREAD)
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
            process.close(pickle.dumps((0, "close", ())))
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
        why = f"{doing or f'in {self._method}()'}: {process.explain(limit, TIMEOUT)}"
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

    def _running(self) -> ChildProcess:
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
