"""Stage 1: let a policy act, write every episode with its pictures and labels."""

import dataclasses
import itertools
import secrets
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from rich.console import Console

from rewardlab.config import ExperimentConfig, to_yaml
from rewardlab.config.robots import attach_robots, is_robot
from rewardlab.config.schema import CollectionConfig, EnvConfig
from rewardlab.console import make_console, make_progress, print_line
from rewardlab.data.atomic import replace_file
from rewardlab.data.contact_sheet import draw_recording
from rewardlab.data.directory_lock import locked
from rewardlab.data.reader import episode_paths
from rewardlab.data.transition_file import RECORDING, count_recorded
from rewardlab.envs import make_vec_env
from rewardlab.envs.closing import closed_after_errors
from rewardlab.envs.policies import POLICIES, Policy, WithRandomActions, make_policy
from rewardlab.envs.robot.people import INPUT_HELP
from rewardlab.envs.wrappers import TRANSITIONS, DataCollectorWrapper
from rewardlab.errors import DataError, ProcessDied
from rewardlab.live_state import LiveState
from rewardlab.observations import to_numpy
from rewardlab.pipelines.collected_outcomes import Outcomes
from rewardlab.reports.collection_log import CollectionLog

CONFIG = "collection.yaml"  # beside the episodes: how they were made
SHEET = "contact_sheet.png"
LOSSES = 3  # of processes that step environments, without an episode in between, after which collecting ends


def run(
    cfg: ExperimentConfig, *, append: bool = False, console: Console | None = None, live: LiveState | None = None
) -> Path:
    """Collect as `cfg.data.collection` says; returns the directory of the episodes. `live` is shown on a page.

    A directory that has episodes already is refused unless `append`: the same seed would write the same episodes
    again, and a copy of a training episode in the validation set flatters every figure.
    """
    cfg = attach_robots(cfg)
    plan = cfg.data.collection
    advice = "Choose another directory, or wait until it ends"
    with locked(Path(plan.save_dir), "another collection", advice):  # with one seed they would write the same episodes
        return _collect(cfg, append, console or make_console(), live)


def _collect(cfg: ExperimentConfig, append: bool, console: Console, live: LiveState | None) -> Path:
    plan = cfg.data.collection
    before = _episodes_in(plan)
    if before and not append:
        raise DataError(
            f"{plan.save_dir} already has {before} episodes. Choose another directory, or add to it with "
            "`rewardlab collect ... --append` (other episodes are drawn then, so that none is written twice)"
        )
    # What is there already moves the seeds on, or (append) the same episodes would come again. Environment and policy
    # use independent RNG streams.
    fresh = secrets.randbits(64) if before else 0
    env_seed, policy_seed = np.random.SeedSequence([cfg.seed, fresh]).generate_state(2).tolist()
    num_envs = min(cfg.env.train.num_envs, plan.episodes or cfg.env.train.num_envs)
    env_cfg = dataclasses.replace(cfg.env.train, num_envs=num_envs)
    watched = make_vec_env(env_cfg)
    with closed_after_errors(watched.close):
        _attach(live, watched, env_cfg.success_hold_steps)
        policy = _policy(plan, watched, policy_seed, cfg.cluster.device)
        env = DataCollectorWrapper.as_planned(
            watched, env_cfg, plan, policy=plan.policy, run=f"collect {env_cfg.task} seed {env_seed}"
        )
        replace_file(Path(plan.save_dir, CONFIG), to_yaml(cfg).encode())
    outcomes = Outcomes(live, lambda words: print_line(console, words)) if is_robot(env_cfg) else None
    if outcomes is not None:
        _print_keys(env_cfg, console)
    interrupted = False
    expected = plan.episodes or (plan.target_success or 0) + (plan.target_failure or 0)
    try:
        with env, CollectionLog(Path(plan.save_dir), before) as log, make_progress(console) as progress:
            bar = progress.add_task("collecting", total=expected, words="")
            for steps, (success, failure) in enumerate(_episodes(env, policy, env_seed, outcomes), 1):
                log.add(steps * num_envs, success, failure)
                counts = _in_colour(success, failure) if outcomes is None else outcomes.in_colour()
                progress.update(bar, completed=success + failure, words=counts)
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        written = _episodes_in(plan) - before
        success, failure = _kept(env)
        text = f"{written} episodes"
        if outcomes is not None:
            text += f" ({', '.join(f'{count} {name}' for name, count in outcomes.counts.items())})"
        elif written == success + failure:  # else some could not be written, and an error says why
            text += f" ({success} success, {failure} failure)"
        places = ", ".join(dict.fromkeys(filter(None, (plan.success_dir, plan.failure_dir)))) or plan.save_dir
        if plan.format == TRANSITIONS:
            places = str(Path(plan.save_dir, RECORDING))
        print_line(console, f"{text} in {places}")
        if plan.format == TRANSITIONS and before + written:
            sheet = draw_recording(Path(places), Path(plan.save_dir, SHEET))
            print_line(console, f"look at: {sheet}\nnext: rewardlab data process {shlex.quote(places)}")
        if interrupted:
            print_line(console, f"continue: {_continue_command(plan, success + failure)}")
    for outcome, count in env.counts.items():
        if count.target is not None and not count.full:
            warnings.warn(
                f"target_{outcome} is {count.target}, but {count.on_disk + count.kept} were found in "
                f"{plan.episodes} episodes",
                stacklevel=2,
            )
    return Path(plan.save_dir)


