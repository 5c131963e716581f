"""Workers that answer, wait and fail on request. Without torch, because their processes start sooner so."""

import os
import signal
import threading
import time

from rewardlab.errors import ConfigError


class Toy:
    def __init__(self, index: int = 0, device: str = "cpu") -> None:
        self.index, self.device = index, device
        self.greeting = ""
        self.grown = 0

    def where(self) -> str:
        return self.device

    def init_worker(self, greeting: str) -> None:
        self.greeting = greeting

    def greet(self, whom: str) -> str:
        return f"{self.greeting} {whom}, I am {self.index}"

    def grow(self, by: int) -> int:
        self.grown += by
        return self.grown

    def fill(self, rows: int) -> None:
        """Rows of one tensor, and an array to write to."""
        import numpy as np
        import torch

        self.rows = list(torch.ones(rows, 64).unbind())
        self.array = np.zeros(rows)

    def write(self) -> float:
        self.array[0] += 1
        return float(self.array[0])

    def lock(self) -> None:
        self.held = threading.Lock()

    def size(self) -> int:
        return self.grown

    def numbers(self, count: int) -> list[int]:
        return [100 * self.index + number for number in range(count)]

    def add(self, one: list[int], other: list[int]) -> list[int]:
        return [a + b for a, b in zip(one, other, strict=True)]

    def process(self) -> int:
        return os.getpid()

    def thread(self) -> int:
        return threading.get_ident()

    def wait_for(self, event: threading.Event) -> bool:
        return event.wait(10)

    def sleep(self, seconds: float) -> str:
        time.sleep(seconds)
        return "awake"

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def torch_threads(self) -> int:
        import torch

        return torch.get_num_threads()

    def directory(self) -> str:
        return os.getcwd()  # noqa: PTH109

    def misconfigured(self) -> None:
        raise ConfigError("some.key: found 3, expected 4")

    def buggy(self) -> None:
        raise KeyError("bug")

    def node(self) -> str:
        import ray

        return ray.get_runtime_context().get_node_id()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
