"""Groups of workers of the same kind: calling a method returns futures, which can be passed to other calls.

A worker is any object. `group[0].submit("score", images)` calls its method `score`, in this process or in another
(`ray_actor.py`), with the same code. A future passed as an argument is replaced by its result; on Ray the result goes
directly from worker to worker, not through the driver process.
"""

import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from rewardlab.errors import ProcessDied, RewardlabError

T = TypeVar("T")
MakeWorker = Callable[[], Any]  # builds the worker object, in the process that it will run in
Guard = Callable[[], AbstractContextManager[None]]  # what every call of a worker runs in


class WorkerDied(ProcessDied):
    """The process of a worker ended. `Worker.restart` starts a new one; `change` and calls with `retry` do so too."""

    def __init__(self, message: str, worker: "Worker | None" = None) -> None:
        super().__init__(message)
        self.worker = worker


class StateLost(WorkerDied):
    """A worker that learns died together with the copy of its state, so that it cannot be restarted as it was."""


class Future(ABC, Generic[T]):
    """The result of a call that may still be running."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> T:
        """Wait for the result; raise the error of the call, or TimeoutError after `timeout` seconds."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether `result` would return immediately."""


class Futures(Future[list[T]]):
    """The futures of one call of every worker. To pass them as arguments, unpack them: `submit("train", *futures)`."""

    def __init__(self, futures: Sequence[Future[T]]) -> None:
        self._futures = tuple(futures)

    def __getitem__(self, index: int) -> Future[T]:
        return self._futures[index]

    def __iter__(self) -> Iterator[Future[T]]:
        return iter(self._futures)

    def done(self) -> bool:
        return all(future.done() for future in self)

    def result(self, timeout: float | None = None) -> list[T]:
        """Wait for all results, each for at most `timeout` seconds, and return them in the order of the workers."""
        results, errors = [], []
        for future in self:
            try:
                results.append(future.result(timeout))
            except Exception as error:
                errors.append(error)
        if errors:
            # When workers wait for each other and one fails, the others only report that they lost the connection.
            by_priority = (WorkerDied, RewardlabError, Exception)
            raise next(error for kind in by_priority for error in errors if isinstance(error, kind))
        return results


class Worker(ABC):
    """A handle of one worker object. Its calls run one after the other, in the order in which they were submitted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.label = name  # in metrics; `Cluster.launch` sets component and index, such as "env_1"
        self._setup: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    @abstractmethod
    def start(self) -> Future[None]:
        """Build the worker object; an existing one is replaced."""

    @abstractmethod
    def submit(self, method: str, *args: Any, retry: bool = False, **kwargs: Any) -> Future[Any]:
        """Call a method of the worker. With `retry`, a worker that dies is restarted and the method called again."""

    @abstractmethod
    def change(self, method: str, *args: Any) -> Any:
        """Call a method that changes the state of the worker, wait for the result and keep a copy of the new state.

        A restarted worker continues from that copy. Arguments must be values, not futures. Do not use it together with
        `Group.setup`, which restores a restarted worker in another way.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the worker; calls that have not started are dropped."""

    def remember(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Repeat this call whenever the worker is restarted, instead of earlier calls of the same method."""
        self._setup[method] = (args, kwargs)

    def restart(self) -> None:
        """Build the worker again and repeat its setup calls."""
        self.start().result()
        for method, (args, kwargs) in self._setup.items():
            self.submit(method, *args, **kwargs).result()


class Group:
    """Workers of the same kind; `group[0]` is the first."""

    def __init__(self, name: str, workers: Sequence[Worker]) -> None:
        self.name = name
        self._workers = tuple(workers)

    def __len__(self) -> int:
        return len(self._workers)

    def __getitem__(self, index: int) -> Worker:
        return self._workers[index]

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers)

    def call(self, method: str, *args: Any, retry: bool = False, **kwargs: Any) -> Futures[Any]:
        """Call a method of every worker with the same arguments."""
        return Futures([worker.submit(method, *args, retry=retry, **kwargs) for worker in self])

    def setup(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of every worker, wait for the results, and repeat the call on every worker that is restarted.

        This sets the state of workers (`init_worker`, new weights): the last call of each method is repeated.
        """
        results = self.call(method, *args, retry=True, **kwargs).result()
        for worker in self:
            worker.remember(method, args, kwargs)
        return results

    def stop(self) -> None:
        for worker in self:
            worker.stop()


class LocalWorker(Worker):
    """A worker in this process. With `background` it has its own thread: torch and OpenCV release the Python lock."""

    def __init__(self, name: str, make: MakeWorker, *, background: bool = False, guard: Guard = nullcontext) -> None:
        super().__init__(name)
        self._make, self._guard = make, guard
        self._object: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name) if background else None

    def start(self) -> Future[None]:
        return self._run(self._build)

    def _build(self) -> None:
        with self._guard():
            self._object = self._make()

    def submit(self, method: str, *args: Any, retry: bool = False, **kwargs: Any) -> Future[Any]:
        # `self._object` is read when the call runs: `start` may still be waiting on the thread.
        def call() -> Any:
            named = {name: resolve_argument(argument) for name, argument in kwargs.items()}
            positional = list(map(resolve_argument, args))
            with self._guard():
                return getattr(self._object, method)(*positional, **named)

        return self._run(call)

    def change(self, method: str, *args: Any) -> Any:
        return self.submit(method, *args).result()

    def _run(self, call: Callable[[], Any]) -> Future[Any]:
        if self._thread is not None:
            return LocalFuture(self._thread.submit(call))
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)
        return LocalFuture(future)

    def stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)


class LocalFuture(Future[T]):
    """The future of a call in this process."""

    def __init__(self, future: "concurrent.futures.Future[T]") -> None:
        self._future = future

    def result(self, timeout: float | None = None) -> T:
        return self._future.result(timeout)

    def done(self) -> bool:
        return self._future.done()


def resolve_argument(argument: Any) -> Any:
    """Return an argument of a call, or the result of the future that stands for it."""
    return argument.result() if isinstance(argument, Future) else argument
