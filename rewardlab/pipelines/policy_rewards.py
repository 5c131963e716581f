"""The reward of a policy run: asks its reward models about a rollout, audits them, lets them learn."""

from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rewardlab.config import ExperimentConfig
from rewardlab.errors import ConfigError
from rewardlab.figures.score_histogram import ScoreHistogram
from rewardlab.rewards.audit import Alarm, Audit
from rewardlab.rewards.loading import model_class, named_models
from rewardlab.rewards.manager import ESTIMATE, MODEL_VERSION, RewardRule, TermFacts, compute_reward, model_reward
from rewardlab.rewards.trainer import Judgement, RewardTrainer, needs_trainer
from rewardlab.types import Batch
from rewardlab.workers.cluster import Cluster
from rewardlab.workers.env import FrameRequest
from rewardlab.workers.group import Group, Worker
from rewardlab.workers.reward import launch_reward_workers
from rewardlab.workers.rollout import Rollout

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]  # of one environment: observations, actions


class PolicyRewards:
    """The terms of a run's reward and the workers that hold their models.

    Models that look at frames are with the `scorers`, which are asked while a rollout goes on. Models that learn, or
    that look at transitions or episodes, are with the `trainer`, which is asked when a rollout is complete. Off policy
    the learner has copies of the models that are asked again about stored transitions.
    """

    def __init__(self, cfg: ExperimentConfig, cluster: Cluster, out: Path) -> None:
        self.cfg = cfg
        self.out = out
        self.off_policy = cfg.algorithm.off_policy is not None
        self.names = list(named_models(cfg.reward)) if cfg.reward.use_reward_model else []
        wanted = dict(zip(self.names, cfg.reward.models, strict=False))
        shown = [name for name in self.names if model_class(wanted[name]).looks_at == "frames"]
        self._trained = [name for name in self.names if needs_trainer(cfg.reward, wanted[name])]
        self.scorers: Group | None = None
        self.trainer: Worker | None = None
        self.facts: dict[str, TermFacts] = {}
        if shown:
            self.scorers = launch_reward_workers(cluster, cfg.reward, shown, off_policy=self.off_policy)
            self.facts = self.scorers[0].submit("facts").result()
        self.audits: dict[str, Audit] = {}
        self._audit_models(shown)
        self.terminal_only = False  # an alarm switched from per_step to terminal rewards
        self.new_alarms: tuple[Alarm, ...] = ()  # of the last iteration

    def bind(self, cluster: Cluster, actor: Worker, envs: Group, task: Spaces, expert_data: Any) -> None:
        """Build the models that depend on the task, and give the learner what it needs of the reward."""
        self.actor, self.envs = actor, envs
        if self._trained:
            cfg = self.cfg
            self.trainer = cluster.launch(
                "reward",
                lambda seat: RewardTrainer.from_config(cfg, task, expert_data=expert_data),
                name="RewardTrainer",
                count=1,
            )[0]
            self.facts |= self.trainer.submit("facts", retry=True).result()
        self._share_models(self._trained)

    @property
    def rule(self) -> RewardRule:
        reward = self.cfg.reward
        terms = tuple(self.facts[name].term for name in self.names)
        rule = RewardRule(terms, reward.combine_mode, reward.reward_weight, reward.env_reward_weight)
        return rule.at_last_steps_only() if self.terminal_only else rule

    @property
    def frame_request(self) -> FrameRequest | None:
        """The frames that environments must show."""
        cameras = tuple(dict.fromkeys(camera for facts in self.facts.values() for camera in facts.term.cameras))
        terminal = self.terminal_only or self.cfg.reward.reward_mode == "terminal"
        return FrameRequest(cameras, terminal) if cameras else None

    @property
    def ending(self) -> list[str]:
        """The models whose verdict ends an episode."""
        return [name for name, facts in self.facts.items() if facts.term.ends_episode]

    @property
    def needs_next_observations(self) -> bool:
        return self.off_policy or bool(self._trained)

    @property
    def alarms(self) -> list[Alarm]:
        """All of this run."""
        return [alarm for audit in self.audits.values() for alarm in audit.alarms]

    def stored_frames(self, rollout: Rollout) -> dict[str, Any] | None:
        """The frames that the learner must keep with a rollout, for models that are asked again."""
        again = any(facts.term.cameras and facts.term.asked_again != "never" for facts in self.facts.values())
        return rollout.frames.all() if again and rollout.frames is not None else None

    def pretrain(self) -> None:
        """Train the models on their expert data, before the policy acts."""
        if self.trainer is None:
            raise ConfigError("reward.pretrain: found true, but no reward model of this run learns from expert data")
        self.trainer.change("pretrain")
        self._share_models(self._trained)

    def begin_episodes(self) -> None:
        """All environments were reset: unfinished episodes are dropped."""
        if self.trainer is not None and self._looks_at("episodes"):
            self.trainer.change("begin")

    def compute_rewards(self, rollout: Rollout, iteration: int) -> tuple[Batch, dict[str, float]]:
        """The rollout with the estimates of all models and the `reward` that follows, and figures of it."""
        batch, rule, figures = rollout.batch, self.rule, {}
        if rule.terms:
            figures = self._audit(rollout, iteration)
            figures |= self._ask_trainer(rollout, iteration)
            asked = torch.ones(batch.batch_size, dtype=torch.bool)
            if rollout.frames is not None and all(term.cameras for term in rule.terms):
                asked = rollout.frames.scored
            figures["rollout/model_rewards"] = float(model_reward(rule, batch)[asked].mean()) if asked.any() else 0.0
        batch["reward"] = compute_reward(rule, batch)
        figures["rollout/rewards"] = float(batch["reward"].mean())
        figures["rollout/rewards_std"] = float(batch["reward"].std(unbiased=False))
        return batch, figures

    def go_terminal(self) -> None:
        """From here on only last frames count; the environments must be told the new `frame_request`."""
        self.terminal_only = True
        for audit in self.audits.values():
            audit.restart()
        self._share_models([])

    def state_dict(self) -> dict[str, Any]:
        return {
            "terminal_only": self.terminal_only,
            "audits": {name: audit.state_dict() for name, audit in self.audits.items()},
            "models": None if self.trainer is None else self.trainer.submit("training_state", retry=True).result(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.terminal_only = state["terminal_only"]
        for name, audit in self.audits.items():
            if name in state["audits"]:
                audit.load_state_dict(state["audits"][name])
        if self.trainer is not None and state["models"] is not None:
            self.trainer.change("load_training_state", state["models"])
        self._share_models(self._trained)

    def save(self, name: str) -> None:
        """Write the models that learn, or began untrained, below reward_models/`name`."""
        if self.trainer is not None:
            self.trainer.submit("save", self.out / "reward_models" / name, retry=True).result()

    def close(self) -> None:
        """Wait for files that are still being written."""
        for audit in self.audits.values():
            audit.close()

    def _looks_at(self, what: str) -> bool:
        return any(facts.term.looks_at == what for facts in self.facts.values())

    def _learning(self) -> list[str]:
        return [name for name in self._trained if self.facts[name].term.learns]

    def _ask_trainer(self, rollout: Rollout, iteration: int) -> dict[str, float]:
        """Let models learn from the rollout, then add what those that do not look at frames say of it."""
        if self.trainer is None:
            return {}
        batch, learning = rollout.batch, self._learning()
        judgement: Judgement
        if learning:
            judgement = self.trainer.change("update", batch, iteration, self._labelled_frames(rollout, learning))
            self._share_models(learning)
        elif self._looks_at("episodes"):  # whose unfinished ones are kept
            judgement = self.trainer.change("judge", batch)
        else:
            judgement = self.trainer.submit("judge", batch, retry=True).result()
        for name, estimate in judgement.estimates.items():
            batch[ESTIMATE, name] = estimate
            batch[MODEL_VERSION, name] = torch.full_like(estimate, judgement.versions[name], dtype=torch.int32)
        return judgement.figures

    def _labelled_frames(self, rollout: Rollout, learning: list[str]) -> dict[str, Any] | None:
        if rollout.frames is None or not any(self.facts[name].term.cameras for name in learning):
            return None
        success = self._true_success(rollout)
        if success is None:
            raise ConfigError("reward.cotrain: the environment does not report success: there is nothing to learn from")
        return {"images": rollout.frames.all(), "success": success}

    def _share_models(self, names: list[str]) -> None:
        """Give copies of changed models to the workers that ask them, and the new rule to the learner."""
        state: dict[str, Any] = {}
        shown = [name for name in names if self.facts[name].term.cameras]
        if self.trainer is not None and names and (self.off_policy or shown):
            state = self.trainer.submit("state_dict", names, retry=True).result()
            self.facts |= self.trainer.submit("facts", retry=True).result()
        if self.scorers is not None and shown:
            self.scorers.setup("load_weights", {name: state[name] for name in shown})
        if shown and self.ending:
            self.envs.setup("load_reward_models", {name: state[name] for name in shown})
        self._audit_models(shown)
        if self.off_policy:
            self.actor.submit("set_rewards", self.rule, state).result()

    def _true_success(self, rollout: Rollout) -> Tensor | None:
        """Whether each frame that was scored is a success; None where the environment does not know."""
        if rollout.episodes.success_once is None or rollout.frames is None:
            return None
        success: Tensor = rollout.batch["success"][rollout.frames.scored]
        return success

    def _audit(self, rollout: Rollout, iteration: int) -> dict[str, float]:
        figures: dict[str, float] = {}
        self.new_alarms = ()
        if rollout.frames is None:
            return figures
        frames = rollout.frames
        for name, audit in self.audits.items():
            camera = self.facts[name].term.cameras[0]
            result = audit.check(
                iteration,
                probability=rollout.batch[ESTIMATE, name][frames.scored],
                success=self._true_success(rollout),
                frames=lambda rows, camera=camera: frames(rows)[camera],  # type: ignore[misc]
            )
            self.new_alarms += result.alarms
            prefix = "audit/" if len(self.audits) == 1 else f"audit/{name}/"
            figures |= {key.replace("audit/", prefix, 1): value for key, value in result.figures.items()}
        return figures

    def _audit_models(self, names: list[str]) -> None:
        """Tell the audit of each of these terms that gives probabilities about its model as it is now."""
        several = sum(facts.term.probability_map is not None for facts in self.facts.values()) > 1
        for name in names:
            term, metrics = self.facts[name]
            if term.probability_map is not None and self.cfg.reward.audit.enabled:
                directory = self.out / "audit" / name if several else self.out / "audit"
                audit = self.audits.setdefault(name, Audit(self.cfg.reward, directory=directory))
                audit.set_model(term.probability_map.threshold, ScoreHistogram.from_metrics(metrics))
