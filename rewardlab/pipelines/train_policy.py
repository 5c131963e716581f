"""Stages 1 and 3: a policy, on the environment's own reward or on a learned one."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rewardlab.config import ExperimentConfig, to_yaml
from rewardlab.config.run_checks import refuse_robot_keys
from rewardlab.data.atomic import replace_file
from rewardlab.errors import ConfigError, DataError
from rewardlab.figures.trust import TrustFigures
from rewardlab.pipelines.policy_workers import PolicyWorkers, launch_workers
from rewardlab.reports.policy_report import write_policy_report
from rewardlab.reports.run_log import HISTORY, RunLog, forget_after, read_history
from rewardlab.run_state import load_state, save_state
from rewardlab.workers.cluster import Cluster
from rewardlab.workers.env import Episodes
from rewardlab.workers.threads import torch_threads


@dataclass
class Progress:
    """Where a run is."""

    iteration: int = 0  # rollout-and-update rounds done
    env_steps: int = 0
    updates: int = 0  # optimizer steps of the policy
    stopped: str | None = None  # why it ended before its budget was spent


def run(cfg: ExperimentConfig, *, console: Console | None = None, expert_data: Any = None) -> Path:
    """Train as `cfg` says; returns the last checkpoint.

    `expert_data` is for reward models that learn from an expert and whose config names no file of it: anything that
    `rewardlab.rewards.zoo.experts` reads.
    """
    refuse_robot_keys(cfg)
    console = console or Console()
    out = Path(cfg.runner.logger.log_path, cfg.runner.logger.experiment_name)
    if (out / HISTORY).exists() and cfg.runner.resume_dir is None:
        raise DataError(
            f"{out} has a run already. Choose another runner.logger.log_path, or continue that run with "
            f"runner.resume_dir={out}/checkpoints/global_step_<number>"
        )
    # Reward workers are threads of their own, so all cores are used all the same.
    with torch_threads(1), Cluster(cfg.cluster) as cluster:
        training = PolicyTraining(cfg, launch_workers(cfg, cluster, out, expert_data), out)
        resumed = cfg.runner.resume_dir is not None and training.resume(Path(cfg.runner.resume_dir))
        if cfg.reward.pretrain and not resumed:
            training.rewards.pretrain()
        replace_file(out / "config.yaml", to_yaml(cfg).encode())
        with RunLog(out, total=cfg.runner.max_epochs, console=console) as log:
            while not training.finished:
                figures = training.iterate()
                log.write(training.progress.iteration, figures, _words(figures, bool(training.rewards.alarms)))
                for alarm in training.rewards.new_alarms:
                    log.say(f"[bold red]alarm[/]: {alarm.words}")
                training.save_if_due()
        training.close()
    report = _report(cfg, training, out)
    _summarize(console, training, report)
    return training.checkpoint


class PolicyTraining:
    """What happens in an iteration of a run: roll out, compute rewards, update, evaluate."""

    def __init__(self, cfg: ExperimentConfig, workers: PolicyWorkers, out: Path) -> None:
        self.cfg = cfg
        self.out = out
        self.workers = workers
        self.rewards = workers.rewards
        self.actor = workers.actor
        self.progress = Progress()
        self.checkpoints = Path(cfg.runner.checkpoint_dir) if cfg.runner.checkpoint_dir else out / "checkpoints"
        self._afresh = True
        self._best: float | None = None  # evaluation that reward_models/best was saved at

    def iterate(self) -> dict[str, float]:
        """One round; the figures to log."""
        clock = Clock()
        cfg, progress = self.cfg, self.progress
        with clock("sync"):
            self.actor.submit("set_progress", progress.env_steps, self._total_env_steps()).result()
            weights = self.actor.submit("policy_weights").result()
            self.workers.lanes.policies.setup("load_policy", weights)
        off_policy = cfg.algorithm.off_policy
        at_random = off_policy is not None and progress.env_steps < off_policy.learning_starts
        with clock("rollout"):
            rollout = self.workers.lanes.roll(
                progress.iteration, cfg.algorithm.rollout_steps, afresh=self._afresh, at_random=at_random
            )
        self._afresh = False
        if rollout.afresh:
            self.rewards.begin_episodes()
            self.actor.submit("begin_episodes").result()
        progress.iteration += 1
        with clock("reward"):
            batch, figures = self.rewards.compute_rewards(rollout, progress.iteration)
        figures |= _episode_figures(rollout.episodes)
        progress.env_steps += batch.numel()
        with clock("learn"):
            due = self.actor.submit("add", batch, progress.env_steps, self.rewards.stored_frames(rollout)).result()
            updates = self.actor.submit("update", due).result()
        figures |= {f"train/{name}": value for name, value in updates.items()}
        progress.updates = int(figures.get("train/updates", progress.updates))
        self._heed_alarms()
        figures |= self._evaluated(clock) if self._due(cfg.runner.val_check_interval) else {}
        self._stop_early(figures)
        timings = {f"time/{name}": seconds for name, seconds in clock.seconds.items()}
        if rollout.frames is not None:
            timings["time/compute_model_rewards"] = rollout.waited
            timings["time/rollout"] -= rollout.waited
        return {"env_steps": progress.env_steps, **figures, **timings}

    @property
    def finished(self) -> bool:
        runner, progress = self.cfg.runner, self.progress
        spent = runner.max_env_steps is not None and progress.env_steps >= runner.max_env_steps
        spent |= runner.max_steps is not None and progress.updates >= runner.max_steps
        return spent or progress.iteration >= runner.max_epochs or progress.stopped is not None

    @property
    def checkpoint(self) -> Path:
        return self.checkpoints / f"global_step_{self.progress.iteration}"

    def save_if_due(self) -> None:
        if not self._due(self.cfg.runner.save_interval):
            return
        progress = self.progress
        state = {
            "actor": self.actor.submit("state_dict").result(),
            "policy": self.actor.submit("policy_weights").result(),
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            "updates": progress.updates,
            "rewards": self.rewards.state_dict(),
            "best": self._best,
        }
        facts = {"model_type": "policy", "architecture": {}, "algorithm": self.cfg.algorithm.name}
        save_state(self.checkpoint, state, facts)
        self.rewards.save("last")
        # A run resumed from here begins with new episodes, so this one does so too: both go on alike.
        self._afresh = True

    def resume(self, checkpoint: Path) -> bool:
        """Go on from a checkpoint of this run; or begin with the policy of an earlier stage, whose reward may have been
        another one, so that neither its reward models nor its stored transitions come along. Whether it is this run's.
        """
        state, facts = load_state(checkpoint)
        if facts.get("algorithm") != self.cfg.algorithm.name:
            raise ConfigError(
                f"runner.resume_dir: {checkpoint} was trained by {facts.get('algorithm')}, but algorithm.name is "
                f"{self.cfg.algorithm.name}"
            )
        this_run = checkpoint.resolve().parent == self.checkpoints.resolve()
        if not this_run:
            state["actor"]["replay"] = None
        elif self.cfg.reward.use_reward_model and "audits" not in state["rewards"]:
            raise ConfigError(
                f"runner.resume_dir: {checkpoint} was written by an earlier version of rewardlab, which stored reward "
                "models in another form. To begin a new run with its policy, set another "
                "runner.logger.experiment_name"
            )
        try:
            self.actor.submit("load_state_dict", state["actor"]).result()
        except (RuntimeError, KeyError, ValueError) as error:
            raise ConfigError(
                f"runner.resume_dir: the policy of {checkpoint} does not fit this config ({error})"
            ) from error
        self.progress.iteration, self.progress.env_steps = state["iteration"], state["env_steps"]
        self.progress.updates = state["updates"]
        if not this_run:
            return False
        self._best = state["best"]
        try:
            if self.cfg.reward.use_reward_model:
                self.rewards.load_state_dict(state["rewards"])
        except (ConfigError, DataError) as error:
            raise ConfigError(f"runner.resume_dir: {checkpoint}: {error}") from error
        if self.rewards.terminal_only:
            self.workers.envs.setup("request_frames", self.rewards.frame_request)
        forget_after(self.out, self.progress.iteration)  # last: a run that cannot go on keeps its history
        return True

    def close(self) -> None:
        """Wait for files that workers still write."""
        self.workers.envs.call("close").result()
        self.rewards.close()

    def _heed_alarms(self) -> None:
        """Do what `reward.audit.on_alarm` says; a warning is for the log alone."""
        wanted, alarms = self.cfg.reward.audit.on_alarm, self.rewards.new_alarms
        if alarms and wanted == "stop":
            self.progress.stopped = f"the audit raised an alarm. {alarms[0].words}"
        if alarms and wanted == "terminal" and not self.rewards.terminal_only:
            self.rewards.go_terminal()
            self.workers.envs.setup("request_frames", self.rewards.frame_request)

    def _evaluated(self, clock: "Clock") -> dict[str, float]:
        with clock("evaluate"):
            policy = self.workers.evaluated_policy
            policy.load_state_dict(self.actor.submit("policy_weights").result())
            figures = self.workers.evaluation.run(policy)
        reached = figures.get("success_at_end", figures["return"])
        if self._best is None or reached > self._best:
            self._best = reached
            self.rewards.save("best")
        return {f"eval/{name}": value for name, value in figures.items()}

    def _stop_early(self, figures: Mapping[str, float]) -> None:
        wanted, reached = self.cfg.runner.stop_at_success, figures.get("eval/success_at_end", 0.0)
        if wanted is not None and reached >= wanted:
            self.progress.stopped = f"{reached:.0%} of the episodes succeed (runner.stop_at_success={wanted:g})"
        enough, found = self.cfg.runner.stop_at_return, figures.get("eval/return", -math.inf)
        if enough is not None and found >= enough:
            self.progress.stopped = f"episodes have a mean return of {found:g} (runner.stop_at_return={enough:g})"

    def _due(self, interval: int) -> bool:
        return self.progress.iteration % interval == 0 or self.finished

    def _total_env_steps(self) -> int:
        budget = self.cfg.runner.max_epochs * self.cfg.algorithm.rollout_steps * self.cfg.env.train.num_envs
        return min(budget, self.cfg.runner.max_env_steps or budget)


def _episode_figures(episodes: Episodes) -> dict[str, float]:
    """Means over the episodes that ended, if any did."""
    if not len(episodes.length):
        return {}
    figures = {"env/return": float(episodes.reward.mean()), "env/episode_length": float(episodes.length.mean())}
    for name in ("success_once", "success_at_end"):
        values = getattr(episodes, name)
        if values is not None:
            figures[f"env/{name}"] = float(np.mean(values))
    return figures


class Clock:
    """Where the time of an iteration goes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


