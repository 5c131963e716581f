"""The worker that steps environments and records their transitions, their episodes and the frames to score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rewardlab.config.robots import is_robot
from rewardlab.config.schema import CollectionConfig, EnvConfig
from rewardlab.data.episodes import Array
from rewardlab.data.packed_batch import PackedBatch, pack
from rewardlab.envs import make_vec_env
from rewardlab.envs.actions import within_bounds
from rewardlab.envs.camera_frames import CameraFrames
from rewardlab.envs.closing import closed_after_errors
from rewardlab.envs.end_on_success import EndOnSuccess
from rewardlab.envs.robot.env import Counts
from rewardlab.envs.step_results import executed_actions, flags_of_step, following_success, reports, says_success
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.frame_sizes import FrameSize
from rewardlab.keys import DISCARD, EXECUTED_ACTION, INTERVENTION, MESSAGE
from rewardlab.live_state import DISCARDED, FAILURE, REDO, SUCCESS, LiveEnv, LiveState
from rewardlab.observations import (
    Observation,
    as_observation,
    final_rows,
    replace_rows,
    stack_steps,
    to_batch,
    to_numpy,
)
from rewardlab.workers.reward import RewardWorker

Images = dict[str, Array]


@dataclass(frozen=True)
class StepObservation:
    """The observations after a step or a reset, from which the policy chooses the next actions."""

    observation: Observation
    ended: Array  # indices of the environments whose episode ended in the step
    final_observation: Observation | None  # the last observations of those episodes; None if none ended


@dataclass(frozen=True)
class FrameRequest:
    """The frames that reward models look at."""

    cameras: tuple[str, ...]
    sizes: Mapping[str, FrameSize] = field(default_factory=dict)  # at which models want them; absent: env.image_size
    terminal: bool = False  # only the last frame of each episode; the others are not rendered
    stored: bool = False  # the learner stores them, for models that score them again: they are in the transitions


@dataclass(frozen=True)
class Episodes:
    """The episodes that ended, one row each. `success_*` is None if the environment does not report success."""

    reward: Array  # the return: sum of the environment's rewards
    length: Array
    success_once: Array | None
    success_at_end: Array | None

    @classmethod
    def concatenate(cls, parts: Sequence["Episodes"]) -> "Episodes":
        """Return the episodes of all parts; success is None if one of the parts does not have it."""
        columns = [[getattr(part, field.name) for part in parts] for field in fields(cls)]
        joined: list[Any] = [None if any(c is None for c in column) else np.concatenate(column) for column in columns]
        return cls(*joined)


NO_EPISODES = Episodes(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0, bool))


class EnvWorker:
    """Steps a batch of environments and records what happens; the RolloutWorker of its lane records the actions.

    With `collection`, episodes are written to disk; `index`, the worker's number in its group, is part of their
    identity. If `success_detector` is given, an episode ends where one of its reward models predicts success. With
    `keep_tensors`, observations that a simulator has on a device stay there until they are fetched: for policies in the
    same process. Random numbers depend on (seed, iteration) only, so that a run resumed at an iteration sees the same
    episodes.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        seed: int,
        frames: FrameRequest | None = None,
        success_detector: RewardWorker | None = None,
        collection: CollectionConfig | None = None,
        keep_next: bool = False,
        keep_tensors: bool = False,
        index: int = 0,
    ) -> None:
        self.config = config
        self.seed = seed
        self.request = frames
        self.keep_next = keep_next
        self.keep_tensors = keep_tensors
        self.index = index
        own = config if success_detector is None else replace(config, success_hold_steps=None)
        self.env = env = make_vec_env(own)
        self.success_detector = success_detector
        self._ends_by_claims: EndOnSuccess | None = None
        with closed_after_errors(env.close):
            if success_detector is not None:
                success_detector.init_worker()
                named = None if collection is None else collection.cameras
                cameras = () if collection is None else config.cameras if named is None else named
                hold = config.success_hold_steps or 1
                self.env = env = self._ends_by_claims = EndOnSuccess(
                    env, self._predict_success, self._sizes(frames), cameras, config.frame_size, hold
                )
            if collection is not None:
                self.env = DataCollectorWrapper.as_planned(env, config, collection, policy="training", worker=index)
            self._frames = self._camera_frames()
        self._live: LiveState | None = None
        self._live_envs: list[LiveEnv] = []  # of the first environments
        self._says_success = False
        self._steps: list[dict[str, Any]] = []
        self._to_score: list[Images] = []
        self._to_store: list[Images] = []
        self._ended: list[Episodes] = []

    def ping(self) -> None:
        """Do nothing; raises WorkerDied if the process is gone."""

    def num_envs(self) -> int:
        return self.env.num_envs

    def spaces(self) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        """Return the observation space and the action space of a single environment."""
        return self.env.single_observation_space, self.env.single_action_space

    def load_reward_models(self, state: Mapping[str, Any]) -> None:
        """Load the newest weights of the models whose predicted success ends episodes."""
        if self.success_detector is not None:
            self.success_detector.load_weights(state)

    def _predict_success(self, frames: Images) -> Array:
        assert self.success_detector is not None
        verdict = self.success_detector.manager.judge_success({"images": frames})
        if self._live_envs and self._ends_by_claims is not None:
            claims = np.where(verdict.success.numpy(), self._ends_by_claims.claims + 1, 0).tolist()
            for live, probability, count in zip(self._live_envs, verdict.probability.tolist(), claims, strict=False):
                live.show_probability(probability)
                live.show(threshold=verdict.threshold, claims=count)
        return verdict.success.numpy()

    def request_frames(self, request: FrameRequest | None) -> None:
        """Record the frames of another request from now on."""
        if self._frames is not None:
            self._frames.drop_last()
        self.request = request
        self._frames = self._camera_frames()

    def begin(self, iteration: int, attempt: int = 0) -> StepObservation:
        """Reset every environment; records that were not fetched are dropped."""
        seeds = np.random.SeedSequence([self.seed, iteration, attempt])
        obs, _ = self.env.reset(seed=int(seeds.generate_state(1)[0]))
        self._steps, self._to_score, self._to_store, self._ended = [], [], [], []
        n = self.env.num_envs
        self._return, self._length, self._once = np.zeros(n), np.zeros(n, np.int64), np.zeros(n, bool)
        self._last = StepObservation(self._read(obs), np.zeros(0, np.int64), None)
        return self._last

    def step(self, actions: Any) -> StepObservation:
        """Step every environment and record the transitions."""
        before = self._last.observation
        actions = within_bounds(actions, self.env.single_action_space)
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        terminated, truncated = to_numpy(terminated).astype(bool), to_numpy(truncated).astype(bool)
        done = terminated | truncated
        ended = np.flatnonzero(done)
        final = self._read(final_rows(infos["final_obs"], ended)) if len(ended) else None
        self._last = StepObservation(self._read(obs), ended, final)
        self._says_success |= says_success(infos)
        row: dict[str, Any] = {
            "observation": before,
            "env_reward": to_numpy(reward).astype(np.float32),
            "terminated": terminated,
            "truncated": truncated,
            "success": following_success(infos, done, self._locate),
        }
        if reports(infos, EXECUTED_ACTION):
            by_person = flags_of_step(infos, INTERVENTION, done)
            row |= {INTERVENTION: by_person, DISCARD: flags_of_step(infos, DISCARD, done)}
            # Where a person acted, that is what was done. What limits changed stays as the policy chose it: they are
            # a part of the environment, and critics overestimate actions beyond them that they never see.
            chosen = to_numpy(actions)
            acted = by_person.reshape(-1, *[1] * (chosen.ndim - 1))
            row["action"] = np.where(acted, executed_actions(chosen, infos, done), chosen)
        if self.keep_next:
            after = self._last.observation
            row["next_observation"] = after if final is None else replace_rows(after, ended, final)
        self._record_frames(obs, infos, done)
        self._steps.append(row)
        self._record_episodes(row, ended)
        if self._live is not None:
            self._show_step(self._live, row, ended, infos)
        return self._last

    def _read(self, obs: Any) -> Observation:
        return as_observation(obs, keep_tensors=self.keep_tensors)

    def fetch(self) -> PackedBatch:
        """Return the transitions [T, N] since the last call, without the actions, and each of their pictures once."""
        steps, self._steps = self._steps, []
        batch = to_batch(stack_steps(steps), batch_axes=2).cpu()
        frames, self._to_store = self._to_store, []
        if self.request is None or not self.request.stored:
            return pack(batch) if self.keep_next else PackedBatch(batch)
        has_frame = torch.ones(batch.batch_size, dtype=torch.bool)
        if self.request.terminal:
            has_frame = batch["terminated"] | batch["truncated"]
        return pack(batch, self._concatenate(frames), has_frame)

    def fetch_frames(self) -> Images:
        """Return the frames to score since the last call, [m, H, W, 3] by camera, ordered by step and environment."""
        parts, self._to_score = self._to_score, []
        return self._concatenate(parts)

    def _concatenate(self, parts: list[Images]) -> Images:
        assert self.request is not None
        none = {c: np.zeros((0, *size.pixels, 3), np.uint8) for c, size in self._sizes(self.request).items()}
        return {camera: np.concatenate([none[camera], *(part[camera] for part in parts)]) for camera in none}

    def fetch_episodes(self) -> Episodes:
        """Return the episodes that ended since the last call."""
        ended, self._ended = self._ended, []
        episodes = Episodes.concatenate([NO_EPISODES, *ended])
        return episodes if self._says_success else replace(episodes, success_once=None, success_at_end=None)

    def collection_state(self) -> dict[str, Any]:
        """Wait until collected episodes are on disk, and return what a resumed or restarted worker needs to go on."""
        assert isinstance(self.env, DataCollectorWrapper)
        return self.env.state_dict()

    def load_collection_state(self, state: Mapping[str, Any]) -> None:
        """Go on collecting where `collection_state` was called; {"run": name} only names the run."""
        assert isinstance(self.env, DataCollectorWrapper)
        self.env.load_state_dict(state)

    def robot_figures(self) -> dict[str, float]:
        """Return the control rate of the robots, of the slowest where there are several, and sums of their counts."""
        figures: Any = self.env.unwrapped.call("figures")  # type: ignore[attr-defined]
        slowest = min(figures, key=lambda one: one.get("hz", 0.0))
        sums = {field.name: sum(one[field.name] for one in figures) for field in fields(Counts)}
        return {f"robot/{name}": value for name, value in (slowest | sums).items()}

    def attach(self, live: LiveState) -> None:
        """Show on the page of a run what happens here: to each robot, or else to the first environment."""
        self._live = live
        if is_robot(self.config):
            inner: Any = self.env.unwrapped
            self._live_envs = list(inner.call("attach", live))
        elif self.index == 0:
            self._live_envs = [live.env(self.config.task)]
        for one in self._live_envs:
            if (hold := self.config.success_hold_steps) is not None or self._ends_by_claims is not None:
                one.show(hold_needed=hold or 1)

    def _show_step(self, live: LiveState, row: Mapping[str, Any], ended: Array, infos: Any) -> None:
        """Show the outcomes of episodes, and the pictures that are there anyway."""
        success, unknown = row["success"], not (self._says_success or self._ends_by_claims is not None)
        if self._ends_by_claims is not None:  # people and claims decide, not what the environment knows
            success = self._ends_by_claims.ended | (success & row["terminated"])
        for index in ended:
            outcome = "ended" if unknown else SUCCESS if success[index] else FAILURE
            if DISCARD in row and row[DISCARD][index]:
                outcome = DISCARDED if infos["final_info"][MESSAGE][index] else REDO
            live.count_episode(outcome)
        if self._live_envs and not is_robot(self.config):
            images = self._last.observation.get("images") or (self._to_score[-1] if self._to_score else {})
            first = {camera: np.asarray(batch[0]) for camera, batch in images.items() if isinstance(batch, np.ndarray)}
            self._live_envs[0].show_frames({camera: frame.copy() for camera, frame in first.items()})

    def close(self) -> None:
        """Close the environments; waits until collected episodes are on disk."""
        self.env.close()

    def _locate(self, row: int) -> str:
        return f"'{self.config.id}', environment {row}, step {self._length[row] + 1} of its episode"

    def _record_frames(self, obs: Any, infos: Any, done: Array) -> None:
        if self._frames is None or self.request is None:
            return
        if self.request.terminal and not done.any():
            return
        terminal = self.request.terminal
        frames = (
            self._frames.final(infos, np.flatnonzero(done)) if terminal else self._frames.following(obs, infos, done)
        )
        self._to_score.append(frames)
        if self.request.stored:
            self._to_store.append(frames)

    def _record_episodes(self, row: dict[str, Any], ended: Array) -> None:
        self._return += row["env_reward"]
        self._length += 1
        self._once |= row["success"]
        if len(ended):
            columns = (self._return, self._length, self._once, row["success"])
            self._ended.append(Episodes(*(column[ended] for column in columns)))
            self._return[ended], self._length[ended], self._once[ended] = 0, 0, False

    def _sizes(self, request: FrameRequest | None) -> dict[str, FrameSize]:
        """Return the size of the frames for each camera of the request."""
        here = FrameSize(*self.config.frame_size, resize="allow")  # as collected: env.image_size is resized to as well
        wanted = {camera: request.sizes.get(camera, here) for camera in request.cameras} if request else {}
        return {camera: here if size.pixels == here.pixels else size for camera, size in wanted.items()}

    def _camera_frames(self) -> CameraFrames | None:
        if self.request is None:
            return None
        sizes = self._sizes(self.request)
        frames = CameraFrames(self.env, self.request.cameras, sizes, advice=". The reward model looks at it")
        frames.check()
        frames.keep_last()
        return frames
