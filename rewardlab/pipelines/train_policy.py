"""Stages 1 and 3: a policy, on the environment's own reward or on a learned one."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from rewardlab.config import ExperimentConfig, to_yaml
from rewardlab.config.schema import EnvConfig, RewardModelConfig
from rewardlab.data.atomic import replace_file
from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards.audit import Alarm, Audit
from rewardlab.rewards.loading import frame_model, transition_models
from rewardlab.rewards.manager import learner_rewards, placed_rewards
from rewardlab.rewards.score_histogram import ScoreHistogram
from rewardlab.rewards.transition_rewards import TransitionRewards, Verdict
from rewardlab.rl.evaluation import Evaluation
from rewardlab.rl.make import make_policy_network
from rewardlab.training.policy_report import read_history, write_policy_report
from rewardlab.training.run_log import HISTORY, RunLog, forget_after
from rewardlab.training.run_state import load_state, save_state
from rewardlab.training.trust import TrustFigures
from rewardlab.types import Batch
from rewardlab.workers.actor import ActorWorker, off_policy_settings
from rewardlab.workers.cluster import Cluster, Seat
from rewardlab.workers.env import EnvWorker, Scoring
from rewardlab.workers.group import Worker
from rewardlab.workers.lanes import Lanes, Rollout
from rewardlab.workers.reward import RewardFacts, RewardGroup
from rewardlab.workers.rollout import RolloutWorker


@dataclass
class Progress:
    """Where a run is; with the actor's state all that a resumed run must know."""

    iteration: int = 0  # rollout-and-update rounds done
    env_steps: int = 0
    updates: int = 0  # optimizer steps of the policy
    stopped: str | None = None  # why it ended before its budget was spent
    terminal_only: bool = False  # an alarm switched from per_step to terminal rewards


