"""Workers in processes of their own, on this machine or others, as Ray actors. Imported only when Ray is asked for."""

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rewardlab.errors import RewardlabError
from rewardlab.workers.group import Future, Make, Worker, WorkerDied

ATTEMPTS = 3  # of a call with `retry`, the first included
DEATHS = (RayActorError, OutOfMemoryError)


class Shell:
    """What runs in the other process: builds the worker and calls its methods."""

    def __init__(self, name: str, make: Make, directory: str, command: list[str]) -> None:
        self._name, self._make = name, make
        self._object: Any = None
        sys.argv = command  # a model card says by which command it came about
        if Path(directory).is_dir():  # relative paths of a config mean the driver's; another machine may not have it
            os.chdir(directory)

    def __repr__(self) -> str:  # Ray puts it before every line that the worker prints
        return self._name

    def build(self) -> None:
        # Not in __init__: what fails there reaches the driver as the death of the actor.
        self._object = self._make()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._object, method)(*args, **kwargs)


class RayWorker(Worker):
    """A worker in an actor, on the node `node_id` or wherever Ray likes."""

    def __init__(self, name: str, make: Make, *, node_id: str | None, environment: dict[str, str]) -> None:
        super().__init__(name)
        self.actor: Any = None
        self._make = make
        self._options: dict[str, Any] = {
            "num_cpus": 0.01,  # workers share the cores: two must be enough for a group of each kind
            "runtime_env": {"env_vars": {"PYTHONPATH": _import_path(), **environment}},
        }
        if node_id is not None:
            self._options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=False)

    def start(self) -> Future[None]:
        self.stop()
        make_actor = ray.remote(Shell).options(**self._options)
        self.actor = make_actor.remote(self.name, self._make, str(Path.cwd()), sys.argv)
        return RayFuture(self, "build", (), {})

    def submit(self, method: str, *args: Any, retry: bool = False, **kwargs: Any) -> Future[Any]:
        return RayFuture(self, "call", (method, *args), kwargs, attempts=ATTEMPTS if retry else 1)

    def stop(self) -> None:
        if self.actor is not None:
            ray.kill(self.actor)
            self.actor = None


class RayFuture(Future[Any]):
    """A call of an actor: remembers what was called, to call it again if the actor dies."""

    def __init__(
        self, worker: RayWorker, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], attempts: int = 1
    ) -> None:
        self._worker, self._method, self._args, self._kwargs = worker, method, args, kwargs
        self._attempts = attempts
        self._ref: Any = None
        self._send()

    def _send(self) -> None:
        self._actor = self._worker.actor
        if self._actor is None:
            raise WorkerDied(f"{self._worker.name} was stopped; it cannot be called any more")
        self._sent = {argument: argument._ref for argument in self._futures()}
        args = [_reference(argument) for argument in self._args]
        kwargs = {name: _reference(argument) for name, argument in self._kwargs.items()}
        self._ref = getattr(self._actor, self._method).remote(*args, **kwargs)

    def _futures(self) -> "list[RayFuture]":
        return [value for value in (*self._args, *self._kwargs.values()) if isinstance(value, RayFuture)]

    def done(self) -> bool:
        ready, _ = ray.wait([self._ref], timeout=0, fetch_local=False)
        return bool(ready)

    def result(self, timeout: float | None = None) -> Any:
        while True:
            try:
                return ray.get(self._ref, timeout=timeout)
            except RayTaskError as error:
                if not self._mend_arguments(error, timeout):
                    raise _original(error) from None
            except DEATHS as error:
                self._replace_worker(error)
            self._send()

    def _replace_worker(self, error: Exception) -> None:
        call = self._args[0] if self._method == "call" else "its construction"
        died = f"{self._worker.name} died during {call} ({_reason(error)})"
        self._attempts -= 1
        if self._attempts == 0:
            raise WorkerDied(died) from None
        warnings.warn(f"{died}; it is restarted and called again", RuntimeWarning, stacklevel=3)
        if self._actor is self._worker.actor:  # else another future of this worker has restarted it
            self._worker.restart()

    def _mend_arguments(self, error: RayTaskError, timeout: float | None) -> bool:
        """Whether an argument was lost with the worker that made it, and is there now by its own `retry`."""
        if not isinstance(error.cause, DEATHS):
            return False
        for argument in self._futures():
            argument.result(timeout)  # raises what names the worker that died
        return any(argument._ref is not sent for argument, sent in self._sent.items())


def _reference(argument: Any) -> Any:
    if isinstance(argument, RayFuture):
        return argument._ref
    return argument.result() if isinstance(argument, Future) else argument


def _original(error: RayTaskError) -> Exception:
    """Our own errors as they were raised; of any other, Ray's text with the traceback in the worker."""
    cause: BaseException = error
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    return cause if isinstance(cause, RewardlabError) else error


def _reason(error: Exception) -> str:
    """The telling part of Ray's many lines."""
    process = re.search(r"pid: (\d+)", str(error))
    because = re.search(r"The actor is dead because (.+?)\.", str(error))
    found = [f"process {process[1]}" if process else "", because[1] if because else type(error).__name__]
    return ": ".join(filter(None, found))


def _import_path() -> str:
    """As `multiprocessing` does for its children: whatever the driver can import, a worker can."""
    return os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
