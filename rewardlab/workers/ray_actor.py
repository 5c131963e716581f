"""Workers in processes of their own, on this machine or others, as Ray actors. Imported only when Ray is asked for."""

import io
import os
import re
import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rewardlab.errors import RewardlabError
from rewardlab.workers.group import Future, Make, Worker, WorkerDied

ATTEMPTS = 3  # of a call that may be repeated, the first included
DEATHS = (RayActorError, OutOfMemoryError)

# By Ray's id of every actor it has had, to name the worker that died.
WORKERS: "weakref.WeakValueDictionary[str, RayWorker]" = weakref.WeakValueDictionary()


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

    def build(self, copy: bytes | None = None) -> None:
        # Not in __init__: what fails there reaches the driver as the death of the actor.
        self._object = self._make() if copy is None else _from_bytes(copy)

    def copy(self) -> tuple[bytes, None]:
        """The worker, for Ray's store, and nothing, for whoever waits until it is there."""
        return _to_bytes(self._object), None

    def pid(self) -> int:
        return os.getpid()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._object, method)(*args, **kwargs)


class RayWorker(Worker):
    """A worker in an actor, on the node `node_id` or wherever Ray likes."""

    def __init__(self, name: str, make: Make, *, node_id: str | None, environment: dict[str, str]) -> None:
        super().__init__(name)
        self.actor: Any = None
        self._make = make
        self._copy: Any = None  # of the worker after its last change: a reference into Ray's store
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
        WORKERS[self.actor._actor_id.hex()] = self
        return RayFuture(self, "build", (self._copy,), {})

    def submit(self, method: str, *args: Any, retry: bool = False, **kwargs: Any) -> Future[Any]:
        return RayFuture(self, "call", (method, *args), kwargs, attempts=ATTEMPTS if retry else 1)

    def change(self, method: str, *args: Any) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result = self.submit(method, *args).result()
                self._copy = self._made_copy()
            except WorkerDied as death:
                if attempt == ATTEMPTS:
                    raise
                warnings.warn(f"{death}; it is restarted and called again", RuntimeWarning, stacklevel=2)
                self.restart()
            else:
                return result
        raise AssertionError("unreachable")

    def _made_copy(self) -> Any:
        copy, made = self.actor.copy.options(num_returns=2).remote()
        try:
            ray.get(made)
        except DEATHS as error:
            raise WorkerDied(f"{self.name} died while it was copied ({_reason(error)})") from None
        except RayTaskError as error:
            raise RewardlabError(
                f"{self.name} cannot be copied ({error.cause}). On Ray a worker that learns must be made of what "
                "pickle knows, so that it survives the death of its process; or set cluster.backend=local"
            ) from error
        return copy

    def stop(self) -> None:
        if self.actor is not None:
            ray.kill(self.actor)
            self.actor = None


class RayFuture(Future[Any]):
    """A call of an actor, which may be attempted several times."""

    def __init__(
        self, worker: RayWorker, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], attempts: int = 1
    ) -> None:
        self._worker = worker
        self._title = str(args[0]) if method == "call" else "its construction"
        self._call = (method, args, kwargs)
        self._attempts = attempts  # that are left, the one under way included
        self._send()

    def _send(self) -> None:
        method, args, kwargs = self._call
        self._actor = self._worker.actor
        if self._actor is None:
            raise WorkerDied(f"{self._worker.name} was stopped; it cannot be called any more")
        named = {name: _reference(argument) for name, argument in kwargs.items()}
        self._ref = getattr(self._actor, method).remote(*map(_reference, args), **named)
        if self._attempts == 1:
            self._forget()

    def _forget(self) -> None:
        # A future that kept its arguments, which may be futures, would keep every step of a run from the first on.
        self._call = ("", (), {})

    def done(self) -> bool:
        ready, _ = ray.wait([self._ref], timeout=0, fetch_local=False)
        return bool(ready)

    def result(self, timeout: float | None = None) -> Any:
        while True:
            try:
                value = ray.get(self._ref, timeout=timeout)
            except RayTaskError as error:
                if not isinstance(error.cause, DEATHS):
                    raise _original(error) from None
                self._recover_arguments(error.cause)
            except DEATHS as error:
                self._replace_worker(error)
            else:
                self._forget()
                return value
            self._send()

    def _replace_worker(self, error: Exception) -> None:
        died = f"{self._worker.name} died during {self._title} ({_reason(error)})"
        self._attempts -= 1
        if self._attempts == 0:
            raise WorkerDied(died) from None
        warnings.warn(f"{died}; it is restarted and called again", RuntimeWarning, stacklevel=3)
        if self._actor is self._worker.actor:  # else another future of this worker has restarted it
            self._worker.restart()

    def _recover_arguments(self, error: Exception) -> None:
        """An argument was lost with the worker that made it: have it made again, if it may be."""
        self._attempts -= 1
        if self._attempts == 0:
            maker = WORKERS.get(getattr(error, "actor_id", ""))
            name = "a worker" if maker is None else maker.name
            told = f"{name} died ({_reason(error)}) before it gave {self._worker.name} what {self._title} needs"
            raise WorkerDied(told) from None
        _, args, kwargs = self._call
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, RayFuture):
                argument.result()


def _reference(argument: Any) -> Any:
    if isinstance(argument, RayFuture):
        return argument._ref
    return argument.result() if isinstance(argument, Future) else argument


def _to_bytes(worker: Any) -> bytes:
    # Not by pickle alone: of a thousand rows of one tensor it would write the tensor a thousand times. And arrays that
    # Ray itself reads out of its store cannot be written to.
    import torch

    buffer = io.BytesIO()
    torch.save(worker, buffer, pickle_module=cloudpickle)
    return buffer.getvalue()


def _from_bytes(copy: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(copy), weights_only=False)


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
