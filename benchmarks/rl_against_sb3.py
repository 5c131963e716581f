"""Return and speed of our PPO and SAC beside Stable-Baselines3's, with its settings, on cheap environments.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/rl_against_sb3.py --seeds 3
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/rl_against_sb3.py --seeds 8 --tasks PPO:Pendulum-v1

Both get the same number of environment steps. The return is the mean over the last 20 training episodes; it varies
much from seed to seed, so few seeds say little. The speed is that of the whole of training per second of CPU time (with
one thread, other programs hardly distort it), the two libraries taking turns. States are not normalised here, because
SB3 does not.
"""

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import stable_baselines3 as sb3
import torch
from rich.console import Console
from rich.table import Table
from stable_baselines3.common.env_util import make_vec_env as make_sb3_env

from rewardlab.config.schema import OptimConfig, PolicyModelConfig, PPOConfig, SACConfig
from rewardlab.data.replay import ReplayBuffer
from rewardlab.envs import make_vec_env
from rewardlab.models.critics import make_critics
from rewardlab.models.policy_networks import make_actor_critic, make_squashed_actor
from rewardlab.rl import PPO, SAC

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "rl"))

from rl_loop import Stepper, collect_rollout, train_off_policy

LAST_EPISODES = 20


@dataclass(frozen=True)
class Task:
    """An environment with the settings of rl-zoo3 that both sides use; the rest are SB3's defaults."""

    algorithm: str
    env: str
    steps: int
    num_envs: int = 1
    lr: float = 3e-4
    gamma: float = 0.99
    batch_size: int = 64
    rollout_steps: int = 2048
    gae_lambda: float = 0.95
    epochs: int = 10
    learning_starts: int = 100


TASKS = (
    Task("PPO", "CartPole-v1", 50_000, 8, lr=1e-3, gamma=0.98, batch_size=256, rollout_steps=32, gae_lambda=0.8),
    Task("PPO", "Pendulum-v1", 80_000, 4, lr=1e-3, gamma=0.9, rollout_steps=1024),
    Task("SAC", "Pendulum-v1", 5_000, lr=1e-3, batch_size=256),
    Task("SAC", "tabletop/PickCube", 5_000, lr=1e-3, gamma=0.9, batch_size=256),
)


def ours(task: Task, seed: int) -> list[float]:
    """Train; the returns of all training episodes."""
    env = make_vec_env(task.env, num_envs=task.num_envs)
    env.action_space.seed(seed)
    spaces = env.single_observation_space, env.single_action_space
    stepper = Stepper(env, seed)
    if task.algorithm == "PPO":
        model = PolicyModelConfig(hidden_sizes=(64, 64), normalize_states=False)
        optim = OptimConfig(lr=task.lr, schedule="constant", max_grad_norm=0.5)
        config = PPOConfig(rollout_steps=task.rollout_steps, update_epochs=task.epochs, gae_lambda=task.gae_lambda)
        rounds = -(-task.steps // (task.num_envs * task.rollout_steps))
        network = make_actor_critic(*spaces, model, seed)
        ppo = PPO(network, config, optim, gamma=task.gamma, batch_size=task.batch_size, seed=seed)
        for _ in range(rounds):
            ppo.learn(collect_rollout(stepper, ppo, task.rollout_steps))
        return stepper.returns
    model = PolicyModelConfig(hidden_sizes=(256, 256), normalize_states=False)
    optim = OptimConfig(lr=task.lr, schedule="constant")
    sac_config = SACConfig()
    actor = make_squashed_actor(*spaces, model, seed)
    critics = make_critics(actor, model, sac_config, seed + 1)
    sac = SAC(actor, critics, sac_config, optim, gamma=task.gamma, seed=seed)
    train_off_policy(
        sac,
        stepper,
        env_steps=task.steps,
        batch_size=task.batch_size,
        learning_starts=task.learning_starts,
        utd_ratio=1.0,
        replay=ReplayBuffer(task.steps),
    )
    return stepper.returns


def theirs(task: Task, seed: int) -> list[float]:
    env = make_sb3_env(task.env, n_envs=task.num_envs, seed=seed)
    same: dict[str, Any] = {"learning_rate": task.lr, "gamma": task.gamma, "batch_size": task.batch_size, "seed": seed}
    learner: Any
    if task.algorithm == "PPO":
        learner = sb3.PPO(
            "MlpPolicy", env, n_steps=task.rollout_steps, n_epochs=task.epochs, gae_lambda=task.gae_lambda, **same
        )
    else:
        learner = sb3.SAC("MlpPolicy", env, learning_starts=task.learning_starts, buffer_size=task.steps, **same)
    learner.ep_info_buffer = None
    learner._stats_window_size = LAST_EPISODES  # SB3 keeps the returns of as many episodes
    learner.learn(task.steps)
    return [episode["r"] for episode in learner.ep_info_buffer]


def compare(task: Task, seeds: int) -> tuple[str, ...]:
    returns: dict[Any, list[float]] = {ours: [], theirs: []}
    speeds: dict[Any, list[float]] = {ours: [], theirs: []}
    for seed in range(seeds):
        for library in (ours, theirs):
            start = time.process_time()
            episodes = library(task, seed)
            speeds[library].append(task.steps / (time.process_time() - start))
            returns[library].append(float(np.mean(episodes[-LAST_EPISODES:])))
    ratios = [mine / other for mine, other in zip(speeds[ours], speeds[theirs], strict=True)]
    means = [f"{np.mean(r):,.0f} ± {np.std(r, ddof=1) / np.sqrt(seeds):,.0f}" for r in returns.values()]
    rates = [f"{statistics.median(s):,.0f}" for s in speeds.values()]
    return task.algorithm, task.env, f"{task.steps:,}", *means, *rates, f"{statistics.median(ratios):.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3, help="at least 2")
    names = {f"{task.algorithm}:{task.env}": task for task in TASKS}
    parser.add_argument("--tasks", nargs="+", choices=names, default=list(names))
    arguments = parser.parse_args()
    seeds = arguments.seeds
    title = f"{seeds} seeds, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f} at the start"
    columns = ("", "environment", "steps", "return, ours", "SB3", "steps / CPU s, ours", "SB3", "ratio")
    table = Table(*columns, title=title, caption="return: mean over seeds ± standard error; ratio: median over seeds")
    for name in arguments.tasks:
        table.add_row(*compare(names[name], seeds))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
