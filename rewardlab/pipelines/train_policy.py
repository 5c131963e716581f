"""Trains a policy with the environment's reward (stage 1) or with learned rewards (stage 3)."""

import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from rewardlab.config import ExperimentConfig, to_yaml
from rewardlab.config.robots import attach_robots
from rewardlab.console import make_console, print_line
from rewardlab.data.atomic import replace_file
from rewardlab.data.directory_lock import run_lock
from rewardlab.envs.closing import closed_after_errors
from rewardlab.errors import ConfigError, DataError, ProcessDied, ProcessLost, RewardlabError, StorageError
from rewardlab.figures.trust import TrustFigures
from rewardlab.models.weights import first_mismatch
from rewardlab.pipelines.policy_workers import PolicyWorkers, launch_workers
from rewardlab.pipelines.stopped_run import stopped_run
from rewardlab.pipelines.trusted_modules import evaluate_command, named_modules
from rewardlab.reports.policy_report import write_policy_report
from rewardlab.reports.run_log import (
    HISTORY,
    REPLACED,
    WENT_BACK,
    RunLog,
    describe_replacements,
    forget_after,
    read_history,
)
from rewardlab.rewards.trained_tasks import warn_about_run
from rewardlab.run_state import (
    after_making_room,
    checkpoint_directory,
    list_checkpoints,
    load_state,
    other_place,
    save_state,
)
from rewardlab.workers.cluster import Cluster
from rewardlab.workers.env import Episodes
from rewardlab.workers.group import StateLost, WorkerDied
from rewardlab.workers.placement import NodeLost
from rewardlab.workers.threads import torch_threads

MAX_RETURNS = 3  # number of times that a run whose learner dies continues from the same checkpoint at most


@dataclass
class Progress:
    """Counters of a run."""

    iteration: int = 0  # iterations of rollout and update that are complete
    env_steps: int = 0
    updates: int = 0  # optimizer steps of the policy
    stopped: str | None = None  # why the run stopped early


def run(cfg: ExperimentConfig, *, console: Console | None = None, expert_data: Any = None) -> Path:
    """Train a policy as `cfg` says and return the last checkpoint.

    `expert_data`, in any form that `rewardlab.rewards.zoo.experts` reads, is for reward models that learn from an
    expert and whose config has no expert_data_path.
    """
    cfg = attach_robots(cfg)
    _warn_about_cut_episodes(cfg)
    if cfg.reward.use_reward_model:
        warn_about_run(cfg.reward, cfg.env.train.task)
    console = console or make_console()
    out = Path(cfg.runner.logger.log_path, cfg.runner.logger.experiment_name)
    with run_lock(out, checkpoint_directory(cfg)):
        _refuse_another_run(cfg)
        try:
            training = _train(cfg, out, console, expert_data)
            report = _write_report(cfg, training, out)
        except StorageError as error:
            raise after_making_room(error, _newest_checkpoint(cfg)) from error
    if training.progress.stopped:
        print_line(console, f"stopped: {training.progress.stopped}")
    for name, path in (("checkpoint", training.checkpoint), ("report", report)):
        print_line(console, f"{name}: {path}")
    if training.checkpoints == out / "checkpoints":  # where `evaluate` looks for them
        print_line(console, f"evaluate: {evaluate_command(out, named_modules(cfg.env.eval))}")
    return training.checkpoint


def _refuse_another_run(cfg: ExperimentConfig) -> None:
    """Raise if the directory has a run that could be continued; one that has saved nothing yet begins again."""
    saved = _newest_checkpoint(cfg)
    resumed_from = cfg.runner.resume_dir and Path(cfg.runner.resume_dir).resolve().parent
    if saved is not None and resumed_from != saved.parent.resolve():
        raise DataError(f"{saved.parent} already contains a run. {other_place(cfg, saved)}")


def _newest_checkpoint(cfg: ExperimentConfig) -> Path | None:
    return next(reversed(list_checkpoints(checkpoint_directory(cfg))), None)


def _train(cfg: ExperimentConfig, out: Path, console: Console, expert_data: Any) -> "PolicyTraining":
    # One torch thread here: reward workers have their own threads, so that all cores are used.
    with torch_threads(1), Cluster(cfg.cluster) as cluster:
        training = _train_on(cluster, cfg, out, console, expert_data)
        training.close()
    return training


