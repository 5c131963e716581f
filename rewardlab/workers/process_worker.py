"""Workers in processes of their own on this machine, without Ray: for components that must outlive each other."""

import itertools
import pickle
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import cloudpickle

from rewardlab.child_process import Answer, ChildProcess, packed_answer
from rewardlab.workers.group import Future, Guard, T, Worker, WorkerDied, resolve_argument

POLL = 0.5  # seconds after which a closed channel is noticed at the latest


class ProcessFuture(Future[T]):
    """The future of a call in another process; `WorkerDied` if that ended before it answered."""

    def __init__(self) -> None:
        self._answered = threading.Event()
        self._answer: Answer | None = None
        self._death: WorkerDied | None = None

    def set(self, answer: Answer | None, death: WorkerDied | None = None) -> None:
        self._answer, self._death = answer, death
        self._answered.set()

    def done(self) -> bool:
        return self._answered.is_set()

    def result(self, timeout: float | None = None) -> T:
        if not self._answered.wait(timeout):
            raise TimeoutError
        if self._answer is None:
            assert self._death is not None
            raise self._death
        for text, category in self._answer.warnings:
            warnings.warn(text, category, stacklevel=2)
        self._answer.warnings = []
        if self._answer.error is not None:
            self._answer.error.traceback_str = self._answer.traceback  # type: ignore[attr-defined]
            raise self._answer.error
        return self._answer.result


class ProcessWorker(Worker):
    """A worker object in a process that ends with this one. A call of a dead worker raises WorkerDied.

    Calls run one after the other; an object that works in the background does so on threads of its own.
    """

    def __init__(self, name: str, make: Callable[[], Any], *, guard: Guard, environment: dict[str, str]) -> None:
        super().__init__(name)
        self._packed = cloudpickle.dumps((make, guard))
        self._environment = environment
        self._process: ChildProcess | None = None
        self._lock = threading.Lock()
        self._waiting: dict[int, ProcessFuture[Any]] = {}
        self._numbers = itertools.count()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Future[None]:
        self.stop()
        self._process = ChildProcess("rewardlab.workers.process_main", environment=self._environment)
        threading.Thread(target=self._listen, args=(self._process,), name=self.name, daemon=True).start()
        return self._call(self._packed)

    def submit(self, method: str, *args: Any, retry: bool = False, **kwargs: Any) -> Future[Any]:
        named = {name: resolve_argument(argument) for name, argument in kwargs.items()}
        return self._call((method, tuple(map(resolve_argument, args)), named))

    def change(self, method: str, *args: Any) -> Any:
        return self.submit(method, *args).result()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close(pickle.dumps((-1, None)))

    def _call(self, content: Any) -> Future[Any]:
        future: ProcessFuture[Any] = ProcessFuture()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
            process = self._process
        if process is None:
            self._fail("it was stopped")
        else:
            process.send(pickle.dumps((number, content), pickle.HIGHEST_PROTOCOL))
            if not process.is_running:
                self._fail(process.explain(0))
        return future

    def _listen(self, process: ChildProcess) -> None:
        """Give each answer to its future, until the process has ended."""
        while self._process is process:
            received = process.receive(POLL)
            if received is not None:
                answer: Answer = pickle.loads(received)
                with self._lock:
                    future = self._waiting.pop(answer.number, None)
                if future is not None:
                    future.set(answer)
            elif not process.is_running:
                if self._process is process:
                    self._fail(process.explain(0))
                return

    def _fail(self, why: str) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set(None, WorkerDied(f"{self.name}: {why}", self))


def serve(receive: Callable[[], bytes], send: Callable[[bytes], None]) -> None:
    """Build the object that the first message describes, and answer calls until the last message."""
    worker: Any = None
    guard: Callable[[], AbstractContextManager[None]] | None = None
    shown: list[tuple[str, type[Warning]]] = []
    warnings.showwarning = lambda message, category, *_: shown.append((str(message), category))
    while True:
        try:
            number, content = pickle.loads(receive())
        except (EOFError, OSError):
            return
        if number < 0:
            return
        try:
            if isinstance(content, bytes):
                make, guard = cloudpickle.loads(content)
                with guard():
                    worker, result = make(), None
            else:
                method, args, kwargs = content
                assert guard is not None
                with guard():
                    result = getattr(worker, method)(*args, **kwargs)
            answer = Answer(number, result)
        except BaseException as error:
            answer = Answer(number, error=error, traceback=traceback.format_exc())
        answer.warnings, shown[:] = list(shown), []
        with suppress(OSError):
            send(packed_answer(answer, _unsendable))


def _unsendable(reason: Exception) -> Exception:
    return RuntimeError(f"a result cannot be sent to another process: {reason}")
