"""The learner: an RL algorithm and, off policy, the replay buffer and demonstrations that it learns from."""

import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from rewardlab.config.schema import ExperimentConfig
from rewardlab.data.episode_replay import EpisodeReplay
from rewardlab.data.frame_store import FrameStore
from rewardlab.data.replay import FRAME, ReplayBuffer, mixed_sample
from rewardlab.rewards.loading import model_class
from rewardlab.rewards.manager import (
    ESTIMATE,
    MODEL_VERSION,
    RewardManager,
    RewardRule,
    RewardTerm,
    compute_reward,
    place_estimates,
)
from rewardlab.rl.make import make_learner
from rewardlab.types import Batch
from rewardlab.workers.demonstrations import read_demonstrations
from rewardlab.workers.threads import torch_threads


class ActorWorker:
    """Takes rollouts (`add`), makes updates (`update`), hands out the policy (`policy_weights`): three separate calls.

    On policy an update is one pass of the algorithm over the last rollout, whose `reward` it maximises. Off policy it
    is one step on transitions drawn from the replay buffer. Their `reward` is computed when they are drawn, by
    `self.rule`, after the models have been asked again where their terms say so.
    """

    def __init__(
        self,
        cfg: ExperimentConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        threads: int = 1,  # for updates
    ) -> None:
        self.cfg = cfg
        self.spaces = observation_space, action_space
        self.learner = make_learner(cfg, observation_space, action_space)
        self.settings = cfg.algorithm.off_policy
        self.rule = RewardRule()
        self.rewards: RewardManager | None = None  # models that are asked about stored transitions
        self.frames = FrameStore()
        hindsight = cfg.reward.use_reward_model and any(model_class(model).hindsight for model in cfg.reward.models)
        self._buffer_class = EpisodeReplay if hindsight else ReplayBuffer
        self.replay = None if self.settings is None else self._buffer_class(self.settings.replay_size, self.frames)
        self.demos: ReplayBuffer | None = None
        self._rollout: Batch | None = None
        self._updates_due = 0.0
        self._generator = torch.Generator().manual_seed(cfg.seed + 2)
        self._threads = threads

    def policy_weights(self) -> dict[str, Tensor]:
        """A copy, for workers that act while this one learns on."""
        policy: Any = self.learner.policy
        return {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}

    def set_progress(self, env_steps: int, total_env_steps: int) -> None:
        self.learner.set_progress(env_steps, total_env_steps)

    def add(self, rollout: Batch, env_steps: int, frames: Mapping[str, Any] | None = None) -> int:
        """Take a rollout [T, N] that ends after `env_steps` steps in all; returns the number of updates that are due.

        `frames`, for models that are asked again, are those of the steps with an estimate, by camera and in order.
        """
        if self.replay is None or self.settings is None:
            self._rollout = rollout
            return 1
        redrawn = [(column, t.name) for t in self._terms("when_drawn") for column in (ESTIMATE, MODEL_VERSION)]
        stored = rollout.exclude("reward", *redrawn)
        if frames is not None:
            term = next(term for term in self.rule.terms if term.cameras)
            stored[FRAME] = self.frames.add(frames, ~rollout[ESTIMATE, term.name].isnan())
        stored.update(self._asked(stored, self._stale_terms(stored)))
        self.replay.add_rollout(stored)
        if env_steps <= self.settings.learning_starts:
            return 0
        if not len(self.replay):
            warnings.warn(
                f"nothing was learned in {env_steps} steps: no episode has ended between two checkpoints, after which "
                "all environments are reset. Raise runner.save_interval",
                stacklevel=2,
            )
            return 0
        self._updates_due += rollout.numel() * self.settings.utd_ratio
        return int(self._updates_due)

    def update(self, count: int) -> dict[str, float]:
        """Make `count` updates; the means of their figures."""
        if count == 0:
            return {}
        with torch_threads(self._threads):
            if self._rollout is not None:
                rollout, self._rollout = self._rollout, None
                return self.learner.learn(rollout) | {"updates": self.learner.updates}
            sums: dict[str, float] = {}
            for _ in range(count):
                for name, value in self.learner.learn(self.sample()).items():
                    sums[name] = sums.get(name, 0.0) + value
            self._updates_due -= count
            return {name: total / count for name, total in sums.items()} | {"updates": self.learner.updates}

    def sample(self) -> Batch:
        """Transitions to learn from off policy, with the reward that they have now."""
        assert self.replay is not None
        size, fraction = self.cfg.actor.global_batch_size, self.cfg.algorithm.sac.demo_fraction
        batch = mixed_sample(self.replay, self.demos, size, fraction, self._draw)
        batch.update(self._asked(batch, self._terms("when_drawn")))
        batch["reward"] = compute_reward(self.rule, batch)
        return batch

    def _draw(self, buffer: ReplayBuffer, count: int) -> Batch:
        models = () if self.rewards is None else self.rewards.models.values()
        hindsight: Any = next((model for model in models if model.hindsight), None)
        if hindsight is not None:
            return hindsight.sample(buffer, count, self._generator)
        return buffer.sample(count, self._generator)

    def begin_episodes(self) -> None:
        """All environments were reset: unfinished episodes are dropped."""
        if self.replay is not None:
            self.replay.forget_unfinished()

    def set_rewards(self, rule: RewardRule, models: Mapping[str, Any]) -> None:
        """Take the rule that rewards are computed by from now on, and the state of the models that have changed.

        Off policy, stored transitions are asked about again where a model has changed.
        """
        self.rule = rule
        if self.replay is None:
            return
        if self.rewards is None and rule.terms:
            with_demos = self.cfg.algorithm.sac.demo_path is not None
            names = [t.name for t in rule.terms if t.asked_again != "never" or with_demos]
            self.rewards = RewardManager.from_config(self.cfg.reward, names=names, task=self.spaces, off_policy=True)
        if self.rewards is not None:
            self.rewards.load_state_dict(models)
        changed = [term for term in self._terms("when_changed") if term.name in models]
        if changed and len(self.replay):
            self.replay.relabel(lambda rows: self._asked(rows, changed))
        # Demonstrations are whole episodes, so that models which look at these can be asked about them again too.
        changed += [term for term in rule.terms if term.looks_at == "episodes" and term.name in models]
        if changed and self.demos is not None:
            self.demos.relabel(lambda rows: self._asked(rows, changed), chunk=len(self.demos))

    def load_demonstrations(self) -> None:
        """Read the demonstrations at `algorithm.sac.demo_path`, which a part of each batch is drawn from (RLPD)."""
        path = self.cfg.algorithm.sac.demo_path
        assert path is not None
        once = [term for term in self.rule.terms if term.asked_again != "when_drawn"]
        shown = [term for term in self.rule.terms if term.cameras]
        demos, frames = read_demonstrations(path, self.spaces[0], {c: None for term in shown for c in term.cameras})
        if shown:
            ended = demos["terminated"] | demos["truncated"]
            kept = torch.stack([term.asked_at(ended) for term in shown]).any(0)  # terminal: the last frames alone
            demos[FRAME] = self.frames.add({camera: pictures[kept] for camera, pictures in frames.items()}, kept)
        demos.update(self._asked(demos, once))
        if shown and all(term.asked_again == "never" for term in shown):
            self.frames.free(demos[FRAME])
            demos = demos.exclude(FRAME)
        if once == list(self.rule.terms) and not (compute_reward(self.rule, demos) > 0).any():
            warnings.warn(
                f"algorithm.sac.demo_path: none of the {len(demos)} transitions in {path} earns a reward; do they show "
                "success, and does the reward model see it (rewardlab score)?",
                stacklevel=2,
            )
        self.demos = self._buffer_class(len(demos), self.frames)
        self.demos.add(demos)

    def _terms(self, asked_again: str) -> list[RewardTerm]:
        return [term for term in self.rule.terms if term.asked_again == asked_again]

    def _stale_terms(self, rows: Batch) -> list[RewardTerm]:
        """Terms whose model has changed since it was asked about these rows."""
        if self.rewards is None:
            return []
        now = self.rewards.versions
        return [t for t in self._terms("when_changed") if (rows[MODEL_VERSION, t.name] != now[t.name]).any()]

    def _asked(self, rows: Batch, terms: Collection[RewardTerm]) -> Batch:
        """What the models of these terms say of rows now: the columns `estimate` and `model_version`."""
        if not terms or self.rewards is None:
            return TensorDict({}, batch_size=rows.batch_size)
        names = [term.name for term in terms if term.looks_at != "frames"]
        estimates = self.rewards.estimate(rows, names) if names else {}
        for term in terms:
            if term.looks_at == "frames":
                has_frame = rows[FRAME] >= 0
                frames = {"images": self.frames[rows[FRAME][has_frame]]}
                found = self.rewards.score(term.name, frames) if has_frame.any() else torch.zeros(0)
                estimates[term.name] = place_estimates(found, has_frame)
        now = self.rewards.versions
        versions = {name: torch.full_like(e, now[name], dtype=torch.int32) for name, e in estimates.items()}
        return TensorDict({ESTIMATE: estimates, MODEL_VERSION: versions}, batch_size=rows.batch_size)

    def state_dict(self) -> dict[str, Any]:
        return {
            "learner": self.learner.state_dict(),
            "replay": None if self.replay is None else self.replay.state_dict(),
            "generator": self._generator.get_state(),
            "updates_due": self._updates_due,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        if self.replay is not None and state["replay"] is not None:
            state["replay"]["rows"].pop("reward", None)  # earlier versions stored it
            self.replay.load_state_dict(state["replay"])
        self._generator.set_state(state["generator"])
        self._updates_due = state["updates_due"]