def run(cfg: ExperimentConfig, *, console: Console | None = None, expert_data: Any = None) -> Path:
    """Train as `cfg` says; returns the last checkpoint.

    `expert_data` is for reward models that learn from an expert and whose config names no file of it: anything that
    `rewardlab.rewards.zoo.experts` reads.
    """
    console = console or Console()
    out = Path(cfg.runner.logger.log_path, cfg.runner.logger.experiment_name)
    if (out / HISTORY).exists() and cfg.runner.resume_dir is None:
        raise DataError(
            f"{out} has a run already. Choose another runner.logger.log_path, or continue that run with "
            f"runner.resume_dir={out}/checkpoints/global_step_<number>"
        )
    with one_thread_each(), Cluster(cfg.cluster) as cluster:
        training = PolicyTraining(cfg, cluster, out, expert_data)
        if cfg.runner.resume_dir is not None:
            training.resume(Path(cfg.runner.resume_dir))
        elif cfg.reward.pretrain:
            training.pretrain()
        replace_file(out / "config.yaml", to_yaml(cfg).encode())
        with RunLog(out, total=cfg.runner.max_epochs, console=console) as log:
            while not training.finished:
                figures = training.iterate()
                alarmed = training.audit is not None and bool(training.audit.alarms)
                log.write(training.progress.iteration, figures, _words(figures, alarmed))
                for alarm in training.new_alarms:
                    log.say(f"[bold red]alarm[/]: {alarm.words}")
                training.save_if_due()
        training.close()
    report = _report(cfg, training, out)
    _summarize(console, training, report)
    return training.checkpoint


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Networks of policies are too small to share: threads that wait for each other made learning up to five times
    slower on a busy machine. Reward workers are threads of their own, so all cores are used all the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class PolicyTraining:
    """The workers of a run and what happens in an iteration: roll, score, combine, learn, evaluate.

    Success classifiers (`learned`) score frames while the rollout goes on. Models over transitions (`judge`) look at
    the rollout when it is complete; off policy also at each batch that is drawn later.
    """

    def __init__(self, cfg: ExperimentConfig, cluster: Cluster, out: Path, expert_data: Any = None) -> None:
        self.cfg = cfg
        self.out = out
        self.progress = Progress()
        self.checkpoints = Path(cfg.runner.checkpoint_dir) if cfg.runner.checkpoint_dir else out / "checkpoints"
        self.off_policy = off_policy_settings(cfg)
        settings = self.off_policy or cfg.algorithm.ppo
        self.rollout_steps = settings.rollout_steps
        classifier, others = _reward_models(cfg)
        self.learned = None if classifier is None else RewardGroup.launch(cluster, cfg.reward, background=True)
        self.cotrains_frames = classifier is not None and _cotrains(cfg, classifier)
        self.cotrains_transitions = any(_cotrains(cfg, model) for model in others)
        self.reward_facts: RewardFacts | None = None if self.learned is None else self.learned.facts()
        self.audit = self._make_audit()
        self.envs = cluster.launch("env", _env_maker(cfg, self._scoring()), name="EnvGroup")
        spaces = self.envs[0].submit("spaces").result()
        self.judge: Worker | None = None
        if others:
            if any(model.model_type == "her" for model in others):
                _check_hindsight(cfg)
            make_judge = partial(TransitionRewards.from_config, cfg.reward, *spaces, expert_data=expert_data)
            self.judge = cluster.launch("reward", lambda seat: make_judge(), name="TransitionRewards", count=1)[0]
        self.actor = cluster.launch("actor", lambda seat: ActorWorker(cfg, *spaces), name="ActorGroup", count=1)[0]
        policies = cluster.launch(
            "rollout",
            lambda seat: RolloutWorker(make_policy_network(cfg, *spaces), spaces[1], seed=_seed(cfg, 1, seat)),
            name="RolloutGroup",
            count=len(self.envs),
        )
        self.lanes = Lanes(self.envs, policies, None if self.learned is None else self.learned.workers)
        self.evaluation = Evaluation(cfg.env.eval, seed=cfg.seed + 10_000)
        self.evaluated = make_policy_network(cfg, *spaces)
        self._afresh = True
        self._best: float | None = None  # evaluation that reward_models/best was saved at
        self.new_alarms: tuple[Alarm, ...] = ()  # of the last iteration
        if self.learned is not None and self._keeps_frames:
            self.actor.submit("load_reward_model").result()
        self._tell_actor()
        if cfg.algorithm.name == "sac" and cfg.algorithm.sac.demo_path is not None:
            self.actor.submit("load_demonstrations").result()

    def pretrain(self) -> None:
        """Train the reward models on their expert data, before the policy acts."""
        if self.judge is None:
            raise ConfigError("reward.pretrain: found true, but no reward model of this run learns from expert data")
        self.judge.submit("pretrain").result()
        self._tell_actor()

    def iterate(self) -> dict[str, float]:
        """One round; the figures to log."""
        clock = Clock()
        cfg, progress = self.cfg, self.progress
        with clock("sync"):
            self.actor.submit("set_progress", progress.env_steps, self._total_env_steps()).result()
            weights = self.actor.submit("policy_weights").result()
            self.lanes.policies.setup("load_policy", weights)
        at_random = self.off_policy is not None and progress.env_steps < self.off_policy.learning_starts
        with clock("rollout"):
            rollout = self.lanes.roll(progress.iteration, self.rollout_steps, afresh=self._afresh, at_random=at_random)
        self._afresh = False
        if rollout.afresh:
            self._begin_episodes()
        with clock("reward"):
            batch, figures = self._rewarded(rollout)
        progress.iteration += 1
        progress.env_steps += batch.numel()
        with clock("learn"):
            learned = self.actor.submit("learn", batch, progress.env_steps).result()
        figures |= {f"train/{name}": value for name, value in learned.items()}
        progress.updates = int(figures.get("train/updates", progress.updates))
        if self.cotrains_frames:
            with clock("cotrain"):
                self._cotrain(rollout)
        figures |= self._evaluated(clock) if self._due(cfg.runner.val_check_interval) else {}
        self._stop_early(figures)
        timings = {f"time/{name}": seconds for name, seconds in clock.seconds.items()}
        if self.learned is not None:
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
            "terminal_only": progress.terminal_only,
            "audit": None if self.audit is None else self.audit.state_dict(),
            "reward_model": self.learned.weights() if self.learned is not None and self.cotrains_frames else None,
            "transition_rewards": None if self.judge is None else self.judge.submit("training_state").result(),
            "best": self._best,
        }
        facts = {"model_type": "policy", "architecture": {}, "algorithm": self.cfg.algorithm.name}
        save_state(self.checkpoint, state, facts)
        self._save_reward_models("last")
        # A run resumed from here begins with new episodes, so this one does so too: both go on alike.
        self._afresh = True

    def resume(self, checkpoint: Path) -> None:
        """Go on from a checkpoint of this run or of an earlier stage, whose reward may have been another one."""
        state, facts = load_state(checkpoint)
        if facts.get("algorithm") != self.cfg.algorithm.name:
            raise ConfigError(
                f"runner.resume_dir: {checkpoint} was trained by {facts.get('algorithm')}, but algorithm.name is "
                f"{self.cfg.algorithm.name}"
            )
        try:
            self.actor.submit("load_state_dict", state["actor"]).result()
        except (RuntimeError, KeyError, ValueError) as error:
            raise ConfigError(
                f"runner.resume_dir: the policy of {checkpoint} does not fit this config ({error})"
            ) from error
        self.progress.iteration, self.progress.env_steps = state["iteration"], state["env_steps"]
        self.progress.updates = state["updates"]
        if checkpoint.resolve().parent != self.checkpoints.resolve():
            return  # another stage: its audit and its reward model are not this one's
        forget_after(self.out, self.progress.iteration)
        if self.audit is not None and state["audit"] is not None:
            self.audit.load_state_dict(state["audit"])
        if self.learned is not None and state["reward_model"] is not None:
            self.learned.load_weights(state["reward_model"])
        if self.judge is not None and state["transition_rewards"] is not None:
            self.judge.submit("load_training_state", state["transition_rewards"]).result()
            self._tell_actor()
        self._best = state["best"]
        if state["terminal_only"]:
            self._go_terminal()

    def close(self) -> None:
        """Wait for files that workers still write."""
        self.envs.call("close").result()
        if self.audit is not None:
            self.audit.close()

    def _rewarded(self, rollout: Rollout) -> tuple[Batch, dict[str, float]]:
        """The rollout with the reward the learner shall see, and how good that reward is."""
        batch, episodes = rollout.batch, rollout.episodes
        ended = batch["terminated"] | batch["truncated"]
        figures: dict[str, float] = {}
        if len(episodes.length):
            figures = {"env/return": float(episodes.reward.mean()), "env/episode_length": float(episodes.length.mean())}
            for name in ("success_once", "success_at_end"):
                values = getattr(episodes, name)
                if values is not None:
                    figures[f"env/{name}"] = float(np.mean(values))
        config, said = self._reward_config, torch.zeros_like(batch["env_reward"])
        if rollout.scores is not None:
            said = placed_rewards(config, batch["env_reward"], rollout.scores.reward, ended)
            figures["rollout/model_rewards"] = float(rollout.scores.reward.mean()) if ended.any() else 0.0
            figures |= self._audited(rollout)
        if self.judge is not None:
            said, more = self._judged(batch, said)
            figures |= more
        modelled = self.learned is not None or self.judge is not None
        batch["reward"] = learner_rewards(config, batch["env_reward"], said) if modelled else batch["env_reward"]
        figures["rollout/rewards"] = float(batch["reward"].mean())
        figures["rollout/rewards_std"] = float(batch["reward"].std(unbiased=False))
        return batch, figures

    def _judged(self, batch: Batch, said: Tensor) -> tuple[Tensor, dict[str, float]]:
        """`said`, the reward of a classifier, and what models over transitions say of the rollout, after they have
        learned from it. Off policy only what they cannot say again goes with the transitions."""
        assert self.judge is not None
        figures: dict[str, float] = {}
        if self.cotrains_transitions:
            figures |= self.judge.submit("update", batch, self.progress.iteration + 1).result()
            self._tell_actor()
        verdict: Verdict = self.judge.submit("judge", batch).result()
        if self.off_policy is not None:
            batch["model_reward"] = said + verdict.by_episode
        figures["rollout/model_rewards"] = float((said + verdict.reward).mean())
        return said + verdict.reward, figures | verdict.figures

    def _begin_episodes(self) -> None:
        """Whoever remembers unfinished episodes is told that they will not go on."""
        if self.judge is not None:
            self.judge.submit("begin").result()
        self.actor.submit("begin_episodes").result()

    def _tell_actor(self) -> None:
        """Off policy, the actor asks models over transitions itself, and must have their newest weights."""
        if self.judge is not None and self.off_policy is not None:
            self.actor.submit("load_transition_rewards", self.judge.submit("state_dict")).result()

    def _save_reward_models(self, name: str) -> None:
        """Those that learn in this run, complete, below reward_models/`name`."""
        place = self.out / "reward_models" / name
        if self.judge is not None:
            self.judge.submit("save", place).result()
        if self.learned is not None and self.cotrains_frames:
            self.learned.save(place / self.reward_facts.model_type)  # type: ignore[union-attr]

    def _truth(self, rollout: Rollout) -> Tensor | None:
        """Whether each frame that was scored is a success; None where the environment does not know."""
        if rollout.episodes.success_once is None:
            return None
        success: Tensor = rollout.batch["success"]
        ended = rollout.batch["terminated"] | rollout.batch["truncated"]
        return success[ended] if self._reward_config.reward_mode == "terminal" else success.flatten()

    def _audited(self, rollout: Rollout) -> dict[str, float]:
        if self.audit is None or rollout.scores is None or rollout.frames is None:
            return {}
        frames, camera = rollout.frames, self.reward_facts.cameras[0]  # type: ignore[union-attr]
        result = self.audit.check(
            self.progress.iteration + 1,
            probability=rollout.scores.estimate,
            success=self._truth(rollout),
            frames=lambda rows: frames(rows)[camera],
        )
        self.new_alarms = result.alarms
        if result.alarms and self.cfg.reward.audit.on_alarm == "stop":
            self.progress.stopped = f"the audit raised an alarm. {result.alarms[0].words}"
        if result.alarms and self.cfg.reward.audit.on_alarm == "terminal" and not self.progress.terminal_only:
            self._go_terminal()
            self.audit.restart()
        return result.figures

    def _cotrain(self, rollout: Rollout) -> None:
        """Let the reward model learn from the frames it has scored; what it learned counts from the next round on."""
        if self.learned is None or rollout.frames is None:
            return
        truth = self._truth(rollout)
        if truth is None:
            raise ConfigError("reward.cotrain: the environment does not report success: there is nothing to learn from")
        self.learned.update({"images": rollout.frames.all(), "success": truth}, self.progress.iteration)
        if self.off_policy is not None:
            self.actor.submit("load_reward_model", self.learned.weights()).result()
            if self.cfg.reward.relabel == "changed":
                self.actor.submit("relabel").result()

    def _evaluated(self, clock: "Clock") -> dict[str, float]:
        with clock("evaluate"):
            self.evaluated.load_state_dict(self.actor.submit("policy_weights").result())
            figures = self.evaluation.run(self.evaluated)
        reached = figures.get("success_at_end", figures["return"])
        if self._best is None or reached > self._best:
            self._best = reached
            self._save_reward_models("best")
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
        budget = self.cfg.runner.max_epochs * self.rollout_steps * self.cfg.env.train.num_envs
        return min(budget, self.cfg.runner.max_env_steps or budget)

    @property
    def _reward_config(self) -> Any:
        return replace(self.cfg.reward, reward_mode="terminal") if self.progress.terminal_only else self.cfg.reward

    @property
    def _keeps_frames(self) -> bool:
        return self.off_policy is not None and (self.cotrains_frames or self.cfg.reward.relabel == "sample")

    def _scoring(self) -> Scoring | None:
        if self.reward_facts is None:
            return None
        terminal = self._reward_config.reward_mode == "terminal"
        if self._keeps_frames and len(self.cfg.reward.models) > 1:
            raise ConfigError(
                "reward.model: off policy, a success classifier beside other models is neither trained further nor "
                "asked again; set its cotrain to false and reward.relabel to changed"
            )
        if terminal and self._keeps_frames:
            raise ConfigError(
                "reward.reward_mode: terminal keeps no frames to score again; off policy, reward.cotrain and "
                "reward.relabel=sample need per_step"
            )
        return Scoring(self.reward_facts.cameras, terminal, keep=self._keeps_frames)

    def _go_terminal(self) -> None:
        self.progress.terminal_only = True
        self.envs.setup("set_scoring", self._scoring())

    def _make_audit(self) -> Audit | None:
        if self.reward_facts is None or not self.cfg.reward.audit.enabled:
            return None
        return Audit(
            self.cfg.reward,
            threshold=self.reward_facts.threshold,
            reference=ScoreHistogram.from_metrics(self.reward_facts.metrics),
            directory=self.out / "audit",
        )


