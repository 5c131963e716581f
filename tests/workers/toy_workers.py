"""Workers that answer, wait, fail and die on request."""

import os
import threading
import time

import torch

from rewardlab.errors import ConfigError


class Toy:
    def __init__(self, index: int = 0, device: str = "cpu") -> None:
        self.index, self.device, self.calls = index, device, 0
        self.greeting = ""

    def init_worker(self, greeting: str) -> None:
        self.greeting = greeting

    def greet(self, whom: str) -> str:
        return f"{self.greeting} {whom}, I am {self.index}"

    def numbers(self, count: int) -> torch.Tensor:
        return torch.arange(count) + 100 * self.index

    def add(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return one + other

    def counted(self) -> int:
        return self.calls

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