def _continue_command(plan: CollectionConfig, kept: int) -> str:
    """Return the command that collects what is missing."""
    rest = [] if plan.episodes is None else ["--episodes", str(max(1, plan.episodes - kept))]
    return shlex.join(["rewardlab", "collect", str(Path(plan.save_dir, CONFIG)), "--append", *rest])


def _attach(live: LiveState | None, env: VectorEnv[Any, Any, Any], hold: int | None) -> None:
    """Let robots show their pictures on a page, and hear what is pressed there."""
    inner: Any = env.unwrapped
    if live is not None and hasattr(inner, "call") and all(inner.call("has_wrapper_attr", "attach")):
        for robot in inner.call("attach", live):
            if hold is not None:
                robot.show(hold_needed=hold)


def _print_keys(env: EnvConfig, console: Console) -> None:
    """Say by which keys a person labels, stops and moves the robot."""
    for name in env.options.get("input", ()):
        print_line(console, INPUT_HELP[name], title=name)


def _episodes(
    env: DataCollectorWrapper, policy: Policy, seed: int, outcomes: Outcomes | None
) -> Iterator[tuple[int, int]]:
    """Step until everything is collected, and yield the numbers of kept episodes of success and failure.

    If a process that steps environments dies, all running episodes are dropped and others begun.
    """
    losses = 0  # since an episode was kept
    for attempt in itertools.count():
        # Not the same seed again: it would lead to episodes that were written already.
        seeds = np.random.SeedSequence([seed, attempt]).generate_state(1)
        before = _kept(env)
        try:
            observation, _ = env.reset(seed=int(seeds[0]) if attempt else seed)
            if attempt:
                policy.begin(np.ones(env.num_envs, bool))
            while not env.full:
                observation, _, terminated, truncated, infos = env.step(policy.act(observation))
                if outcomes is not None:
                    outcomes.add_step(terminated, truncated, infos)
                policy.begin(to_numpy(terminated) | to_numpy(truncated))
                yield _kept(env)
            return
        except ProcessDied as error:
            losses = losses + 1 if _kept(env) == before else 1
            if losses == LOSSES:
                raise
            warnings.warn(f"{error}; all running episodes begin again", RuntimeWarning, stacklevel=2)


def _policy(plan: CollectionConfig, env: VectorEnv[Any, Any, Any], seed: int, device: str) -> Policy:
    """By name, or from the checkpoint of a training run, which then acts on `device`."""
    policy: Policy
    if plan.policy not in POLICIES and Path(plan.policy).is_dir():
        from rewardlab.devices import find_device  # takes seconds: torch
        from rewardlab.pipelines.trained_policy import TrainedPolicy, latest_checkpoint

        checkpoint, place = latest_checkpoint(Path(plan.policy)), find_device(device, "cluster.device")
        policy = TrainedPolicy(checkpoint, env, seed, explore=plan.explore, device=place)
    else:
        policy = make_policy(plan.policy, env, seed)
    return WithRandomActions(policy, env, plan.random_actions, seed + 1) if plan.random_actions else policy


def _kept(env: DataCollectorWrapper) -> tuple[int, int]:
    return env.counts["success"].kept, env.counts["failure"].kept


def _episodes_in(plan: CollectionConfig) -> int:
    """Episodes of any format where this collection would write."""
    if plan.format == TRANSITIONS:
        return count_recorded(Path(plan.save_dir))
    places = [Path(place) for place in (plan.save_dir, plan.success_dir, plan.failure_dir) if place is not None]
    return len({path for place in places if place.is_dir() for path in episode_paths(place)})


def _in_colour(success: int, failure: int) -> str:
    return f"[green]{success} success[/] [red]{failure} failure[/]"
