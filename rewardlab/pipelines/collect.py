"""Stage 1: let a policy act, write every episode with its pictures and labels."""

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rewardlab.config import ExperimentConfig
from rewardlab.config.schema import CollectionConfig
from rewardlab.envs import make_vec_env
from rewardlab.envs.policies import make_policy
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.errors import DataError


def run(cfg: ExperimentConfig, *, append: bool = False, console: Console | None = None) -> Path:
    """Collect as `cfg.data.collection` says; returns the directory of the episodes.

    A directory that has episodes already is refused unless `append`: the same seed would write the same episodes
    again, and a copy of a training episode in the validation set flatters every figure.
    """
    console = console or Console()
    plan = cfg.data.collection
    env_cfg = cfg.env.eval
    env = DataCollectorWrapper(
        make_vec_env(env_cfg),
        plan.save_dir,
        format=plan.format,
        success_dir=plan.positive_dir,
        failure_dir=plan.negative_dir,
        max_episodes=plan.episodes,
        target_success=plan.target_success,
        target_failure=plan.target_failure,
        cameras=plan.image_keys or env_cfg.cameras,
        image_size=(env_cfg.image_size[1], env_cfg.image_size[2]),
        policy=plan.policy,
        task=env_cfg.id,
    )
    before = sum(count.on_disk for count in env.counts.values())
    if before and not append:
        raise DataError(
            f"{plan.save_dir} already has {before} episodes. Choose another directory, or add to it with --append "
            "(the seed then moves on, so that no episode is written twice)"
        )
    seed = cfg.seed + before
    with env, _progress(console) as progress:
        policy = make_policy(plan.policy, env, seed)
        bar = progress.add_task("collecting", total=_expected(plan), success=0, failure=0)
        observation, _ = env.reset(seed=seed)
        success = failure = 0
        while not env.full:
            observation, _, terminated, truncated, _ = env.step(policy.act(observation))
            policy.begin(np.asarray(terminated | truncated))
            success, failure = (env.counts[outcome].kept for outcome in ("success", "failure"))
            progress.update(bar, completed=success + failure, success=success, failure=failure)
    console.print(
        f"{success + failure} episodes ({success} success, {failure} failure) in {plan.save_dir}",
        highlight=False,
        soft_wrap=True,
    )
    return Path(plan.save_dir)


def _expected(plan: CollectionConfig) -> int | None:
    if plan.episodes is not None:
        return plan.episodes
    targets = [n for n in (plan.target_success, plan.target_failure) if n is not None]
    return sum(targets) if len(targets) == 2 else None


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[green]{task.fields[success]} success[/] [red]{task.fields[failure]} failure[/]"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
