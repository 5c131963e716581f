"""Workers as Ray actors: each runs in its own process, on this machine or another. Imported only if Ray is used."""

import io
import os
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import ActorUnschedulableError, ObjectLostError, OutOfMemoryError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rewardlab.errors import RewardlabError
from rewardlab.workers.group import Future, Guard, MakeWorker, StateLost, Worker, WorkerDied
from rewardlab.workers.placement import NodeDevice

ATTEMPTS = 3  # number of times that a call with `retry` is made at most
# A result is lost when the node whose memory it is in leaves the cluster, and the worker with it.
DEATHS = (RayActorError, OutOfMemoryError, ObjectLostError, ActorUnschedulableError)
CONSTRUCTION = "its construction"
CPUS = 0.01  # that a worker reserves: workers share cores, and all groups of a run must fit on two
PATIENCE = 10.0  # seconds after which a worker that cannot start yet says what it waits for

# The workers by the IDs of their Ray actors, so that an error can name the worker that died.
WORKERS: "weakref.WeakValueDictionary[str, RayWorker]" = weakref.WeakValueDictionary()


class WorkerProcess:
    """The Ray actor: builds the worker object in its process and calls its methods."""

    def __init__(
        self, name: str, make: MakeWorker, guard: Guard, directory: str, command: list[str], driver_node: str
    ) -> None:
        self._name, self._make, self._guard = name, make, guard
        self._directory, self._driver_node = directory, driver_node
        self._object: Any = None
        sys.argv = command  # model cards print the command

    def __repr__(self) -> str:  # Ray prefixes every line that the worker prints with it
        return getattr(self, "_name", "worker")  # Ray asks even if the arguments of __init__ could not be read

    def build(self, copy: bytes | None = None) -> None:
        """Build the worker object, or load a copy of it."""
        # Not in __init__: an error there would reach the driver as the death of the actor.
        with self._naming_the_node(), self._guard():
            self._enter_directory()
            if copy is None:
                self._object = self._make()
            else:
                import torch  # here, because not every worker needs torch

                self._object = torch.load(io.BytesIO(copy), weights_only=False)

    def _enter_directory(self) -> None:
        """Go to the driver's current directory, so that relative paths of the config mean the same on every node."""
        try:
            Path(self._directory).mkdir(parents=True, exist_ok=True)
            os.chdir(self._directory)
        except OSError as error:
            raise RewardlabError(
                f"{self._name}: {self._directory}, the current directory of this run, cannot be entered or made "
                f"({error.strerror}). Start the run in a directory that exists on every node"
            ) from error

    @contextmanager
    def _naming_the_node(self) -> Iterator[None]:
        """Add the worker and its node to errors on other nodes than the driver's: files may be missing there only."""
        try:
            yield
        except RewardlabError as error:
            context = ray.get_runtime_context()
            if context.get_node_id() != self._driver_node:
                address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
                error.args = (f"{error} (found by {self._name} on node {address})", *error.args[1:])
            raise

    def copy(self) -> tuple[bytes, None]:
        """Return a copy of the worker object for Ray's store, and a None to wait for."""
        import torch

        # Not with pickle alone: it would write a tensor once for every view of it. Not as objects in Ray's store
        # either: arrays read from there are read-only.
        buffer = io.BytesIO()
        torch.save(self._object, buffer, pickle_module=cloudpickle)
        return buffer.getvalue(), None

    def pid(self) -> int:
        return os.getpid()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        with self._naming_the_node(), self._guard():
            return getattr(self._object, method)(*args, **kwargs)