def _env_maker(cfg: ExperimentConfig, scoring: Scoring | None) -> Callable[[Seat], EnvWorker]:
    collection = cfg.data.collection if cfg.data.collection.enabled else None
    keep_next = off_policy_settings(cfg) is not None or bool(_reward_models(cfg)[1])

    def make(seat: Seat) -> EnvWorker:
        return EnvWorker(
            _share(cfg.env.train, seat),
            seed=_seed(cfg, 0, seat),
            scoring=scoring,
            collection=collection,
            keep_next=keep_next,
        )

    return make


def _reward_models(cfg: ExperimentConfig) -> tuple[RewardModelConfig | None, tuple[RewardModelConfig, ...]]:
    """The success classifier of a run, and its models over transitions."""
    if not cfg.reward.use_reward_model:
        return None, ()
    return frame_model(cfg.reward), transition_models(cfg.reward)


def _cotrains(cfg: ExperimentConfig, model: RewardModelConfig) -> bool:
    return cfg.reward.cotrain if model.cotrain is None else model.cotrain


def _check_hindsight(cfg: ExperimentConfig) -> None:
    if off_policy_settings(cfg) is None:
        raise ConfigError(
            f"reward.model.model_type: her learns from stored episodes, which {cfg.algorithm.name} does not keep; set "
            "algorithm.name to dqn or sac"
        )
    if cfg.reward.combine_mode != "replace":
        raise ConfigError(
            f"reward.combine_mode: found {cfg.reward.combine_mode}, expected replace, because the environment's reward "
            "is not of the goals that her sets"
        )


class Clock:
    """Where the time of an iteration goes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


def _seed(cfg: ExperimentConfig, stream: int, seat: Seat) -> int:
    """A policy must not know the scene by its dice, so that each worker has a stream of its own."""
    return int(np.random.SeedSequence([cfg.seed, stream, seat.index]).generate_state(1)[0])


def _share(env: EnvConfig, seat: Seat) -> EnvConfig:
    if env.num_envs < seat.count:
        raise ConfigError(
            f"env.train.num_envs: found {env.num_envs}, expected at least cluster.workers.env={seat.count}"
        )
    first, last = (env.num_envs * edge // seat.count for edge in (seat.index, seat.index + 1))
    return replace(env, num_envs=last - first)


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
    facts = training.reward_facts
    return write_policy_report(
        out / "report.html",
        title=f"{cfg.algorithm.name.upper()} on {cfg.env.train.id}",
        history=read_history(out / HISTORY) if (out / HISTORY).exists() else [],
        alarms=[] if training.audit is None else training.audit.alarms,
        max_fpr=cfg.reward.audit.max_fpr if training.audit is not None else None,
        disputed=out / "audit" if training.audit is not None else None,
        figures=TrustFigures.from_json(facts.metrics) if facts is not None and facts.metrics else None,
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
