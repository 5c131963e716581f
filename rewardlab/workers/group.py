"""A group of workers that are alike, wherever they run: call a method, get futures, pass them on.

A worker is any object. `group[0].submit("score", images)` calls its method `score`, in this process or in another
(`ray_actor.py`); the code around it is the same. A future given as an argument stands for its result, which on Ray
goes from worker to worker without passing through the driver.
"""

import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar, overload

from rewardlab.errors import RewardlabError

T = TypeVar("T")
Make = Callable[[], Any]  # builds the worker, where it will run


class WorkerDied(RewardlabError):
    """The process of a worker ended. `Group.restart` replaces it; `change` and calls with `retry` do so themselves."""


class Future(ABC, Generic[T]):
    """A result that may not be there yet."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> T:
        """Wait for the result, or for the error that the call raised. TimeoutError after `timeout` seconds."""

    @abstractmethod
    def done(self) -> bool:
        """Whether `result` would answer at once."""


class Futures(Future[list[T]], Sequence[Future[T]]):
    """One future per worker. To hand them on as arguments, unpack them: `actor.submit("train", *futures)`."""

    def __init__(self, futures: Sequence[Future[T]]) -> None:
        self._futures = tuple(futures)

    @overload
    def __getitem__(self, index: int) -> Future[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Future[T]]: ...
    def __getitem__(self, index: int | slice) -> Future[T] | Sequence[Future[T]]:
        return self._futures[index]

    def __len__(self) -> int:
        return len(self._futures)

    def done(self) -> bool:
        return all(future.done() for future in self)

    def result(self, timeout: float | None = None) -> list[T]:
        """The results in the order of the workers; `timeout` holds for each."""
        results, errors = [], []
        for future in self:
            try:
                results.append(future.result(timeout))
            except Exception as error:
                errors.append(error)
        if errors:
            # When one of several workers that wait for each other fails, the others only say that it is gone.
            raise min(errors, key=_telling)
        return results


def _telling(error: Exception) -> int:
    kinds = (WorkerDied, RewardlabError)
    return next((rank for rank, kind in enumerate(kinds) if isinstance(error, kind)), len(kinds))


class Worker(ABC):
    """Where one worker lives. Its calls run one after the other, in the order in which they were submitted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._setup: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    @abstractmethod
    def start(self) -> Future[None]:
        """Build the worker, in place of the one that was there."""

    @abstractmethod
    def submit(self, method: str, *args: Any, retry: bool = False, **kwargs: Any) -> Future[Any]:
        """Call a method. `retry`, for calls that may be repeated: if the worker dies, restart it and call again."""

    @abstractmethod
    def change(self, method: str, *args: Any) -> Any:
        """Call a method that changes the worker, with values and not futures, and wait for its result.

        If its process dies, now or later, its successor has every change that was made so. Not together with
        `Group.setup`: it is one or the other that a successor is made from.
        """

    @abstractmethod
    def stop(self) -> None:
        """End the worker; calls that have not begun are dropped."""

    def remember(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have `restart` repeat this call, in place of earlier ones of the same method."""
        self._setup[method] = (args, kwargs)

    def restart(self) -> None:
        """Replace the worker by a new one, built and set up in the same way."""
        self.start().result()
        for method, (args, kwargs) in self._setup.items():
            self.submit(method, *args, **kwargs).result()


class Group:
    """Workers that were built alike; `group[0]` is the first."""

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
        """Call a method of every worker, now and again whenever one is restarted; waits for the results.

        This is how workers are given their state (`init_worker`, new weights): the last call of each method counts.
        """
        results = self.call(method, *args, retry=True, **kwargs).result()
        for worker in self:
            worker.remember(method, args, kwargs)
        return results

    def restart(self, index: int) -> None:
        self[index].restart()

    def stop(self) -> None:
        for worker in self:
            worker.stop()


class LocalWorker(Worker):
    """A worker in this process; on its own thread if `background`, for torch and OpenCV leave Python's lock alone."""

    def __init__(self, name: str, make: Make, *, background: bool = False) -> None:
        super().__init__(name)
        self._make = make
        self._object: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name) if background else None

    def start(self) -> Future[None]:
        return self._run(self._build)

    def _build(self) -> None:
        self._object = self._make()

    def submit(self, method: str, *args: Any, retry: bool = False, **kwargs: Any) -> Future[Any]:
        # Which object is called is looked up when the call runs: `start` may still be waiting on the thread.
        return self._run(lambda: getattr(self._object, method)(*map(_value, args), **_values(kwargs)))

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
    def __init__(self, future: "concurrent.futures.Future[T]") -> None:
        self._future = future

    def result(self, timeout: float | None = None) -> T:
        return self._future.result(timeout)

    def done(self) -> bool:
        return self._future.done()


def _value(argument: Any) -> Any:
    return argument.result() if isinstance(argument, Future) else argument


def _values(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(argument) for name, argument in arguments.items()}