class RayWorker(Worker):
    """A worker in a Ray actor at `place`; a node without an ID lets Ray choose the node.

    `make(device)` builds the worker object, and its calls run in `guard(device)`. If the node leaves the cluster, the
    worker is restarted at `move(place)`, which raises NodeLost if there is no such place.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[str], Any],
        place: NodeDevice,
        *,
        move: Callable[[NodeDevice], NodeDevice],
        environment: dict[str, str],
        guard: Callable[[str], AbstractContextManager[None]],
        call_threads: int = 1,
    ) -> None:
        super().__init__(name)
        self.place, self._move = place, move
        self.actor: Any = None
        self._make, self._guard = make, guard
        self._copy: Any = None  # Ray's reference to a copy of the worker after its last `change`
        # A worker can import the same modules as the driver, as with `multiprocessing`.
        import_path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
        self._options: dict[str, Any] = {
            "num_cpus": CPUS,
            "max_concurrency": call_threads,
            "runtime_env": {"env_vars": {"PYTHONPATH": import_path, **environment}},
        }

    def start(self) -> Future[None]:
        self.make_actor()
        return RayFuture(self, "build", (self._copy,), {})

    def make_actor(self) -> None:
        """Start a process for the worker, on another node if its node has left the cluster."""
        self.stop()
        if self.node_is_lost:
            before, self.place = self.place, self._move(self.place)
            warnings.warn(
                f"{self.name} moves to node {self.place.node.address} ({self.place.device}): node "
                f"{before.node.address} has left the Ray cluster",
                RuntimeWarning,
                stacklevel=2,
            )
        node_id, device = self.place.node.id, self.place.device
        where = {} if node_id is None else {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}
        make_actor = ray.remote(WorkerProcess).options(**self._options, **where)
        make, guard = partial(self._make, device), partial(self._guard, device)
        driver_node = ray.get_runtime_context().get_node_id()
        self.actor = make_actor.remote(self.name, make, guard, str(Path.cwd()), sys.argv, driver_node)
        WORKERS[self.actor._actor_id.hex()] = self

    @property
    def node_is_lost(self) -> bool:
        return self.place.node.id is not None and not self._node.get("Alive")

    def submit(self, method: str, *args: Any, retry: bool = False, **kwargs: Any) -> Future[Any]:
        return RayFuture(self, "call", (method, *args), kwargs, attempts=ATTEMPTS if retry else 1)

    def change(self, method: str, *args: Any) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result = self.submit(method, *args).result()
                self._copy = self._copy_worker()
            except WorkerDied as death:
                if attempt == ATTEMPTS:
                    raise
                warnings.warn(f"{death}; it is restarted and called again", RuntimeWarning, stacklevel=2)
                self.restart()
            else:
                return result
        raise AssertionError("unreachable")

    def _copy_worker(self) -> Any:
        copy, finished = self.actor.copy.options(num_returns=2).remote()
        try:
            ray.get(finished)
        except DEATHS as error:
            raise WorkerDied(f"{self.name} died while it was copied ({_reason(error)})", self) from None
        except RayTaskError as error:
            raise RewardlabError(
                f"{self.name} cannot be copied ({error.cause}). With cluster.backend=ray, everything in a worker that "
                "learns must be picklable, so that it can be restored if its process dies; or set cluster.backend=local"
            ) from error
        return copy

    def stop(self) -> None:
        if self.actor is not None:
            ray.kill(self.actor)
            self.actor = None

    def leave_node(self) -> None:
        """Start the process on another node, because Ray cannot start it on its own one."""
        if not self.node_is_lost:
            raise RewardlabError(
                f"{self.name} cannot run on {self._node_title}, which offers no CPUs. Start it without --num-cpus=0, "
                "or change cluster.component_placement"
            )
        self.make_actor()

    def warn_if_waiting(self) -> None:
        """Say so if the worker cannot start yet because other jobs hold the CPUs of its node."""
        free: dict[str, dict[str, float]] = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
        offered = self._node.get("Resources", {}).get("CPU", 0)
        if offered and free.get(self._node["NodeID"], {}).get("CPU", 0) < CPUS:
            warnings.warn(
                f"{self.name} waits for {CPUS:g} CPUs of {self._node_title}: other jobs hold all {offered:g} of them. "
                "It starts when one of these jobs ends",
                RuntimeWarning,
                stacklevel=3,
            )

    def explain_missing(self, module: str) -> RewardlabError:
        """Return the error for a worker on a node where `module` is not installed."""
        return RewardlabError(
            f"{self.name} cannot start on {self._node_title}, where Python finds no module '{module}'. Install the "
            "same versions of rewardlab and of all that the config uses on every node: pip install 'rewardlab[ray]'"
        )

    @property
    def _node(self) -> dict[str, Any]:
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        return next((node for node in nodes if node["NodeID"] == self.place.node.id), {})

    @property
    def _node_title(self) -> str:
        return f"node {self.place.node.address}"


class RayFuture(Future[Any]):
    """The future of a call of an actor; the call may be made several times."""

    def __init__(
        self, worker: RayWorker, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], attempts: int = 1
    ) -> None:
        self._worker = worker
        self._title = str(args[0]) if method == "call" else CONSTRUCTION
        self._call = (method, args, kwargs)
        self._attempts = attempts  # remaining, including the current one
        self._send()

    def _send(self) -> None:
        method, args, kwargs = self._call
        self._actor = self._worker.actor
        if self._actor is None:
            raise WorkerDied(f"{self._worker.name} was stopped and cannot be called", self._worker)
        named = {name: _reference(argument) for name, argument in kwargs.items()}
        self._ref = getattr(self._actor, method).remote(*map(_reference, args), **named)
        if self._attempts == 1 and self._title != CONSTRUCTION:  # which is repeated on another node if its own is lost
            self._release_arguments()

    def _release_arguments(self) -> None:
        # Arguments may be futures with arguments of their own: keeping them would keep every step of the run.
        self._call = ("", (), {})

    def done(self) -> bool:
        ready, _ = ray.wait([self._ref], timeout=0, fetch_local=False)
        return bool(ready)

    def result(self, timeout: float | None = None) -> Any:
        while True:
            try:
                if timeout is None and self._title == CONSTRUCTION:
                    self._warn_if_waiting()
                value = ray.get(self._ref, timeout=timeout)
            except RayTaskError as error:
                if not isinstance(error.cause, DEATHS):
                    raise _original(error) from None
                self._recover_arguments(error.cause)
            except DEATHS as error:
                if self._title == CONSTRUCTION and isinstance(error, ActorUnschedulableError):
                    self._worker.leave_node()
                else:
                    self._replace_worker(error)
            else:
                self._release_arguments()
                return value
            self._send()

    def _warn_if_waiting(self) -> None:
        ready, _ = ray.wait([self._ref], timeout=PATIENCE, fetch_local=False)
        if not ready:
            self._worker.warn_if_waiting()

    def _replace_worker(self, error: Exception) -> None:
        died = f"{self._worker.name} died during {self._title} ({_reason(error)})"
        if missing := re.search(r"No module named '([\w.]+)'", str(error)):
            raise self._worker.explain_missing(missing[1]) from None
        if self._title == CONSTRUCTION and self._worker.node_is_lost:
            self._worker.make_actor()
            return
        self._attempts -= 1
        if self._attempts == 0:
            raise WorkerDied(died, self._worker) from None
        warnings.warn(f"{died}; it is restarted and called again", RuntimeWarning, stacklevel=3)
        if self._actor is self._worker.actor:  # otherwise another future of this worker has restarted it
            self._worker.restart()

    def _recover_arguments(self, error: Exception) -> None:
        """Compute arguments again that were lost when the worker that computed them died."""
        self._attempts -= 1
        if self._title == CONSTRUCTION:
            raise StateLost(
                f"{self._worker.name} died with its node, and the copy of its state was in that node's memory",
                self._worker,
            )
        if self._attempts == 0:
            sender = WORKERS.get(getattr(error, "actor_id", ""))
            name = "a worker" if sender is None else sender.name
            raise WorkerDied(
                f"{name} died ({_reason(error)}) before it sent {self._worker.name} an argument of {self._title}",
                sender,
            ) from None
        _, args, kwargs = self._call
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, RayFuture):
                argument.result()


def _reference(argument: Any) -> Any:
    if isinstance(argument, RayFuture):
        return argument._ref
    return argument.result() if isinstance(argument, Future) else argument


def _original(error: RayTaskError) -> Exception:
    """Return the RewardlabError that was raised in the worker, or Ray's error with the worker's traceback."""
    cause: BaseException = error
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    return cause if isinstance(cause, RewardlabError) else error


def _reason(error: Exception) -> str:
    """Return the process and the reason from Ray's long message about a dead actor."""
    text = str(error)
    process = re.search(r"pid: (\d+)", text)
    because = re.search(r"The actor (?:is dead|died) because (.+?)\.", text)
    reason = because[1] if because else type(error).__name__
    if isinstance(error, OutOfMemoryError) or "OUT_OF_MEMORY" in text or "running low on memory" in text:
        reason = "Ray ended it because its node ran out of memory"
    elif "Worker exit type: SYSTEM_ERROR" in text:
        reason = "it was killed or crashed, perhaps because memory ran out"
    return ": ".join(filter(None, [f"process {process[1]}" if process else "", reason]))
