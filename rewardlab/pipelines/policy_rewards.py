"""The reward of a policy run: from what its models say of a rollout to what the learner sees; audit and co-training."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rewardlab.config import ExperimentConfig
from rewardlab.config.schema import RewardConfig
from rewardlab.errors import ConfigError
from rewardlab.figures.score_histogram import ScoreHistogram
from rewardlab.rewards.audit import Alarm, Audit
from rewardlab.rewards.loading import SortedModels, sort_models
from rewardlab.rewards.manager import learner_rewards, placed_rewards
from rewardlab.rewards.transition_rewards import TransitionRewards, Verdict
from rewardlab.types import Batch
from rewardlab.workers.cluster import Cluster
from rewardlab.workers.env import Scoring
from rewardlab.workers.group import Worker
from rewardlab.workers.lanes import Rollout
from rewardlab.workers.reward import RewardFacts, RewardGroup

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]  # of one environment: observations, actions


class PolicyRewards:
    """The models of a run, wherever they are, and what is done with them in an iteration.

    A success classifier scores frames while the rollout goes on. Models over transitions (`judge`) look at the rollout
    when it is complete; off policy the actor asks them again about each batch that it draws.
    """

    def __init__(self, cfg: ExperimentConfig, cluster: Cluster, out: Path) -> None:
        self.cfg = cfg
        self.out = out
        self.off_policy = cfg.algorithm.off_policy is not None
        models = sort_models(cfg.reward) if cfg.reward.use_reward_model else SortedModels()
        self._classifier_config, self._transition_configs = models.classifier, models.others
        self._cotrains_transitions = any(map(cfg.reward.cotrains, models.others))
        self._by_episode = models.by_episode
        self._check(models)
        self.classifier = RewardGroup.launch(cluster, cfg.reward, background=True) if models.classifier else None
        self.facts: RewardFacts | None = None if self.classifier is None else self.classifier.facts()
        self.judge: Worker | None = None
        self.audit = self._make_audit()
        self.terminal_only = False  # an alarm switched from per_step to terminal rewards
        self.new_alarms: tuple[Alarm, ...] = ()  # of the last iteration

    def bind(self, cluster: Cluster, actor: Worker, task: Spaces, expert_data: Any) -> None:
        """Build what depends on the task, and give the actor the models that it must ask itself."""
        self.actor = actor
        if self._transition_configs:
            make = partial(TransitionRewards.from_config, self.cfg.reward, *task, expert_data=expert_data)
            self.judge = cluster.launch("reward", lambda seat: make(), name="TransitionRewards", count=1)[0]
        if self._keeps_frames:
            actor.submit("load_reward_model").result()
        self._send_weights_to_actor()

    @property
    def needs_next_observations(self) -> bool:
        return bool(self._transition_configs)

    @property
    def cotrains_frames(self) -> bool:
        return self._classifier_config is not None and self.cfg.reward.cotrains(self._classifier_config)

    @property
    def scoring(self) -> Scoring | None:
        """Which frames environments shall show."""
        if self.facts is None:
            return None
        return Scoring(self.facts.cameras, self._config.reward_mode == "terminal", keep=self._keeps_frames)

    def pretrain(self) -> None:
        """Train the models on their expert data, before the policy acts."""
        if self.judge is None:
            raise ConfigError("reward.pretrain: found true, but no reward model of this run learns from expert data")
        self.judge.change("pretrain")
        self._send_weights_to_actor()

    def begin_episodes(self) -> None:
        """All environments have been started afresh: what has no end yet will have none."""
        if self.judge is not None and self._by_episode:
            self.judge.change("begin")

    def of(self, rollout: Rollout, iteration: int) -> tuple[Batch, dict[str, float]]:
        """The rollout with the reward the learner shall see, and figures of that reward."""
        batch, config, figures = rollout.batch, self._config, {}
        if self.classifier is None and self.judge is None:
            batch["reward"] = batch["env_reward"]
        else:
            said = torch.zeros_like(batch["env_reward"])
            if rollout.scores is not None:
                ended = batch["terminated"] | batch["truncated"]
                said = placed_rewards(config, batch["env_reward"], rollout.scores.reward, ended)
                scored = rollout.scores.reward  # of every frame, or in terminal mode of the last ones
                figures["rollout/model_rewards"] = float(scored.mean()) if len(scored) else 0.0
                figures |= self._audited(rollout, iteration)
            if self.judge is not None:
                said, more = self._judged(batch, said, iteration)
                figures |= more
            # Off policy, what models over transitions say is made anew when the actor draws (ActorWorker._sample).
            batch["reward"] = learner_rewards(config, batch["env_reward"], said)
        figures["rollout/rewards"] = float(batch["reward"].mean())
        figures["rollout/rewards_std"] = float(batch["reward"].std(unbiased=False))
        return batch, figures

    def cotrain_frames(self, rollout: Rollout, iteration: int) -> None:
        """Let the classifier learn from the frames it has scored; what it learned counts from the next round on."""
        assert self.classifier is not None
        assert rollout.frames is not None
        truth = self._truth(rollout)
        if truth is None:
            raise ConfigError("reward.cotrain: the environment does not report success: there is nothing to learn from")
        self.classifier.update({"images": rollout.frames.all(), "success": truth}, iteration)
        if self.off_policy:
            self.actor.submit("load_reward_model", self.classifier.weights()).result()
            if self.cfg.reward.relabel == "changed":
                self.actor.submit("relabel").result()

    def go_terminal(self) -> None:
        """From here on only last frames are scored; the environments must be told the new `scoring`."""
        self.terminal_only = True
        if self.audit is not None:
            self.audit.restart()

    def state_dict(self) -> dict[str, Any]:
        return {
            "terminal_only": self.terminal_only,
            "audit": None if self.audit is None else self.audit.state_dict(),
            "classifier": self.classifier.weights() if self.classifier is not None and self.cotrains_frames else None,
            "transitions": None if self.judge is None else self.judge.submit("training_state", retry=True).result(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.terminal_only = state["terminal_only"]
        if self.audit is not None and state["audit"] is not None:
            self.audit.load_state_dict(state["audit"])
        if self.classifier is not None and state["classifier"] is not None:
            self.classifier.load_weights(state["classifier"])
        if self.judge is not None and state["transitions"] is not None:
            self.judge.change("load_training_state", state["transitions"])
            self._send_weights_to_actor()

    def save(self, name: str) -> None:
        """The models over transitions, and a classifier that learns on, complete, below reward_models/`name`."""
        place = self.out / "reward_models" / name
        if self.judge is not None:
            self.judge.submit("save", place, retry=True).result()
        if self.classifier is not None and self.facts is not None and self.cotrains_frames:
            self.classifier.save(place / self.facts.model_type)

    def close(self) -> None:
        """Wait for files that are still being written."""
        if self.audit is not None:
            self.audit.close()

    def _judged(self, batch: Batch, said: Tensor, iteration: int) -> tuple[Tensor, dict[str, float]]:
        """`said`, the reward of a classifier, and what models over transitions say of the rollout, after they have
        learned from it. Off policy only what they cannot say again goes with the transitions."""
        assert self.judge is not None
        verdict: Verdict
        if self._cotrains_transitions:
            verdict = self.judge.change("update_and_judge", batch, iteration)
            self._send_weights_to_actor()
        elif self._by_episode:  # what is unfinished is remembered
            verdict = self.judge.change("judge", batch)
        else:
            verdict = self.judge.submit("judge", batch, retry=True).result()
        if self.off_policy:
            batch["model_reward"] = said + verdict.fixed
        both = said + verdict.reward
        return both, {**verdict.figures, "rollout/model_rewards": float(both.mean())}

    def _audited(self, rollout: Rollout, iteration: int) -> dict[str, float]:
        if self.audit is None or self.facts is None or rollout.scores is None or rollout.frames is None:
            return {}
        frames, camera = rollout.frames, self.facts.cameras[0]
        result = self.audit.check(
            iteration,
            probability=rollout.scores.estimate,
            success=self._truth(rollout),
            frames=lambda rows: frames(rows)[camera],
        )
        self.new_alarms = result.alarms
        return result.figures

    def _truth(self, rollout: Rollout) -> Tensor | None:
        """Whether each frame that was scored is a success; None where the environment does not know."""
        if rollout.episodes.success_once is None:
            return None
        success: Tensor = rollout.batch["success"]
        ended = rollout.batch["terminated"] | rollout.batch["truncated"]
        # Asked of the rollout, not of the config: an alarm may have changed the mode since.
        everything = rollout.scores is not None and rollout.scores.estimate.numel() == success.numel()
        return success.flatten() if everything else success[ended]

    def _send_weights_to_actor(self) -> None:
        """Off policy, the actor asks models over transitions itself, and must have their newest weights."""
        if self.judge is not None and self.off_policy:
            weights = self.judge.submit("state_dict", retry=True).result()
            self.actor.submit("load_transition_rewards", weights).result()

    @property
    def _config(self) -> RewardConfig:
        return replace(self.cfg.reward, reward_mode="terminal") if self.terminal_only else self.cfg.reward

    @property
    def _keeps_frames(self) -> bool:
        """Whether stored transitions are scored again, for which they must keep their frames."""
        again = self.cotrains_frames or self.cfg.reward.relabel == "sample"
        return self.off_policy and self._classifier_config is not None and again

    def _check(self, models: SortedModels) -> None:
        """Refuse what cannot be, before anything is built."""
        reward, algorithm = self.cfg.reward, self.cfg.algorithm
        with_demos = algorithm.name == "sac" and algorithm.sac.demo_path is not None
        if self._keeps_frames and self._transition_configs:
            raise ConfigError(
                "reward.model: off policy, a success classifier beside other models is neither trained further nor "
                "asked again; set its cotrain to false and reward.relabel to changed"
            )
        if self._keeps_frames and reward.reward_mode == "terminal":
            raise ConfigError(
                "reward.reward_mode: terminal keeps no frames to score again; off policy, reward.cotrain and "
                "reward.relabel=sample need per_step"
            )
        if self._keeps_frames and reward.audit.enabled and reward.audit.on_alarm == "terminal":
            raise ConfigError(
                "reward.audit.on_alarm: found terminal, but off policy reward.cotrain and reward.relabel=sample need "
                "per_step; set it to warn or stop"
            )
        if with_demos and reward.relabel == "sample" and models.classifier is not None:
            raise ConfigError(
                "algorithm.sac.demo_path: demonstrations keep no frames to be scored when they are drawn; set "
                "reward.relabel to changed"
            )
        if with_demos and (models.hindsight or (models.classifier is not None and models.others)):
            raise ConfigError(
                "algorithm.sac.demo_path: demonstrations are not drawn beside hindsight, nor beside a classifier "
                "together with other models"
            )
        if models.others and models.classifier is None and reward.reward_mode == "terminal":
            raise ConfigError(
                "reward.reward_mode: found terminal, which is for success classifiers; models over transitions judge "
                "every step: set it to per_step"
            )
        if models.hindsight:
            if not self.off_policy:
                raise ConfigError(
                    f"reward.model.model_type: her learns from stored episodes, which {self.cfg.algorithm.name} does "
                    "not keep; set algorithm.name to dqn or sac"
                )
            if reward.combine_mode != "replace":
                raise ConfigError(
                    f"reward.combine_mode: found {reward.combine_mode}, expected replace, because the environment's "
                    "reward is not of the goals that her sets"
                )

    def _make_audit(self) -> Audit | None:
        if self.facts is None or not self.cfg.reward.audit.enabled:
            return None
        return Audit(
            self.cfg.reward,
            threshold=self.facts.threshold,
            reference=ScoreHistogram.from_metrics(self.facts.metrics),
            directory=self.out / "audit",
        )
