"""The training loop of a policy: each iteration collects a rollout, computes rewards, updates and evaluates."""

import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rewardlab.config import ExperimentConfig
from rewardlab.config.robots import is_robot
from rewardlab.data.packed_batch import PackedBatch
from rewardlab.errors import ConfigError, DataError, RewardlabError
from rewardlab.models.weights import first_mismatch
from rewardlab.pipelines.policy_workers import PolicyWorkers
from rewardlab.reports.run_log import REPLACED, RunLog
from rewardlab.rl.evaluation import Evaluation
from rewardlab.run_state import RUN_CONFIG, checkpoint_directory, load_state, save_state
from rewardlab.workers.env import Episodes

LEARNED = {"actor": "state_dict", "policy": "policy_weights"}  # parts of a checkpoint, and what returns them


@dataclass
class Progress:
    """Counters of a run."""

    iteration: int = 0  # iterations of rollout and update, with the one that goes on
    env_steps: int = 0
    updates: int = 0  # optimizer steps of the policy
    stopped: str | None = None  # why the run stopped early
    alarmed: bool = False  # ... because of an alarm of the audit
    interrupted: bool = False  # ... because somebody asked it to


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
            self._update_policy()
        off_policy = cfg.algorithm.off_policy
        at_random = off_policy is not None and progress.env_steps < off_policy.learning_starts
        with clock("rollout"):
            rollout = self.workers.lanes.collect(
                progress.iteration, cfg.algorithm.rollout_steps, reset=self._reset_next, at_random=at_random
            )
        self._reset_next = False
        if rollout.after_reset:
            self.rewards.begin_episodes()
            self._begin_episodes()
        progress.iteration += 1
        with clock("reward"):
            batch, metrics = self.rewards.compute_rewards(rollout, progress.iteration)
        metrics |= _episode_metrics(rollout.episodes)
        metrics |= self.events | {f"{REPLACED}{label}": rollout.replaced.count(label) for label in rollout.replaced}
        progress.env_steps += batch.rows.numel()
        with clock("learn"):
            metrics |= self._learn(batch)
        if is_robot(cfg.env.train):
            metrics |= self.workers.envs[0].submit("robot_figures").result()
        progress.updates = int(metrics.get("train/updates", progress.updates))
        self._handle_alarms()
        if self.workers.evaluation is not None and self.is_due(cfg.runner.val_check_interval):
            with clock("evaluate"):
                metrics |= self._evaluate(self.workers.evaluation)
        self._stop_early(metrics)
        timings = {f"time/{name}": seconds for name, seconds in clock.seconds.items()}
        if rollout.frames is not None:
            timings["time/compute_model_rewards"] = rollout.waiting_time
            timings["time/rollout"] -= rollout.waiting_time
        self.completed, self.events = progress.iteration, {}
        return {"env_steps": progress.env_steps, **metrics, **timings}

    @property
    def total_env_steps(self) -> int:
        """The budget of the run in environment steps."""
        cfg = self.cfg
        budget = cfg.runner.max_epochs * cfg.algorithm.rollout_steps * cfg.env.train.num_envs
        return min(budget, cfg.runner.max_env_steps or budget)

    def _update_policy(self) -> None:
        """Give the newest policy to the workers that act."""
        self.actor.submit("set_progress", self.progress.env_steps, self.total_env_steps).result()
        weights = self.actor.submit("policy_weights").result()
        self.workers.lanes.policies.setup("load_policy", weights)

    def _begin_episodes(self) -> None:
        """Tell the learner that all environments were reset."""
        self.actor.submit("begin_episodes").result()

    def _learn(self, batch: PackedBatch) -> dict[str, float]:
        """Learn from the rollout, and return what to log."""
        due = self.actor.submit("add", batch, self.progress.env_steps).result()
        updates = self.actor.submit("update", due).result()
        return {f"train/{name}": value for name, value in updates.items()}

    @property
    def finished(self) -> bool:
        """Return whether the budget is spent or the run was stopped early."""
        runner, progress = self.cfg.runner, self.progress
        spent = runner.max_env_steps is not None and progress.env_steps >= runner.max_env_steps
        spent |= runner.max_steps is not None and progress.updates >= runner.max_steps
        return spent or progress.iteration >= runner.max_epochs or progress.stopped is not None

    @property
    def last_checkpoint(self) -> Path:
        """Return the checkpoint that a run leaves at its end."""
        return self.saved or self.checkpoint

    @property
    def checkpoint(self) -> Path:
        return self.checkpoints / f"global_step_{self.progress.iteration}"

    def save_if_due(self, log: RunLog) -> None:
        """Write a checkpoint every `runner.save_interval` iterations and at the end, after the rows of the log."""
        if self.is_due(self.cfg.runner.save_interval):
            log.flush()
            self.save()

    def save(self) -> None:
        """Write a checkpoint. Call it between two iterations only."""
        learned = {name: self.actor.submit(call).result() for name, call in LEARNED.items()}
        save_state(self.checkpoint, {**learned, **self._acting_state()}, self._facts)
        self.saved = self.checkpoint
        self.rewards.save("last")
        # A run resumed from this checkpoint begins with a reset; so does this run, so that both give the same numbers.
        self._reset_next = True

    def _acting_state(self) -> dict[str, Any]:
        """Return what a resumed run needs besides the learner's state."""
        progress = self.progress
        return {
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            "updates": progress.updates,
            "rewards": self.rewards.state_dict(),
            "best": self._best,
            "collection": self.workers.lanes.collection_states,
        }

    @property
    def _facts(self) -> dict[str, Any]:
        """What a checkpoint says of itself."""
        facts = {"model_type": "policy", "architecture": {}, "algorithm": self.cfg.algorithm.name}
        return {**facts, RUN_CONFIG: asdict(self.cfg)}

    def note_interrupt(self, asked: str) -> None:
        """Let the run end here, because of a signal."""
        self.progress.stopped, self.progress.interrupted = f"{asked}, after iteration {self.completed}", True

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
            state["actor"]["replay"] = state["actor"]["interventions"] = None
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
        self._state_loaded(state)
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

    def _state_loaded(self, state: Mapping[str, Any]) -> None:
        """Continue with what a checkpoint of this run has besides the usual."""

    def _begin_collecting(self, states: list[dict[str, Any]]) -> None:
        """Let environment workers go on collecting, those without a state from the beginning."""
        cfg, workers = self.cfg, len(self.workers.envs)
        run = states[0]["run"] if states else _run_name(cfg)
        self.workers.lanes.begin_collecting([*states, *[{"run": run}] * workers][:workers])

    def close(self) -> None:
        """Close the environments, and wait for files that workers are still writing."""
        with ExitStack() as each:  # the last one first, whatever happens to the others
            each.callback(self.rewards.close)
            if self.workers.evaluation is not None:
                each.callback(self.workers.evaluation.env.close)
            each.callback(lambda: self.workers.envs.call("close").result())

    def _handle_alarms(self) -> None:
        """Do what `reward.audit.on_alarm` says; "warn" only writes to the log."""
        on_alarm, alarms = self.cfg.reward.audit.on_alarm, self.rewards.new_alarms
        if alarms and on_alarm == "stop":
            self.progress.stopped = f"the audit raised an alarm. {alarms[0].words}"
            self.progress.alarmed = True
        if alarms and on_alarm == "terminal" and not self.rewards.terminal_only:
            self.rewards.switch_to_terminal()
            self.workers.envs.setup("request_frames", self.rewards.frame_request)

    def _evaluate(self, evaluation: Evaluation) -> dict[str, float]:
        policy = self.workers.evaluated_policy
        policy.load_state_dict(self._policy_to_evaluate())
        metrics = evaluation.run(policy)
        if evaluation.unreported and self._best is None and self.rewards.audits:
            warnings.warn(
                f"'{evaluation.name}': {evaluation.unreported}: the audit cannot compare the learned reward with the "
                "truth",
                stacklevel=2,
            )
        score = metrics.get("success_at_end", metrics["return"])
        if self._best is None or score > self._best:
            self._best = score
            self.rewards.save("best")
        return {f"eval/{name}": value for name, value in metrics.items()}

    def _policy_to_evaluate(self) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = self.actor.submit("policy_weights").result()
        return weights

    def _stop_early(self, metrics: Mapping[str, float]) -> None:
        target, success = self.cfg.runner.stop_at_success, metrics.get("eval/success_at_end", 0.0)
        if target is not None and success >= target:
            self.progress.stopped = f"{success:.0%} of the episodes succeed (runner.stop_at_success={target:g})"
        target, mean_return = self.cfg.runner.stop_at_return, metrics.get("eval/return", -math.inf)
        if target is not None and mean_return >= target:
            self.progress.stopped = f"episodes have a mean return of {mean_return:g} (runner.stop_at_return={target:g})"

    def is_due(self, interval: int) -> bool:
        """Return whether something that is done every `interval` iterations, and at the end, is done now."""
        return self.progress.iteration % interval == 0 or self.finished


def _run_name(cfg: ExperimentConfig) -> str:
    """Return a name that says what the episodes of a run follow from, so that one begun again recognises its own."""
    course = {name: part for name, part in asdict(cfg).items() if name not in ("runner", "cluster", "data")}
    digest = hashlib.sha256(json.dumps(course, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return f"{cfg.algorithm.name} {cfg.env.train.id} seed {cfg.seed} config {digest}"


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