def _words(figures: Mapping[str, float], alarmed: bool) -> str:
    parts = [f"{figures['env_steps']:,} steps"]
    for name, word in (("env/success_at_end", "success"), ("eval/success_at_end", "eval"), ("audit/fpr", "FPR")):
        if name in figures:
            parts.append(f"{word} {figures[name]:.0%}")
    if "env/success_at_end" not in figures and "env/return" in figures:
        parts.append(f"return {figures['env/return']:.1f}")
    if "rollout/model_rewards" in figures:
        parts.append(f"model reward {figures['rollout/model_rewards']:.2f}")
    return "  ".join(parts) + ("  [bold red]ALARM[/]" if alarmed else "")


def _report(cfg: ExperimentConfig, training: PolicyTraining, out: Path) -> Path:
    rewards = training.rewards
    audited = [rewards.facts[name].metrics for name in rewards.audits]
    return write_policy_report(
        out / "report.html",
        title=f"{cfg.algorithm.name.upper()} on {cfg.env.train.id}",
        history=read_history(out / HISTORY) if (out / HISTORY).exists() else [],
        alarms=rewards.alarms,
        max_fpr=cfg.reward.audit.max_fpr if audited else None,
        disputed=out / "audit" if audited else None,
        figures=TrustFigures.from_json(audited[0]) if audited and audited[0] else None,
        facts={
            "algorithm": cfg.algorithm.name,
            "environments": str(cfg.env.train.num_envs),
            "reward": _reward_words(cfg),
            "seed": str(cfg.seed),
            "environment steps": f"{training.progress.env_steps:,}",
            **({"ended early": training.progress.stopped} if training.progress.stopped else {}),
        },
    )


def _reward_words(cfg: ExperimentConfig) -> str:
    if not cfg.reward.use_reward_model:
        return f"the environment's own ({cfg.env.train.reward})"
    models = [str(model.checkpoint_path or model.model_type) for model in cfg.reward.models]
    return f"{' + '.join(models)}, {cfg.reward.reward_mode}, {cfg.reward.combine_mode}"


def _summarize(console: Console, training: PolicyTraining, report: Path) -> None:
    progress = training.progress
    if progress.stopped:
        console.print(f"stopped: {progress.stopped}", highlight=False, markup=False, soft_wrap=True)
    for place, path in (("checkpoint", training.checkpoint), ("report", report)):
        console.print(f"{place}: {path}", highlight=False, soft_wrap=True, markup=False)
