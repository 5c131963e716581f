"""Cost of a learned reward in Stable-Baselines3: PPO on a built-in task, 8 environments.

    .venv/bin/python benchmarks/sb3_wrapper.py [--threads 1]

Compares PPO without a reward model, with a RewardModelWrapper around each environment, which scores one frame at a
time, and with a RewardModelVecEnvWrapper around all of them, which scores the frames of a step as one batch. Figures
are the time per environment step, of rollouts and training together; rounds alternate, and the median is taken.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

import gymnasium
import torch
from rich.console import Console
from rich.table import Table
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

import rewardlab.envs  # noqa: F401 - registers tabletop/*
from rewardlab.envs.wrappers import LastFrameWrapper, RewardModelVecEnvWrapper, RewardModelWrapper
from rewardlab.rewards import ResNetRewardModel

NUM_ENVS, STEPS, ROUNDS = 8, 1600, 5
PLAIN, EACH, ALL = "no reward model", "RewardModelWrapper around each", "RewardModelVecEnvWrapper around all"


def vec_env(make: Callable[[], gymnasium.Env]) -> VecEnv:  # type: ignore[type-arg]
    return DummyVecEnv([make] * NUM_ENVS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    model = ResNetRewardModel(arch="resnet10", width=32, image_size=(3, 64, 64))

    def task() -> gymnasium.Env:  # type: ignore[type-arg]
        return gymnasium.make("tabletop/PickCube")

    envs = {
        PLAIN: vec_env(task),
        EACH: vec_env(lambda: RewardModelWrapper(task(), model, reward_type="continuous")),
        ALL: RewardModelVecEnvWrapper(vec_env(lambda: LastFrameWrapper(task())), model, reward_type="continuous"),
    }
    agents = {name: PPO("MlpPolicy", env, n_steps=50, batch_size=400, device="cpu") for name, env in envs.items()}
    times: dict[str, list[float]] = {name: [] for name in agents}
    for agent in agents.values():
        agent.learn(NUM_ENVS * 50)
    for _ in range(ROUNDS):
        for name, agent in agents.items():
            start = time.perf_counter()
            agent.learn(STEPS)
            times[name].append((time.perf_counter() - start) / STEPS)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    table = Table(
        "", "ms a step", "of no model", "rate of one each", title=f"{threads} threads, load {os.getloadavg()[0]:.1f}"
    )
    for name, value in seconds.items():
        ratios = f"{value / seconds[PLAIN]:.1f}x", f"{seconds[EACH] / value:.1f}x"
        table.add_row(name, f"{1000 * value:.2f}", *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