def _train_on(
    cluster: Cluster, cfg: ExperimentConfig, out: Path, console: Console, expert_data: Any
) -> "PolicyTraining":
    """Train to the end. If the learner dies, launch all workers again and go back to the last checkpoint.

    The run then continues to the bit as a resumed one does. Other deaths that remain (a worker dies again and again, a
    node is lost whose work no other node can do) stop the run, with a checkpoint if the learner is alive.
    """
    training = _begin(cfg, cluster, out, expert_data)
    with closed_after_errors(training.close):
        replace_file(out / "config.yaml", to_yaml(cfg).encode())
    begun_from: list[Path | None] = []
    while True:
        try:
            _iterate(training, out, console)
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
            training = _begin(going_back, cluster, out, expert_data)
        except (WorkerDied, NodeLost) as failure:
            raise stopped_run(str(failure), out, saved) from None
        assert dead is not None
        training.events = {f"{WENT_BACK}{dead.label}": completed - training.completed}


def _begin(cfg: ExperimentConfig, cluster: Cluster, out: Path, expert_data: Any) -> "PolicyTraining":
    """Launch the workers and load the checkpoint that the config names."""
    training = PolicyTraining(cfg, launch_workers(cfg, cluster, out, expert_data), out)
    with closed_after_errors(training.close):
        resumed = cfg.runner.resume_dir is not None and training.resume(Path(cfg.runner.resume_dir))
        if not resumed:
            training.begin()
        forget_after(out, training.completed)  # last: if resuming fails, the run keeps its history
    return training


def _iterate(training: "PolicyTraining", out: Path, console: Console) -> None:
    total = training.cfg.runner.max_epochs
    # Where a worker died there may be something left to save: `abandon` closes the environments then.
    closed = closed_after_errors(training.close, except_for=(ProcessDied, ProcessLost, NodeLost))
    with closed, RunLog(out, total=total, console=console) as log:
        while not training.finished:
            metrics = training.iterate()
            log.write(training.completed, metrics, _progress_line(metrics, bool(training.rewards.alarms)))
            for words in describe_replacements({"iteration": training.completed, **metrics}):
                log.say(words)
            for alarm in training.rewards.new_alarms:
                log.say(alarm.words, title="alarm", style="bold red")
            training.save_if_due(log)


