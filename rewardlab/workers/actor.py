"""The learner: an RL algorithm with, for off-policy algorithms, its replay buffer and demonstrations."""

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
from rewardlab.data.packed_batch import FRAME, PackedBatch, Pictures, pack, packed, scored_pictures, unpacked
from rewardlab.data.replay import ReplayBuffer, mixed_sample
from rewardlab.devices import CPU
from rewardlab.errors import DataError
from rewardlab.keys import DISCARD, INTERVENTION
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
from rewardlab.workers.demonstrations import end_at_claims, read_demonstrations
from rewardlab.workers.threads import torch_threads


class ActorWorker:
    """The learner. `add` stores a rollout, `update` trains on it, `policy_weights` returns the policy.

    With an on-policy algorithm, an update is one pass over the last rollout. With an off-policy algorithm, it is one
    gradient step on transitions sampled from the replay buffer; their `reward` is computed by `self.rule` when they
    are sampled, after reward models have scored them again where their terms say so.

    The networks are on `device`. Stored transitions stay in the CPU's memory; each batch is moved once.
    """

    def __init__(
        self,
        cfg: ExperimentConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        threads: int = 1,  # torch threads during updates
        device: torch.device = CPU,
    ) -> None:
        self.cfg = cfg
        self.device = device
        self.spaces = observation_space, action_space
        self.learner = make_learner(cfg, observation_space, action_space, device)
        self.settings = cfg.algorithm.off_policy
        self.rule = RewardRule()
        self.rewards: RewardManager | None = None  # the models that score stored transitions
        self.frames = FrameStore()
        hindsight = cfg.reward.use_reward_model and any(model_class(model).hindsight for model in cfg.reward.models)
        self._buffer_class = EpisodeReplay if hindsight else ReplayBuffer
        self.replay = None if self.settings is None else self._buffer_class(self.settings.replay_size, self.frames)
        self.demos: ReplayBuffer | None = None
        self.interventions: ReplayBuffer | None = None  # steps in which a person acted: demonstrations too
        self._rollout: Batch | None = None
        self._updates_due = 0.0
        self._generator = torch.Generator().manual_seed(cfg.seed + 2)
        self._threads = threads

    def policy_weights(self) -> dict[str, Tensor]:
        """Return a copy of the policy's weights on the CPU, for the rollout workers."""
        policy: Any = self.learner.policy
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in policy.state_dict().items()}

    def set_progress(self, env_steps: int, total_env_steps: int) -> None:
        """Tell the algorithm how much of the training is done, for its schedules."""
        self.learner.set_progress(env_steps, total_env_steps)

    def add(self, rollout: Batch | PackedBatch, env_steps: int) -> int:
        """Store a rollout [T, N] and return the number of updates that are due.

        `env_steps` counts the steps of the run including this rollout.
        """
        if self.replay is None or self.settings is None:
            self._rollout = unpacked(rollout)
            return 1
        recomputed = [(column, t.name) for t in self._terms("when_sampled") for column in (ESTIMATE, MODEL_VERSION)]
        rollout = _without_discarded(packed(rollout))
        by_person = rollout.rows.get(INTERVENTION, None)
        stored = PackedBatch(rollout.rows.exclude("reward", INTERVENTION, *recomputed), rollout.frames)
        if self.rewards is not None:
            now, terms = self.rewards.versions, self._terms("when_changed")
            stale = [term for term in terms if (stored.rows[MODEL_VERSION, term.name] != now[term.name]).any()]
            stored.rows.update(self._estimate(stored.rows, stale, stored.frames))
        self.replay.add_rollout(stored)
        if by_person is not None and by_person.any():
            self._add_interventions(stored.rows[by_person], stored)
        if env_steps <= self.settings.learning_starts:
            return 0
        if not len(self.replay):
            warnings.warn(
                f"nothing was learned in {env_steps} steps: no episode ended between two checkpoints, after which all "
                "environments are reset. Raise runner.save_interval",
                stacklevel=2,
            )
            return 0
        self._updates_due += rollout.rows.numel() * self.settings.utd_ratio
        return int(self._updates_due)

    def _add_interventions(self, rows: Batch, stored: PackedBatch) -> None:
        """Store steps in which a person acted with the demonstrations as well (as HIL-SERL does)."""
        if self.interventions is None:
            assert self.settings is not None
            self.interventions = self._buffer_class(self.settings.replay_size, self.frames)
        self.interventions.add(PackedBatch(rows, stored.frames))

    @property
    def updates_due(self) -> int:
        """Number of updates that `algorithm.*.utd_ratio` allows now."""
        return int(self._updates_due) if self.replay is not None and len(self.replay) else 0

    def update(self, count: int) -> dict[str, float]:
        """Make `count` updates and return the means of their metrics."""
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
        """Sample transitions to learn from with an off-policy algorithm, with their current reward."""
        assert self.replay is not None
        size, fraction = self.cfg.actor.global_batch_size, self.cfg.algorithm.sac.demo_fraction
        demos = [buffer for buffer in (self.demos, self.interventions) if buffer is not None]
        batch = mixed_sample(self.replay, demos, size, fraction, self._sample_from, self._generator)
        batch.update(self._estimate(batch, self._terms("when_sampled")))
        batch["reward"] = compute_reward(self.rule, batch)
        return batch

    def _sample_from(self, buffer: ReplayBuffer, count: int) -> Batch:
        models = () if self.rewards is None else self.rewards.models.values()
        hindsight: Any = next((model for model in models if model.hindsight), None)
        if hindsight is not None:
            return hindsight.sample(buffer, count, self._generator)
        return buffer.sample(count, self._generator)

    def begin_episodes(self) -> None:
        """Drop unfinished episodes, because all environments were reset."""
        if self.replay is not None:
            self.replay.forget_unfinished()

    def set_rewards(self, rule: RewardRule, models: Mapping[str, Any]) -> None:
        """Use a new reward rule from now on, and the new weights of the models that have changed.

        Off-policy algorithms: stored transitions are scored again by models that have changed, where their terms say
        so.
        """
        self.rule = rule
        if self.replay is None:
            return
        if self.rewards is None and rule.terms:
            with_demos = self.cfg.algorithm.sac.demo_path is not None
            names = [t.name for t in rule.terms if t.rescored != "never" or with_demos]
            self.rewards = RewardManager.from_config(
                self.cfg.reward, self.device, names=names, task=self.spaces, off_policy=True
            )
        if self.rewards is not None:
            self.rewards.load_state_dict(models)
        changed = [term for term in self._terms("when_changed") if term.name in models]
        # These terms look at frames: images of observations are not needed.
        for buffer in (self.replay, self.interventions):
            if changed and buffer is not None and len(buffer):
                buffer.relabel(lambda rows: self._estimate(rows, changed), images=False)
        # Demonstrations are whole episodes, so models that look at episodes can score them again too.
        changed += [term for term in rule.terms if term.looks_at == "episodes" and term.name in models]
        if changed and self.demos is not None:
            self.demos.relabel(lambda rows: self._estimate(rows, changed), chunk=len(self.demos))

    def load_demonstrations(self) -> None:
        """Read the demonstrations at `algorithm.sac.demo_path`; a fraction of each batch comes from them (RLPD)."""
        path = self.cfg.algorithm.sac.demo_path
        assert path is not None
        try:
            self._load_demonstrations(path)
        except DataError as error:
            raise DataError(f"algorithm.sac.demo_path, the demonstrations in {path}: {error}") from error

    def _load_demonstrations(self, path: str) -> None:
        stored = [term for term in self.rule.terms if term.rescored != "when_sampled"]
        with_frames = [term for term in self.rule.terms if term.cameras]
        cameras = dict.fromkeys(camera for term in with_frames for camera in term.cameras)
        demos, frames = read_demonstrations(path, self.spaces[0], cameras)
        scored, kept = {}, None
        if with_frames:
            ended = demos["terminated"] | demos["truncated"]
            every = torch.ones_like(ended)  # each claim counts where claims end episodes, whichever are rewarded
            kept = torch.stack([every if t.ends_episode else t.scored_steps(ended) for t in with_frames]).any(0)
            scored = {camera: images[kept] for camera, images in frames.items()}
        batch = pack(demos, scored, kept)
        demos.update(batch.rows.select(FRAME, strict=False))
        rows = batch.rows.update(self._estimate(demos, stored, batch.frames))
        if all(term.rescored == "never" for term in with_frames):
            rows = rows.exclude(FRAME)
        ending = [term for term in stored if term.ends_episode]
        if ending:
            claims = torch.stack([term.predicts_success(rows[ESTIMATE, term.name]) for term in ending]).any(0)
            rows, left = end_at_claims(rows, claims, self.cfg.env.train.success_hold_steps or 1)
            rows = rows[left]
        if stored == list(self.rule.terms) and not (compute_reward(self.rule, rows) > 0).any():
            warnings.warn(
                f"algorithm.sac.demo_path: none of the {len(rows)} transitions in {path} earns a reward. Check that "
                "the demonstrations succeed, and with `rewardlab score` that the reward model predicts success",
                stacklevel=2,
            )
        self.demos = self._buffer_class(len(rows), self.frames)
        self.demos.add(PackedBatch(rows, batch.frames))

    def _terms(self, rescored: str) -> list[RewardTerm]:
        return [term for term in self.rule.terms if term.rescored == rescored]

    def _estimate(self, rows: Batch, terms: Collection[RewardTerm], pictures: Pictures | None = None) -> Batch:
        """Score rows with the models of these terms; return the columns `estimate` and `model_version`.

        The columns FRAME of the rows are numbers of `pictures`, by default of those in the frame store.
        """
        if not terms or self.rewards is None:
            return TensorDict({}, batch_size=rows.batch_size)
        pictures = self.frames.pictures if pictures is None else pictures
        names = [term.name for term in terms if term.looks_at != "frames"]
        estimates = self.rewards.estimate(rows, names) if names else {}
        for term in terms:
            if term.looks_at == "frames":
                images = {camera: scored_pictures(rows, camera, pictures) for camera in term.cameras}
                has_frame = next(iter(images.values()))[1]
                frames = {"images": {camera: found for camera, (found, _) in images.items()}}
                scores = self.rewards.score(term.name, frames) if has_frame.any() else torch.zeros(0)
                estimates[term.name] = place_estimates(scores, has_frame)
        now = self.rewards.versions
        versions = {name: torch.full_like(e, now[name], dtype=torch.int32) for name, e in estimates.items()}
        return TensorDict({ESTIMATE: estimates, MODEL_VERSION: versions}, batch_size=rows.batch_size)

    def state_dict(self) -> dict[str, Any]:
        return {
            "learner": self.learner.state_dict(),
            "replay": None if self.replay is None else self.replay.state_dict(),
            "interventions": None if self.interventions is None else self.interventions.state_dict(),
            "generator": self._generator.get_state(),
            "updates_due": self._updates_due,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        if self.replay is not None and state["replay"] is not None:
            state["replay"]["rows"].pop("reward", None)  # stored by earlier versions
            self.replay.load_state_dict(state["replay"])
            if state.get("interventions") is not None and self.settings is not None:
                self.interventions = self._buffer_class(self.settings.replay_size, self.frames)
                self.interventions.load_state_dict(state["interventions"])
        self._generator.set_state(state["generator"])
        self._updates_due = state["updates_due"]


def _without_discarded(rollout: PackedBatch) -> PackedBatch:
    """Return a rollout without the steps that an environment says are not to be kept, such as those of a failing robot.

    The result is flat, so that hindsight, which needs whole episodes, cannot be had there.
    """
    discarded = rollout.rows.get(DISCARD, None)
    if discarded is None:
        return rollout
    rows = rollout.rows.exclude(DISCARD)
    if not discarded.any():
        return PackedBatch(rows, rollout.frames)
    return PackedBatch(rows.reshape(-1)[~discarded.reshape(-1)], rollout.frames)
