"""The worker that learns: an RL algorithm, and off policy the transitions it learns from."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rewardlab.config.schema import DQNConfig, ExperimentConfig, SACConfig
from rewardlab.data.episode_replay import EpisodeReplay
from rewardlab.data.replay import ReplayBuffer, mixed_sample
from rewardlab.errors import ConfigError
from rewardlab.rewards.loading import sort_models
from rewardlab.rewards.manager import RewardManager, learner_rewards
from rewardlab.rewards.transition_rewards import TransitionRewards
from rewardlab.rl.make import make_learner
from rewardlab.types import Batch
from rewardlab.workers.demonstrations import read_demonstrations
from rewardlab.workers.threads import torch_threads


class ActorWorker:
    """Learns from rollouts [T, N] whose `reward` is the one to be maximised.

    Off policy, transitions go into a replay buffer. Their rewards are made again with `relabel`, or with
    `reward.relabel: sample` whenever they are drawn, both from the frames they came with. What models over transitions
    say is always of the moment in which a transition is drawn, and added to the `model_reward` it came with.
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
        self.replay: ReplayBuffer | None = None
        if self.settings is not None:
            looks_back = cfg.reward.use_reward_model and sort_models(cfg.reward).hindsight
            self.replay = (EpisodeReplay if looks_back else ReplayBuffer)(self.settings.replay_size)
        self.demos: ReplayBuffer | None = None
        self._generator = torch.Generator().manual_seed(cfg.seed + 2)
        self._updates_due = 0.0
        self._threads = threads
        self._manager: RewardManager | None = None
        self._judge: TransitionRewards | None = None

    def policy_weights(self) -> dict[str, Tensor]:
        """A copy, for workers that act while this one learns on."""
        policy: Any = self.learner.policy
        return {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}

    def set_progress(self, env_steps: int, total_env_steps: int) -> None:
        self.learner.set_progress(env_steps, total_env_steps)

    def learn(self, rollout: Batch, env_steps: int) -> dict[str, float]:
        """`env_steps` have been made in all, those of the rollout included."""
        with torch_threads(self._threads):
            if self.settings is None:
                return self.learner.learn(rollout) | {"updates": self.learner.updates}
            return self._learn_from_replay(self.settings, rollout, env_steps)

    def _learn_from_replay(self, settings: SACConfig | DQNConfig, rollout: Batch, env_steps: int) -> dict[str, float]:
        assert self.replay is not None
        self.replay.add_rollout(rollout)
        if env_steps <= settings.learning_starts:
            return {}
        if not len(self.replay):
            warnings.warn(
                f"nothing was learned in {env_steps} steps: no episode has ended between two checkpoints, after which "
                "all begin afresh. Raise runner.save_interval",
                stacklevel=2,
            )
            return {}
        self._updates_due += rollout.numel() * settings.utd_ratio
        sums: dict[str, float] = {}
        updates = int(self._updates_due)
        for _ in range(updates):
            for name, value in self.learner.learn(self._sample()).items():
                sums[name] = sums.get(name, 0.0) + value
        self._updates_due -= updates
        return {name: total / updates for name, total in sums.items()} | {"updates": self.learner.updates}

    def begin_episodes(self) -> None:
        """All environments have been started afresh."""
        if self.replay is not None:
            self.replay.forget_unfinished()

    def load_demonstrations(self) -> None:
        """Those at `algorithm.sac.demo_path`, drawn for a part of each batch (RLPD)."""
        path = self.cfg.algorithm.sac.demo_path
        assert path is not None
        if self.cfg.reward.use_reward_model and self._judge is None:
            self.load_reward_model()
        demos = read_demonstrations(path, self._manager, self.spaces[0])
        if self._judge is None and not (demos["reward"] > 0).any():
            warnings.warn(
                f"algorithm.sac.demo_path: none of the {len(demos)} transitions in {path} earns a reward; do they show "
                "success, and does the reward model see it (rewardlab score)?",
                stacklevel=2,
            )
        if self._judge is not None:
            if self._judge.by_episode:
                raise ConfigError(
                    "algorithm.sac.demo_path: demonstrations are not drawn beside a reward model that judges whole "
                    "episodes (ngu, pwil)"
                )
            demos["model_reward"] = torch.zeros(len(demos))
        self.demos = ReplayBuffer(len(demos))
        self.demos.add(demos)

    def load_reward_model(self, weights: Mapping[str, Tensor] | None = None) -> None:
        """The model that stored transitions are scored by again, with its latest weights."""
        if self._manager is None:
            self._manager = RewardManager.from_config(self.cfg.reward)
        if weights is not None:
            self._manager.model.load_state_dict(weights)

    def load_transition_rewards(self, state: Mapping[str, Any]) -> None:
        """The models that judge transitions as they are drawn, with their latest weights."""
        if self._judge is None:
            self._judge = TransitionRewards.from_config(self.cfg.reward, *self.spaces, learns=False)
        self._judge.load_state_dict(state)

    def relabel(self) -> None:
        """Make the rewards of all stored transitions anew."""
        if self.replay is not None and len(self.replay):
            self.replay.relabel(self._rewards)

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
            self.replay.load_state_dict(state["replay"])
        self._generator.set_state(state["generator"])
        self._updates_due = state["updates_due"]

    def _sample(self) -> Batch:
        assert self.replay is not None
        size = self.cfg.actor.global_batch_size
        hindsight = None if self._judge is None else self._judge.hindsight
        if hindsight is not None:
            assert isinstance(self.replay, EpisodeReplay)
            batch = hindsight.sample(self.replay, size, self._generator)
        else:
            fraction = self.cfg.algorithm.sac.demo_fraction
            batch = mixed_sample(self.replay, self.demos, size, fraction, self._generator)
        if self._judge is not None:
            said = batch["model_reward"] + self._judge.estimate(batch)
            batch["reward"] = learner_rewards(self.cfg.reward, batch["env_reward"], said)
        elif self.cfg.reward.use_reward_model and self.cfg.reward.relabel == "sample":
            batch["reward"] = self._rewards(batch)
        return batch

    def _rewards(self, batch: Batch) -> Tensor:
        assert self._manager is not None
        return self._manager.rewards(batch["env_reward"], batch["frames"], batch["terminated"] | batch["truncated"])
