"""Trains a policy with the environment's reward (stage 1) or with learned rewards (stage 3)."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from rewardlab.config import ExperimentConfig, to_yaml
from rewardlab.config.robots import attach_robots, is_robot
from rewardlab.console import make_console, print_line
from rewardlab.data.atomic import replace_file
from rewardlab.data.directory_lock import run_lock
from rewardlab.envs.closing import closed_after_errors
from rewardlab.errors import DataError, ProcessDied, ProcessLost, StoppedByAlarm, StorageError
from rewardlab.figures.trust import TrustFigures
from rewardlab.live_state import LiveState
from rewardlab.pipelines.async_training import AsyncTraining
from rewardlab.pipelines.policy_training import PolicyTraining
from rewardlab.pipelines.policy_workers import launch_workers
from rewardlab.pipelines.stopped_run import stopped_run
from rewardlab.pipelines.trusted_modules import evaluate_command, named_modules
from rewardlab.reports.history import HISTORY, forget_after, read_history
from rewardlab.reports.log_pictures import disputed_pictures
from rewardlab.reports.policy_report import describe_reward, write_policy_report
from rewardlab.reports.run_log import WENT_BACK, RunLog, describe_replacements
from rewardlab.reports.wandb_log import open_wandb
from rewardlab.rewards.trained_tasks import warn_about_run
from rewardlab.run_directories import set_aside
from rewardlab.run_state import (
    STEP,
    after_making_room,
    checkpoint_directory,
    list_checkpoints,
    other_place,
    resume_command,
    run_directory,
    with_found_checkpoint,
)
from rewardlab.stopping import StopSignals, interrupt_all, stop_signals
from rewardlab.workers.cluster import Cluster
from rewardlab.workers.group import StateLost, WorkerDied
from rewardlab.workers.placement import NodeLost
from rewardlab.workers.threads import torch_threads

AUDIT = "audit"  # directory of the disputed frames
MAX_RETURNS = 3  # number of times that a run whose learner dies continues from the same checkpoint at most


def run(
    cfg: ExperimentConfig,
    *,
    console: Console | None = None,
    expert_data: Any = None,
    live: LiveState | None = None,
) -> Path:
    """Train a policy as `cfg` says and return the last checkpoint.

    `expert_data`, in any form that `rewardlab.rewards.zoo.experts` reads, is for reward models that learn from an
    expert and whose config has no expert_data_path. `live` is shown on a page while the run goes on.
    """
    cfg = with_found_checkpoint(attach_robots(cfg), of="policy")
    _warn_about_cut_episodes(cfg)
    if cfg.reward.use_reward_model:
        warn_about_run(cfg.reward, cfg.env.train.task)
    console = console or make_console()
    out = run_directory(cfg)
    with stop_signals() as stop, run_lock(out, checkpoint_directory(cfg)):
        _make_way(cfg, out, console)
        try:
            training = _train(cfg, out, console, expert_data, live, stop)
            with stop.deferred("the report"):
                report = _write_report(cfg, training, out)
                _say_results(cfg, training, out, report, console)
        except StorageError as error:
            raise after_making_room(error, _newest_checkpoint(cfg)) from error
        except KeyboardInterrupt:
            if (saved := _newest_checkpoint(cfg)) is not None:
                print_line(console, f"continue: {resume_command(out, saved)}")
            raise
    if training.progress.alarmed:
        raise StoppedByAlarm(f"stopped: {training.progress.stopped}", training.last_checkpoint)
    return training.last_checkpoint


def _say_results(cfg: ExperimentConfig, training: PolicyTraining, out: Path, report: Path, console: Console) -> None:
    progress = training.progress
    if progress.stopped and not progress.alarmed:  # else the error of the run says it
        print_line(console, f"stopped: {progress.stopped}")
    for name, path in (("checkpoint", training.last_checkpoint), ("report", report)):
        print_line(console, f"{name}: {path}")
    print_line(console, f"evaluate: {evaluate_command(out, named_modules(cfg.env.eval))}")
    if progress.alarmed or progress.interrupted:
        print_line(console, f"continue: {resume_command(out, training.last_checkpoint)}")


def _make_way(cfg: ExperimentConfig, out: Path, console: Console) -> None:
    """Raise if the directory has a run that could be continued; what is left of one that could not is set aside."""
    saved = _newest_checkpoint(cfg)
    resumed_from = cfg.runner.resume_dir and Path(cfg.runner.resume_dir).resolve().parent
    if saved is not None and resumed_from == saved.parent.resolve():
        return
    just_begun = saved is not None and saved.name == f"{STEP}0" and not (out / HISTORY).is_file()
    if saved is not None and not just_begun:
        raise DataError(f"{saved.parent} already contains a run. {other_place(cfg, saved)}")
    place = set_aside(out, [] if saved is None else [saved])
    if place is not None:
        print_line(console, f"an earlier run here ended before its first checkpoint; what it left is now in {place}")


def _newest_checkpoint(cfg: ExperimentConfig) -> Path | None:
    return next(reversed(list_checkpoints(checkpoint_directory(cfg))), None)


def _train(
    cfg: ExperimentConfig, out: Path, console: Console, expert_data: Any, live: LiveState | None, stop: StopSignals
) -> PolicyTraining:
    # One torch thread here: reward workers have their own threads, so that all cores are used.
    with torch_threads(1), Cluster(cfg.cluster) as cluster:
        return _train_on(cluster, cfg, out, console, expert_data, live, stop)


def _train_on(
    cluster: Cluster,
    cfg: ExperimentConfig,
    out: Path,
    console: Console,
    expert_data: Any,
    live: LiveState | None,
    stop: StopSignals,
) -> PolicyTraining:
    """Train to the end, or until a signal asks to stop.

    If the learner dies, launch all workers again and go back to the last checkpoint: the run then continues to the bit
    as a resumed one does. Other deaths that remain (a worker dies again and again, a node is lost whose work no other
    node can do) stop the run, with a checkpoint if the learner is alive.
    """
    training = _begin(cfg, cluster, out, expert_data, live)
    with closed_after_errors(training.close):
        replace_file(out / "config.yaml", to_yaml(cfg).encode())
    begun_from: list[Path | None] = []
    while True:
        try:
            with stop.deferred("this iteration", at_once=is_robot(cfg.env.train)):
                _iterate(training, out, console, live, stop)
                training.close()
            return training
        except KeyboardInterrupt:  # where a robot moves
            interrupt_all()
            if training.abandon(save=True) is None or not stop.requested:
                raise
            training.note_interrupt(stop.words)
            return training
        except (ProcessDied, ProcessLost, NodeLost) as failure:
            dead = failure.worker if isinstance(failure, WorkerDied) else None
            can_go_back = isinstance(failure, StateLost) or dead is training.actor
            saved = training.abandon(save=not can_go_back)
            begun_from.append(saved)
            if not can_go_back:
                raise stopped_run(str(failure), out, saved) from None
            if begun_from.count(saved) == MAX_RETURNS:
                raise stopped_run(f"{failure}, {MAX_RETURNS} times at this place of the run", out, saved) from None
            goal = "its beginning" if saved is None else str(saved)
            print_line(console, f"{failure}; the run goes back to {goal}")
            completed = training.completed
        resume_dir = cfg.runner.resume_dir if saved is None else str(saved)
        cluster.stop_workers()
        try:
            going_back = replace(cfg, runner=replace(cfg.runner, resume_dir=resume_dir))
            training = _begin(going_back, cluster, out, expert_data, live)
        except (WorkerDied, NodeLost) as failure:
            raise stopped_run(str(failure), out, saved) from None
        assert dead is not None
        training.events = {f"{WENT_BACK}{dead.label}": completed - training.completed}


def _begin(
    cfg: ExperimentConfig, cluster: Cluster, out: Path, expert_data: Any, live: LiveState | None
) -> PolicyTraining:
    """Launch the workers and load the checkpoint that the config names."""
    workers = launch_workers(cfg, cluster, out, expert_data)
    with closed_after_errors(lambda: workers.envs.call("close").result()):
        if live is not None and cfg.cluster.backend == "local":  # on Ray, other processes step the environments
            workers.envs.setup("attach", live)
        training = (AsyncTraining if cfg.algorithm.asynchronous.enabled else PolicyTraining)(cfg, workers, out)
    with closed_after_errors(training.close):
        resumed = cfg.runner.resume_dir is not None and training.resume(Path(cfg.runner.resume_dir))
        if not resumed:
            training.begin()
        forget_after(out, training.completed)  # last: if resuming fails, the run keeps its history
    return training


def _iterate(training: PolicyTraining, out: Path, console: Console, live: LiveState | None, stop: StopSignals) -> None:
    cfg = training.cfg
    total = math.ceil(training.total_env_steps / (cfg.algorithm.rollout_steps * cfg.env.train.num_envs))
    # Where a worker died, or a robot was stopped, something is left to save: `abandon` closes the environments then.
    left_open = (ProcessDied, ProcessLost, NodeLost, KeyboardInterrupt)
    closed = closed_after_errors(training.close, except_for=left_open)
    with closed, RunLog(out, total=total, console=console, wandb=open_wandb(cfg, out)) as log:
        while not training.finished:
            metrics = training.iterate()
            log.write(training.completed, metrics, _progress_line(metrics, bool(training.rewards.alarms)))
            replacements = describe_replacements({"iteration": training.completed, **metrics})
            for words in replacements:
                log.say(words)
            for alarm in training.rewards.new_alarms:
                log.say(alarm.words, title="alarm", style="bold red")
            if live is not None:
                _show(live, training, metrics, replacements)
            if stop.requested:
                training.note_interrupt(stop.words)
            if training.is_due(cfg.runner.save_interval):
                log.show_pictures(training.completed, disputed_pictures(out / AUDIT))
            training.save_if_due(log)


def _show(live: LiveState, training: PolicyTraining, metrics: Mapping[str, float], replacements: list[str]) -> None:
    """Show an iteration on the page of the run."""
    live.show(iteration=training.completed)
    live.add_metrics(metrics["env_steps"], metrics)
    for words in replacements:
        live.say(words)
    for alarm in training.rewards.new_alarms:
        live.say(alarm.words, alarm=True)


def _warn_about_cut_episodes(cfg: ExperimentConfig) -> None:
    """Warn if no episode can reach its time limit between two checkpoints, at which environments are reset."""
    limit, steps = cfg.env.train.max_episode_steps, cfg.runner.save_interval * cfg.algorithm.rollout_steps
    if cfg.algorithm.asynchronous.enabled:  # environments go on at checkpoints
        return
    if limit is not None and steps < limit and cfg.runner.save_interval < cfg.runner.max_epochs:
        warnings.warn(
            f"runner.save_interval: environments are reset at each checkpoint, here after {steps} steps, so that no "
            f"episode reaches its limit of {limit} steps, and those cut short are neither rewarded at their end nor "
            f"collected; set it to {-(-limit // cfg.algorithm.rollout_steps)} or more",
            stacklevel=3,
        )


def _progress_line(metrics: Mapping[str, float], alarmed: bool) -> str:
    """Return the figures of an iteration for one line of a terminal, the most important ones first."""
    parts = ["[bold red]ALARM[/]"] if alarmed else []
    for name, title in (("env/success_at_end", "success"), ("eval/success_at_end", "eval"), ("audit/fpr", "FPR")):
        if name in metrics:
            parts.append(f"{title} {metrics[name]:.0%}")
    if "env/success_at_end" not in metrics and "env/return" in metrics:
        parts.append(f"return {metrics['env/return']:.4g}")
    if "rollout/model_rewards" in metrics:
        parts.append(f"reward {metrics['rollout/model_rewards']:.2f}")
    return " ".join([*parts, f"{_rounded(metrics['env_steps'])} steps"])


def _rounded(count: float) -> str:
    """Return a large number in few characters: 12.8k, 1.3M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"


