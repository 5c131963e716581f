"""The rewards of a policy run: scores rollouts with its reward models, audits the models and trains them."""

from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rewardlab.config import ExperimentConfig
from rewardlab.data.packed_batch import PackedBatch
from rewardlab.errors import ConfigError
from rewardlab.figures.score_histogram import ScoreHistogram
from rewardlab.frame_sizes import FrameSize
from rewardlab.rewards.audit import Alarm, Audit
from rewardlab.rewards.loading import model_class, named_models
from rewardlab.rewards.manager import ESTIMATE, MODEL_VERSION, RewardRule, TermFacts, compute_reward, model_reward
from rewardlab.rewards.trainer import RewardTrainer, RolloutEstimates, needs_trainer
from rewardlab.workers.cluster import Cluster
from rewardlab.workers.env import FrameRequest
from rewardlab.workers.group import Group, Worker
from rewardlab.workers.reward import launch_reward_workers
from rewardlab.workers.rollout import Rollout

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]  # observation space, action space of one environment


class PolicyRewards:
    """Computes the rewards of a run with the workers that hold its reward models.

    The `scorers` hold the models that look at frames and score frames during a rollout. The `trainer` holds the models
    that learn, or that look at transitions or episodes, and scores a rollout when it is complete. With an off-policy
    algorithm, the learner has copies of the models that score stored transitions again.
    """

    def __init__(self, cfg: ExperimentConfig, cluster: Cluster, out: Path) -> None:
        self.cfg = cfg
        self.out = out
        self.off_policy = cfg.algorithm.off_policy is not None
        models = named_models(cfg.reward) if cfg.reward.use_reward_model else {}
        self.names = list(models)
        frame_models = [name for name, config in models.items() if model_class(config).looks_at == "frames"]
        self._trained = [name for name, config in models.items() if needs_trainer(cfg.reward, config)]
        self.scorers: Group | None = None
        self.trainer: Worker | None = None
        self.facts: dict[str, TermFacts] = {}
        if frame_models:
            self.scorers = launch_reward_workers(cluster, cfg.reward, frame_models, off_policy=self.off_policy)
            self.facts = self.scorers[0].submit("facts").result()
        self.audits: dict[str, Audit] = {}
        self._update_audits(frame_models)
        self.terminal_only = False  # an alarm switched from per_step to terminal rewards
        self.new_alarms: tuple[Alarm, ...] = ()  # of the last iteration
        self._first_debug_id = 0
        if self.scorers is not None:
            self._number_debug_images(self.scorers[0].submit("next_debug_id").result())

    def _number_debug_images(self, first_id: int) -> None:
        """Let debug images of this run have ids from `first_id` on, whichever worker scores the frame."""
        self._first_debug_id = first_id
        if self.scorers is not None:
            self.scorers.setup("number_debug_images", first_id)

    def bind(self, cluster: Cluster, actor: Worker, envs: Group, task: Spaces, expert_data: Any) -> None:
        """Build the models that depend on the observation and action space, and send the learner its copies."""
        self.actor, self.envs = actor, envs
        if self._trained:
            cfg = self.cfg
            self.trainer = cluster.launch(
                "reward",
                lambda placement: RewardTrainer.from_config(cfg, task, placement.device, expert_data=expert_data),
                name="RewardTrainer",
                count=1,
            )[0]
            self.facts |= self.trainer.submit("facts", retry=True).result()
        self._share_models(self._trained)

    @property
    def rule(self) -> RewardRule:
        """Return the rule by which the learner's reward is computed."""
        rule = RewardRule.from_config((self.facts[name].term for name in self.names), self.cfg.reward)
        return rule.at_last_steps_only() if self.terminal_only else rule

    @property
    def frame_request(self) -> FrameRequest | None:
        """Return the frames that environment workers must render for the reward models."""
        cameras = tuple(dict.fromkeys(camera for facts in self.facts.values() for camera in facts.term.cameras))
        terminal = self.terminal_only or self.cfg.reward.reward_mode == "terminal"
        stored = any(facts.term.cameras and facts.term.rescored != "never" for facts in self.facts.values())
        return FrameRequest(cameras, self._largest_frame_sizes(), terminal, stored) if cameras else None

    def _largest_frame_sizes(self) -> dict[str, FrameSize]:
        """Return the size of the frames of each camera: the largest that a model wants, as others reduce it."""
        largest: dict[str, FrameSize] = {}
        for facts in self.facts.values():
            for camera, size in facts.term.frame_sizes.items():
                largest[camera] = max(largest.get(camera, size), size, key=lambda each: each.height * each.width)
        return largest

    @property
    def success_detectors(self) -> list[str]:
        """Return the names of the models whose predicted success ends an episode."""
        return [name for name, facts in self.facts.items() if facts.term.ends_episode]

    @property
    def needs_next_observations(self) -> bool:
        return self.off_policy or bool(self._trained)

    @property
    def alarms(self) -> list[Alarm]:
        """Return all audit alarms of this run."""
        return [alarm for audit in self.audits.values() for alarm in audit.alarms]

    def pretrain(self) -> None:
        """Train the models on their expert data, before the first rollout."""
        if self.trainer is None:
            raise ConfigError("reward.pretrain: found true, but no reward model of this run learns from expert data")
        self.trainer.change("pretrain")
        self._share_models(self._trained)

    def begin_episodes(self) -> None:
        """Drop unfinished episodes, because all environments were reset."""
        if self.trainer is not None and self._any_looks_at_episodes():
            self.trainer.change("begin")

    def compute_rewards(self, rollout: Rollout, iteration: int) -> tuple[PackedBatch, dict[str, float]]:
        """Return the batch of a rollout with the estimates of all models and the `reward`, and metrics to log."""
        batch, rule, metrics = rollout.batch.rows, self.rule, {}
        if rule.terms:
            metrics = self._audit(rollout, iteration)
            metrics |= self._train_and_estimate(rollout, iteration)
            scored = torch.ones(batch.batch_size, dtype=torch.bool)
            if rollout.frames is not None and all(term.cameras for term in rule.terms):
                scored = rollout.frames.scored
            metrics["rollout/model_rewards"] = float(model_reward(rule, batch)[scored].mean()) if scored.any() else 0.0
        batch["reward"] = compute_reward(rule, batch)
        metrics["rollout/rewards"] = float(batch["reward"].mean())
        metrics["rollout/rewards_std"] = float(batch["reward"].std(unbiased=False))
        return rollout.batch, metrics

    def switch_to_terminal(self) -> None:
        """Score only the last frame of each episode from now on; environment workers need the new `frame_request`."""
        self.terminal_only = True
        for audit in self.audits.values():
            audit.restart()
        self._share_models([])

    def state_dict(self) -> dict[str, Any]:
        return {
            "settings": self.resume_settings(),
            "terminal_only": self.terminal_only,
            "first_debug_id": self._first_debug_id,
            "audits": {name: audit.state_dict() for name, audit in self.audits.items()},
            "models": None if self.trainer is None else self.trainer.submit("training_state", retry=True).result(),
        }

    def resume_settings(self) -> dict[str, str]:
        """Return what a resumed run must agree on: when each term scores stored transitions again, and if it learns."""
        terms = [self.facts[name].term for name in self.names]
        return {term.name: f"rescored {term.rescored}" + (", trained" if term.learns else "") for term in terms}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        here = self.resume_settings()
        if state["settings"] != here:
            raise ConfigError(
                f"reward.cotrain, reward.relabel, reward.model: the run was saved with {state['settings']}, now it is "
                f"{here}. Set them as they were, or begin a new run with another runner.logger.experiment_name"
            )
        self.terminal_only = state["terminal_only"]
        self._number_debug_images(state.get("first_debug_id", self._first_debug_id))
        for name, audit in self.audits.items():
            if name in state["audits"]:
                audit.load_state_dict(state["audits"][name])
        if self.trainer is not None and state["models"] is not None:
            self.trainer.change("load_training_state", state["models"])
        self._share_models(self._trained)

    def save(self, name: str) -> None:
        """Write checkpoints of the trainer's models below reward_models/`name`."""
        if self.trainer is not None:
            self.trainer.submit("save", self.out / "reward_models" / name, retry=True).result()

    def close(self) -> None:
        """Wait for files that are still being written."""
        for audit in self.audits.values():
            audit.close()
        if self.scorers is not None:
            self.scorers.call("close", retry=True).result()

    def _any_looks_at_episodes(self) -> bool:
        return any(facts.term.looks_at == "episodes" for facts in self.facts.values())

    def _train_and_estimate(self, rollout: Rollout, iteration: int) -> dict[str, float]:
        """Train models on the rollout, then add the estimates of those that look at transitions or episodes to it."""
        if self.trainer is None:
            return {}
        batch = rollout.batch
        learning = [name for name in self._trained if self.facts[name].term.learns]
        result: RolloutEstimates
        if learning:
            result = self.trainer.change("update", batch, iteration, self._labelled_frames(rollout, learning))
            self._share_models(learning)
        elif self._any_looks_at_episodes():  # the trainer stores unfinished episodes, so its state changes
            result = self.trainer.change("estimate_rollout", batch)
        else:
            result = self.trainer.submit("estimate_rollout", batch, retry=True).result()
        for name, estimate in result.estimates.items():
            batch.rows[ESTIMATE, name] = estimate
            batch.rows[MODEL_VERSION, name] = torch.full_like(estimate, result.versions[name], dtype=torch.int32)
        return result.metrics

    def _labelled_frames(self, rollout: Rollout, learning: list[str]) -> dict[str, Any] | None:
        if rollout.frames is None or not any(self.facts[name].term.cameras for name in learning):
            return None
        success = self._true_success(rollout)
        if success is None:
            raise ConfigError(
                "reward.cotrain: found true, but the environment does not report success, so that frames have no "
                "labels to learn from; set it to false"
            )
        return {"images": rollout.frames.all(), "success": success}

    def _share_models(self, names: list[str]) -> None:
        """Send copies of changed models to the workers that use them, and the new rule to the learner."""
        state: dict[str, Any] = {}
        frame_models = [name for name in names if self.facts[name].term.cameras]
        if self.trainer is not None and names and (self.off_policy or frame_models):
            state = self.trainer.submit("state_dict", names, retry=True).result()
            self.facts |= self.trainer.submit("facts", retry=True).result()
        frame_state = {name: state[name] for name in frame_models}
        if self.scorers is not None and frame_models:
            self.scorers.setup("load_weights", frame_state)
        if frame_models and self.success_detectors:
            self.envs.setup("load_reward_models", frame_state)
        self._update_audits(frame_models)
        if self.off_policy:
            self.actor.submit("set_rewards", self.rule, state).result()

    def _true_success(self, rollout: Rollout) -> Tensor | None:
        """Return the true success of each scored frame; None if the environment does not report it."""
        if rollout.episodes.success_once is None or rollout.frames is None:
            return None
        return rollout.batch.rows["success"][rollout.frames.scored]

    def _audit(self, rollout: Rollout, iteration: int) -> dict[str, float]:
        metrics: dict[str, float] = {}
        self.new_alarms = ()
        if rollout.frames is None:
            return metrics
        frames = rollout.frames
        for name, audit in self.audits.items():
            camera = self.facts[name].term.cameras[0]
            result = audit.check(
                iteration,
                probability=rollout.batch.rows[ESTIMATE, name][frames.scored],
                success=self._true_success(rollout),
                frames=lambda rows, camera=camera: frames.select(rows)[camera],  # type: ignore[misc]
            )
            self.new_alarms += result.alarms
            prefix = "audit/" if len(self.audits) == 1 else f"audit/{name}/"
            metrics |= {key.replace("audit/", prefix, 1): value for key, value in result.metrics.items()}
        return metrics

    def _update_audits(self, names: list[str]) -> None:
        """Set the current thresholds and score histograms in the audits of these terms."""
        several = sum(facts.term.probability_map is not None for facts in self.facts.values()) > 1
        for name in names:
            term, metrics = self.facts[name]
            if term.probability_map is not None and self.cfg.reward.audit.enabled:
                directory = self.out / "audit" / name if several else self.out / "audit"
                audit = self.audits.setdefault(name, Audit(self.cfg.reward, directory=directory))
                audit.set_model(term.probability_map.threshold, ScoreHistogram.from_metrics(metrics))
