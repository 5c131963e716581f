"""What processes gain where a step is expensive, and what their messages cost where it is cheap.

    .venv/bin/python benchmarks/env_processes.py

Prints a table: wall and CPU time of a step of all environments, by the time of a step of one and the number of
processes. CPU time is that of all processes together; on a busy machine it is the figure to look at.
"""

import os
import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rewardlab.envs.copies import CopiesVectorEnv

NUM_ENVS = 8
SECONDS = 3.0


class Busy(gymnasium.Env[Any, Any]):
    """Computes for `seconds` of CPU time in each step."""

    observation_space, action_space = spaces.Box(-1, 1, (40,)), spaces.Box(-1, 1, (8,))

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(40, np.float32), {}

    def step(self, action: Any) -> Any:
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        return np.zeros(40, np.float32), 0.0, False, False, {"success": False}


def measure(make: Any, processes: int) -> tuple[float, float]:
    """Return the milliseconds of wall time and of CPU time of all processes, of a step of all environments."""
    env = CopiesVectorEnv([make] * NUM_ENVS, processes, "benchmark")
    env.reset(seed=0)
    env.action_space.seed(0)
    action = env.action_space.sample()
    for _ in range(20):
        env.step(action)
    workers = [group._process._popen.pid for group in env._groups] if processes > 1 else []
    wall, cpu, steps = time.perf_counter(), _cpu_time(workers), 0
    while time.perf_counter() - wall < SECONDS:
        env.step(action)
        steps += 1
    times = (time.perf_counter() - wall) / steps * 1e3, (_cpu_time(workers) - cpu) / steps * 1e3
    env.close()
    return times


def _cpu_time(workers: list[int]) -> float:
    ticks = 0
    for pid in workers:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    print(f"| environment, {NUM_ENVS} copies | processes | wall ms | CPU ms |\n|---|---|---|---|")
    makers = {
        "2 ms a step": partial(Busy, 2e-3),
        "0.3 ms a step": partial(Busy, 0.3e-3),
        "CartPole-v1": partial(gymnasium.make, "CartPole-v1"),
    }
    for name, make in makers.items():
        for processes in (1, 2):
            wall, cpu = measure(make, processes)
            print(f"| {name} | {processes} | {wall:.2f} | {cpu:.2f} |", flush=True)


if __name__ == "__main__":
    main()