def _write_report(cfg: ExperimentConfig, training: PolicyTraining, out: Path) -> Path:
    rewards = training.rewards
    audited = [rewards.facts[name].metrics for name in rewards.audits]
    history = read_history(out / HISTORY) if (out / HISTORY).exists() else []
    facts, disputed = {}, out / AUDIT
    if len(audited) > 1:  # the page shows the audit of one of them
        first = next(iter(rewards.audits))
        history = [{key.replace(f"audit/{first}/", "audit/"): row[key] for key in row} for row in history]
        facts, disputed = {"audit shown": f"of '{first}', one of {', '.join(rewards.audits)}"}, disputed / first
    return write_policy_report(
        out / "report.html",
        title=f"{cfg.algorithm.name.upper()} on {cfg.env.train.task}",
        history=history,
        alarms=rewards.alarms,
        max_fpr=cfg.reward.audit.max_fpr if audited else None,
        disputed=disputed if audited else None,
        figures=TrustFigures.from_json(audited[0]) if audited and audited[0] else None,
        facts={
            "algorithm": cfg.algorithm.name,
            "environments": str(cfg.env.train.num_envs),
            "reward": describe_reward(cfg),
            "seed": str(cfg.seed),
            "environment steps": f"{training.progress.env_steps:,}",
            **facts,
            **({"ended early": training.progress.stopped} if training.progress.stopped else {}),
        },
    )