class PolicyTraining:
    """The training loop of a policy: each iteration collects a rollout, computes rewards, updates and evaluates."""

    def __init__(self, cfg: ExperimentConfig, workers: PolicyWorkers, out: Path) -> None:
        self.cfg = cfg
        self.out = out
        self.workers = workers
        self.rewards = workers.rewards
        self.actor = workers.actor
        self.progress = Progress()
        self.checkpoints = checkpoint_directory(cfg)
        self.completed = 0  # iterations that are complete, while `progress` already counts the current one
        self.saved: Path | None = None  # the last checkpoint of this run
        self.events: dict[str, float] = {}  # what happened to workers, for the metrics of the next iteration
        self._reset_next = True  # reset all environments before the next rollout
        self._best: float | None = None  # best evaluation so far, at which reward_models/best was saved

    def begin(self) -> None:
        """Prepare a run that does not continue an earlier one."""
        if self.cfg.reward.use_reward_model and self.cfg.reward.pretrain:
            self.rewards.pretrain()
        self._begin_collecting([])

    def iterate(self) -> dict[str, float]:
        """Run one iteration and return the metrics to log."""
        clock = Clock()
        cfg, progress = self.cfg, self.progress
        with clock("sync"):
            budget = cfg.runner.max_epochs * cfg.algorithm.rollout_steps * cfg.env.train.num_envs
            total_env_steps = min(budget, cfg.runner.max_env_steps or budget)
            self.actor.submit("set_progress", progress.env_steps, total_env_steps).result()
            weights = self.actor.submit("policy_weights").result()
            self.workers.lanes.policies.setup("load_policy", weights)
        off_policy = cfg.algorithm.off_policy
        at_random = off_policy is not None and progress.env_steps < off_policy.learning_starts
        with clock("rollout"):
            rollout = self.workers.lanes.collect(
                progress.iteration, cfg.algorithm.rollout_steps, reset=self._reset_next, at_random=at_random
            )
        self._reset_next = False
        if rollout.after_reset:
            self.rewards.begin_episodes()
            self.actor.submit("begin_episodes").result()
        progress.iteration += 1
        with clock("reward"):
            batch, metrics = self.rewards.compute_rewards(rollout, progress.iteration)
        metrics |= _episode_metrics(rollout.episodes)
        metrics |= self.events | {f"{REPLACED}{label}": rollout.replaced.count(label) for label in rollout.replaced}
        progress.env_steps += batch.rows.numel()
        with clock("learn"):
            due = self.actor.submit("add", batch, progress.env_steps).result()
            updates = self.actor.submit("update", due).result()
        metrics |= {f"train/{name}": value for name, value in updates.items()}
        progress.updates = int(metrics.get("train/updates", progress.updates))
        self._handle_alarms()
        if self._is_due(cfg.runner.val_check_interval):
            with clock("evaluate"):
                metrics |= self._evaluate()
        self._stop_early(metrics)
        timings = {f"time/{name}": seconds for name, seconds in clock.seconds.items()}
        if rollout.frames is not None:
            timings["time/compute_model_rewards"] = rollout.waiting_time
            timings["time/rollout"] -= rollout.waiting_time
        self.completed, self.events = progress.iteration, {}
        return {"env_steps": progress.env_steps, **metrics, **timings}

    @property
    def finished(self) -> bool:
        """Return whether the budget is spent or the run was stopped early."""
        runner, progress = self.cfg.runner, self.progress
        spent = runner.max_env_steps is not None and progress.env_steps >= runner.max_env_steps
        spent |= runner.max_steps is not None and progress.updates >= runner.max_steps
        return spent or progress.iteration >= runner.max_epochs or progress.stopped is not None

    @property
    def checkpoint(self) -> Path:
        return self.checkpoints / f"global_step_{self.progress.iteration}"

    def save_if_due(self, log: RunLog) -> None:
        """Write a checkpoint every `runner.save_interval` iterations and at the end, after the rows of the log."""
        if self._is_due(self.cfg.runner.save_interval):
            log.flush()
            self.save()

    def save(self) -> None:
        """Write a checkpoint. Call it between two iterations only."""
        progress = self.progress
        state = {
            "actor": self.actor.submit("state_dict").result(),
            "policy": self.actor.submit("policy_weights").result(),
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            "updates": progress.updates,
            "rewards": self.rewards.state_dict(),
            "best": self._best,
            "collection": self.workers.lanes.collection_states,
        }
        facts = {"model_type": "policy", "architecture": {}, "algorithm": self.cfg.algorithm.name}
        save_state(self.checkpoint, state, facts)
        self.saved = self.checkpoint
        self.rewards.save("last")
        # A run resumed from this checkpoint begins with a reset; so does this run, so that both give the same numbers.
        self._reset_next = True

    def abandon(self, *, save: bool) -> Path | None:
        """Give up after a worker died; return the last checkpoint, with `save` a new one if that is still possible."""
        if save and self.progress.iteration == self.completed and self.saved != self.checkpoint:
            with suppress(RewardlabError):  # the learner may be gone, too
                self.save()
        with suppress(Exception):  # what ended the run says more
            self.close()
        return self.saved

    def resume(self, checkpoint: Path) -> bool:
        """Load a checkpoint of this run, or only the policy of another run; return whether it is this run's.

        The policy of another run may have been trained with another reward, so that run's reward models and replay
        buffer are not loaded.
        """
        state, facts = load_state(checkpoint)
        if facts.get("algorithm") != self.cfg.algorithm.name:
            raise ConfigError(
                f"runner.resume_dir: {checkpoint} was trained by {facts.get('algorithm')}, but algorithm.name is "
                f"{self.cfg.algorithm.name}"
            )
        if missing := {"actor", "iteration", "env_steps", "updates", "rewards", "best"} - state.keys():
            raise DataError(f"runner.resume_dir: {checkpoint} is damaged: it has no {', '.join(sorted(missing))}")
        this_run = checkpoint.resolve().parent == self.checkpoints.resolve()
        if not this_run:
            state["actor"]["replay"] = None
        elif self.cfg.reward.use_reward_model and "audits" not in state["rewards"]:
            raise ConfigError(
                f"runner.resume_dir: {checkpoint} was written by an earlier version of rewardlab, which stored reward "
                "models in another form. To start a new run with its policy, set another "
                "runner.logger.experiment_name"
            )
        try:
            self.actor.submit("load_state_dict", state["actor"]).result()
        except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"runner.resume_dir: the policy of {checkpoint} does not fit this config ({first_mismatch(error)})"
            ) from error
        self.progress.iteration, self.progress.env_steps = state["iteration"], state["env_steps"]
        self.progress.updates = state["updates"]
        self.completed = self.progress.iteration
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
        self._begin_collecting(state.get("collection", []))
        self.saved = checkpoint
        return True

    def _begin_collecting(self, states: list[dict[str, Any]]) -> None:
        """Let environment workers go on collecting, those without a state from the beginning."""
        cfg, workers = self.cfg, len(self.workers.envs)
        run = states[0]["run"] if states else _run_name(cfg)
        self.workers.lanes.begin_collecting([*states, *[{"run": run}] * workers][:workers])

    def close(self) -> None:
        """Close the environments, and wait for files that workers are still writing."""
        with ExitStack() as each:  # the last one first, whatever happens to the others
            each.callback(self.rewards.close)
            each.callback(self.workers.evaluation.env.close)
            each.callback(lambda: self.workers.envs.call("close").result())

    def _handle_alarms(self) -> None:
        """Do what `reward.audit.on_alarm` says; "warn" only writes to the log."""
        on_alarm, alarms = self.cfg.reward.audit.on_alarm, self.rewards.new_alarms
        if alarms and on_alarm == "stop":
            self.progress.stopped = f"the audit raised an alarm. {alarms[0].words}"
        if alarms and on_alarm == "terminal" and not self.rewards.terminal_only:
            self.rewards.switch_to_terminal()
            self.workers.envs.setup("request_frames", self.rewards.frame_request)

    def _evaluate(self) -> dict[str, float]:
        policy = self.workers.evaluated_policy
        policy.load_state_dict(self.actor.submit("policy_weights").result())
        metrics = self.workers.evaluation.run(policy)
        score = metrics.get("success_at_end", metrics["return"])
        if self._best is None or score > self._best:
            self._best = score
            self.rewards.save("best")
        return {f"eval/{name}": value for name, value in metrics.items()}

    def _stop_early(self, metrics: Mapping[str, float]) -> None:
        target, success = self.cfg.runner.stop_at_success, metrics.get("eval/success_at_end", 0.0)
        if target is not None and success >= target:
            self.progress.stopped = f"{success:.0%} of the episodes succeed (runner.stop_at_success={target:g})"
        target, mean_return = self.cfg.runner.stop_at_return, metrics.get("eval/return", -math.inf)
        if target is not None and mean_return >= target:
            self.progress.stopped = f"episodes have a mean return of {mean_return:g} (runner.stop_at_return={target:g})"

    def _is_due(self, interval: int) -> bool:
        return self.progress.iteration % interval == 0 or self.finished


