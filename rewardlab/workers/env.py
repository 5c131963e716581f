"""The worker that owns environments: steps them, remembers what happened, hands out the frames to be scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict

from rewardlab.config.schema import CollectionConfig, EnvConfig
from rewardlab.data.episodes import Array
from rewardlab.envs import make_vec_env
from rewardlab.envs.actions import within_bounds
from rewardlab.envs.end_on_success import EndOnSuccess
from rewardlab.envs.step_results import CameraFrames, following_success, says_success
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.observations import Observation, as_observation, final_rows, replace_rows, stack_steps, to_batch
from rewardlab.types import Batch
from rewardlab.workers.reward import RewardWorker

Images = dict[str, Array]


@dataclass(frozen=True)
class Arrival:
    """Where a step, or a reset, led to: all that whoever acts next must know."""

    observation: Observation
    ended: Array  # numbers of the environments whose episode ended in the step
    final_observation: Observation | None  # their true last observations; None if none ended


@dataclass(frozen=True)
class FrameRequest:
    """Which frames reward models look at."""

    cameras: tuple[str, ...]
    terminal: bool = False  # only the last of each episode; others are not even drawn


@dataclass(frozen=True)
class Episodes:
    """The episodes that ended, one row each. `success_*` is None where the environment does not know."""

    reward: Array  # sum of the environment's own
    length: Array
    success_once: Array | None
    success_at_end: Array | None


class EnvWorker:
    """Steps a batch of environments. What was done to them is known by the RolloutWorker beside it.

    `ending` holds the reward models whose verdict ends an episode. Random numbers follow from (seed, iteration), so
    that a run that is resumed at an iteration sees the same episodes.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        seed: int,
        frames: FrameRequest | None = None,
        ending: RewardWorker | None = None,
        collection: CollectionConfig | None = None,
        keep_next: bool = False,
    ) -> None:
        self.config = config
        self.seed = seed
        self.request = frames
        self.keep_next = keep_next
        self.env = make_vec_env(config)
        self.ending = ending
        if ending is not None:
            ending.init_worker()
            cameras = {**dict.fromkeys(frames.cameras if frames else ()), **dict.fromkeys(config.cameras)}
            self.env = EndOnSuccess(self.env, self._verdict, list(cameras), config.frame_size)
        if collection is not None:
            self.env = DataCollectorWrapper.as_planned(self.env, config, collection, policy="training")
        self._frames = self._camera_frames()
        self._says_success = False
        self._steps: list[dict[str, Any]] = []
        self._to_score: list[Images] = []
        self._ended: list[dict[str, Array]] = []

    def ping(self) -> None:
        """Whether it lives."""

    def spaces(self) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        """Of a single environment: observations, actions."""
        return self.env.single_observation_space, self.env.single_action_space

    def load_reward_models(self, state: Mapping[str, Any]) -> None:
        """Take the newest weights of the models that end episodes."""
        if self.ending is not None:
            self.ending.load_weights(state)

    def _verdict(self, frames: Images) -> Array:
        assert self.ending is not None
        return self.ending.manager.calls_success({"images": frames}).numpy()

    def request_frames(self, request: FrameRequest | None) -> None:
        """Show other frames from now on."""
        self.request = request
        self._frames = self._camera_frames()

    def begin(self, iteration: int, attempt: int = 0) -> Arrival:
        """Start every episode afresh; what was not fetched is forgotten."""
        words = [self.seed, iteration, attempt]
        obs, _ = self.env.reset(seed=int(np.random.SeedSequence(words).generate_state(1)[0]))
        self._steps, self._to_score, self._ended = [], [], []
        n = self.env.num_envs
        self._return, self._length, self._once = np.zeros(n), np.zeros(n, np.int64), np.zeros(n, bool)
        self._arrival = Arrival(as_observation(obs), np.zeros(0, np.int64), None)
        return self._arrival

    def step(self, actions: Array) -> Arrival:
        """Act everywhere."""
        before = self._arrival.observation
        actions = within_bounds(actions, self.env.single_action_space)
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        done = np.asarray(terminated) | np.asarray(truncated)
        ended = np.flatnonzero(done)
        final = as_observation(final_rows(infos["final_obs"], ended)) if len(ended) else None
        self._arrival = Arrival(as_observation(obs), ended, final)
        self._says_success |= says_success(infos)
        row = {
            "observation": before,
            "env_reward": np.asarray(reward, np.float32),
            "terminated": np.asarray(terminated, bool),
            "truncated": np.asarray(truncated, bool),
            "success": following_success(infos, done),
        }
        if self.keep_next:
            after = self._arrival.observation
            row["next_observation"] = after if final is None else replace_rows(after, ended, final)
        self._look(obs, infos, done)
        self._steps.append(row)
        self._count(row, ended)
        return self._arrival

    def fetch(self) -> Batch:
        """What happened since the last call, [T, N]."""
        columns: dict[str, Any] = {}
        for name, first in self._steps[0].items():
            values = [step[name] for step in self._steps]
            if isinstance(first, dict):
                stacked = stack_steps(values)
                columns[name] = to_batch(stacked)
                columns[name].batch_size = [len(values), self.env.num_envs]
            else:
                columns[name] = torch.from_numpy(np.stack(values))
        self._steps = []
        return TensorDict(columns, batch_size=[len(columns["env_reward"]), self.env.num_envs])

    def fetch_frames(self) -> Images:
        """The frames to be scored since the last call, step by step and environment by environment: [m, H, W, 3]."""
        assert self.request is not None
        parts, self._to_score = self._to_score, []
        height, width = self.config.frame_size
        nothing = np.zeros((0, height, width, 3), np.uint8)
        return {camera: np.concatenate([nothing, *(part[camera] for part in parts)]) for camera in self.request.cameras}

    def fetch_episodes(self) -> Episodes:
        """The episodes that ended since the last call."""
        parts, self._ended = self._ended, []
        empty = {"reward": np.zeros(0), "length": np.zeros(0, np.int64)} | {
            name: np.zeros(0, bool) for name in ("success_once", "success_at_end")
        }
        columns: dict[str, Any] = {name: np.concatenate([e, *(p[name] for p in parts)]) for name, e in empty.items()}
        if not self._says_success:
            columns |= {"success_once": None, "success_at_end": None}
        return Episodes(**columns)

    def close(self) -> None:
        """Wait until collected episodes are on disk."""
        self.env.close()

    def _look(self, obs: Any, infos: Any, done: Array) -> None:
        if self._frames is None or self.request is None:
            return
        if not self.request.terminal:
            self._to_score.append(self._frames.following(obs, infos, done))
        elif done.any():
            self._to_score.append(self._frames.final(infos, np.flatnonzero(done)))

    def _count(self, row: dict[str, Any], ended: Array) -> None:
        self._return += row["env_reward"]
        self._length += 1
        self._once |= row["success"]
        if len(ended):
            columns = {"reward": self._return, "length": self._length, "success_once": self._once}
            columns = {**columns, "success_at_end": row["success"]}
            self._ended.append({name: column[ended].copy() for name, column in columns.items()})
            self._return[ended], self._length[ended], self._once[ended] = 0, 0, False

    def _camera_frames(self) -> CameraFrames | None:
        if self.request is None:
            return None
        frames = CameraFrames(
            self.env, self.request.cameras, self.config.frame_size, advice=". The reward model looks at it"
        )
        frames.check()
        return frames