def _run_name(cfg: ExperimentConfig) -> str:
    """Return a name that says what the episodes of a run follow from, so that one begun again recognises its own."""
    course = {name: part for name, part in asdict(cfg).items() if name not in ("runner", "cluster", "data")}
    digest = hashlib.sha256(json.dumps(course, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return f"{cfg.algorithm.name} {cfg.env.train.id} seed {cfg.seed} config {digest}"


def _warn_about_cut_episodes(cfg: ExperimentConfig) -> None:
    """Warn if no episode can reach its time limit between two checkpoints, at which environments are reset."""
    limit, steps = cfg.env.train.max_episode_steps, cfg.runner.save_interval * cfg.algorithm.rollout_steps
    if limit is not None and steps < limit and cfg.runner.save_interval < cfg.runner.max_epochs:
        warnings.warn(
            f"runner.save_interval: environments are reset at each checkpoint, here after {steps} steps, so that no "
            f"episode reaches its limit of {limit} steps, and those cut short are neither rewarded at their end nor "
            f"collected; set it to {-(-limit // cfg.algorithm.rollout_steps)} or more",
            stacklevel=3,
        )


def _episode_metrics(episodes: Episodes) -> dict[str, float]:
    """Return means over the episodes that ended, or {} if none did."""
    columns = {
        "return": episodes.reward,
        "episode_length": episodes.length,
        "success_once": episodes.success_once,
        "success_at_end": episodes.success_at_end,
    }
    known = {name: column for name, column in columns.items() if column is not None and len(column)}
    return {f"env/{name}": float(column.mean()) for name, column in known.items()}


class Clock:
    """Measures how long the parts of an iteration take: `with clock("rollout"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


def _progress_line(metrics: Mapping[str, float], alarmed: bool) -> str:
    parts = [f"{metrics['env_steps']:,} steps"]
    for name, title in (("env/success_at_end", "success"), ("eval/success_at_end", "eval"), ("audit/fpr", "FPR")):
        if name in metrics:
            parts.append(f"{title} {metrics[name]:.0%}")
    if "env/success_at_end" not in metrics and "env/return" in metrics:
        parts.append(f"return {metrics['env/return']:.1f}")
    if "rollout/model_rewards" in metrics:
        parts.append(f"model reward {metrics['rollout/model_rewards']:.2f}")
    return "  ".join(parts) + ("  [bold red]ALARM[/]" if alarmed else "")


def _write_report(cfg: ExperimentConfig, training: PolicyTraining, out: Path) -> Path:
    rewards = training.rewards
    audited = [rewards.facts[name].metrics for name in rewards.audits]
    history = read_history(out / HISTORY) if (out / HISTORY).exists() else []
    facts, disputed = {}, out / "audit"
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
            "reward": _describe_reward(cfg),
            "seed": str(cfg.seed),
            "environment steps": f"{training.progress.env_steps:,}",
            **facts,
            **({"ended early": training.progress.stopped} if training.progress.stopped else {}),
        },
    )


def _describe_reward(cfg: ExperimentConfig) -> str:
    if not cfg.reward.use_reward_model:
        return f"the environment's own ({cfg.env.train.reward})"
    models = [str(model.checkpoint_path or model.model_type) for model in cfg.reward.models]
    return f"{' + '.join(models)}, {cfg.reward.reward_mode}, {cfg.reward.combine_mode}"
