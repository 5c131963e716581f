"""Wrappers around environments.

The reward wrappers are defined beside the reward models and imported from there on first use.
"""

import importlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from rewardlab.config.schema import CollectionConfig, EnvConfig
from rewardlab.data.collector import EpisodeCollector, OutcomeCount
from rewardlab.data.episodes import Array, Columns, as_action
from rewardlab.data.transition_file import RecordingWriter
from rewardlab.data.writer import EpisodeWriter, WritesEpisodes
from rewardlab.envs.checked import check_vector_step
from rewardlab.envs.collected_frames import CollectedFrames
from rewardlab.envs.end_on_success import EndOnSuccess
from rewardlab.envs.last_frame import LastFrameWrapper
from rewardlab.envs.step_results import (
    check_autoreset,
    executed_actions,
    final_info,
    flags_of,
    flags_of_step,
    says_success,
    success_of,
    unreported,
)
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_choice import FrameChoice
from rewardlab.keys import DEFAULT_CAMERA, DISCARD, GRASP_KEYS, INTERVENTION
from rewardlab.observations import final_rows, read_parts, read_vectors, to_numpy

if TYPE_CHECKING:
    from rewardlab.rewards.env_wrappers import RewardModelVectorWrapper, RewardModelWrapper
    from rewardlab.rewards.sb3_wrapper import RewardModelVecEnvWrapper as RewardModelVecEnvWrapper
else:
    _DEFINED_IN = {
        "RewardModelVecEnvWrapper": "rewardlab.rewards.sb3_wrapper",
        "RewardModelVectorWrapper": "rewardlab.rewards.env_wrappers",
        "RewardModelWrapper": "rewardlab.rewards.env_wrappers",
    }

    def __getattr__(name: str) -> type:
        if name not in _DEFINED_IN:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_DEFINED_IN[name]), name)


TRANSITIONS = "transitions"  # the format of a recording: one data.pkl in the place of a file for each episode

# Without RewardModelVecEnvWrapper, so that `import *` does not need Stable-Baselines3.
__all__ = ["DataCollectorWrapper", "LastFrameWrapper", "RewardModelVectorWrapper", "RewardModelWrapper"]


class DataCollectorWrapper(VectorWrapper[Any, Any, Any]):
    """Writes every episode that ends, labelled frame by frame, until both targets are reached.

    States and goals come from the observations; images too, or from the environment's `render_cameras` (see
    `CameraFrames`). With `cameras=()` no images are kept; `frames` says which frames of an episode get them: "all",
    "every:5" (and the last one) or "last:10". What the wrapped environment returns passes through unchanged. `close`
    waits until everything is written; `durable` (for robots, where an episode costs minutes) also makes each file safe
    from a power cut. With `watched_envs`, only that many environments, the first ones, are drawn and written: a sample
    of all phases of a training run, at a fraction of the cost.

    If `run` and `worker` name who collects, episodes carry that and a number as their identity, and one that is on disk
    already is not written again. `state_dict` has what a resumed run needs for it.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        save_dir: str | Path,
        *,
        target_success: int | None = None,
        target_failure: int | None = None,
        max_episodes: int | None = None,
        watched_envs: int | None = None,
        format: str = "safetensors",
        success_dir: str | Path | None = None,
        failure_dir: str | Path | None = None,
        durable: bool = False,
        cameras: Sequence[str] = (DEFAULT_CAMERA,),
        image_size: tuple[int, int] | None = None,
        frames: str = "all",
        policy: str = "unknown",
        task: str | None = None,
        run: str | None = None,
        worker: int = 0,
    ) -> None:
        super().__init__(env)
        choice = _frame_choice(frames)
        self._cameras = tuple(cameras)
        self._frames = CollectedFrames(
            env,
            cameras,
            image_size,
            choice,
            advice=". Name its cameras (a config: env.train.cameras), or keep states only: cameras=() (a config: [])",
        )
        self._labelled = self._tells_interventions = False
        self._steps = 0
        self._watched = env.num_envs if watched_envs is None else min(watched_envs, env.num_envs)
        spec = env.spec
        writer: WritesEpisodes
        if format == TRANSITIONS:
            writer = RecordingWriter(save_dir)
        else:
            writer = EpisodeWriter(save_dir, format, success_dir=success_dir, failure_dir=failure_dir, durable=durable)
        self._collector = EpisodeCollector(
            writer,
            self._watched,
            target_success=target_success,
            target_failure=target_failure,
            max_episodes=max_episodes,
            task=task or (spec.id if spec is not None else type(env.unwrapped).__name__),
            policy=policy,
            kept_frames=choice.last,
            run=run,
            worker=worker,
        )
        self._keep_last_frames()

    @classmethod
    def as_planned(
        cls,
        env: VectorEnv[Any, Any, Any],
        config: EnvConfig,
        plan: CollectionConfig,
        *,
        policy: str,
        run: str | None = None,
        worker: int = 0,
    ) -> Self:
        """Wrap the environment of `config` as the `data.collection` part of a config says."""
        return cls(
            env,
            plan.save_dir,
            target_success=plan.target_success,
            target_failure=plan.target_failure,
            max_episodes=plan.episodes,
            watched_envs=plan.watched_envs,
            format=plan.format,
            success_dir=plan.success_dir,
            failure_dir=plan.failure_dir,
            durable=plan.durable,
            cameras=config.cameras if plan.cameras is None else plan.cameras,
            image_size=config.frame_size,
            frames=plan.frames,
            policy=policy,
            task=config.task,
            run=run,
            worker=worker,
        )

    @property
    def counts(self) -> dict[str, OutcomeCount]:
        """Number of episodes under "success" and "failure"; counting ends when both targets are reached."""
        return self._collector.counts

    @property
    def full(self) -> bool:
        """Whether both targets are reached; from then on nothing is drawn or written."""
        return self._collector.full

    def state_dict(self) -> dict[str, Any]:
        """Wait until every ended episode is on disk, and return what a resumed run needs to go on collecting."""
        return self._collector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting where `state_dict` was called; {"run": name} only names the run."""
        self._collector.load_state_dict(state)
        self._keep_last_frames()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")  # read first: Gymnasium removes it from the dictionary
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        if not self.full:
            if seed is not None:
                self._collector.seed = int(seed) if isinstance(seed, (int, np.integer)) else None
            begun = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask, bool)
            self._begin(np.flatnonzero(begun[: self._watched]), obs, infos)
        else:
            self._drop_last_frames()
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        obs, reward, terminated, truncated, infos = check_vector_step(self.env.step(actions), self.env, self._steps)
        if not self.full:
            self._record(actions, obs, reward, terminated, truncated, infos)
        if self.full:
            self._drop_last_frames()
        return obs, reward, terminated, truncated, infos

    def close(self, **kwargs: Any) -> None:
        """Wait until every ended episode is on disk, then close the environment. Unfinished episodes are dropped."""
        try:
            self._collector.close()
        finally:
            super().close(**kwargs)

    def _record(self, actions: Any, obs: Any, reward: Any, terminated: Any, truncated: Any, infos: Any) -> None:
        check_autoreset(self._frames.autoreset, infos)
        reward = to_numpy(reward).astype(np.float32)
        ends = to_numpy(terminated).astype(bool) | to_numpy(truncated).astype(bool)
        arrival = {
            "action": as_action(executed_actions(to_numpy(actions), infos, ends)),
            "reward": reward,
            "env_reward": to_numpy(infos.get("env_reward", reward)).astype(np.float32),
            "terminated": to_numpy(terminated).astype(bool),
            "truncated": to_numpy(truncated).astype(bool),
        }
        arrival = {name: column[: self._watched] for name, column in arrival.items()} | self._labels(infos)
        if self._tells_interventions:
            arrival[INTERVENTION] = flags_of_step(infos, INTERVENTION, ends)[: self._watched]
        discarded = flags_of_step(infos, DISCARD, ends)[: self._watched] if DISCARD in infos else None
        running, done = self._collector.running(), arrival["terminated"] | arrival["truncated"]
        if discarded is not None and discarded.any():
            self._collector.drop(np.flatnonzero(discarded).tolist())
            running = running & ~discarded
        ended = np.flatnonzero(done & running)
        columns = {**self._vectors(obs), **arrival}
        if self._frames.autoreset == AutoresetMode.SAME_STEP and len(ended):
            for name, last in self._last_rows(infos, ended).items():
                columns[name] = columns[name].copy()
                columns[name][ended] = last
        self._add(np.flatnonzero(running), columns)
        number, drawn = self._collector.lengths() - 1, running & self._collector.wanted()
        for envs, pictures in self._frames.of_step(obs, infos, number, drawn, done):
            self._collector.add_frames(envs.tolist(), pictures)
        if len(ended):
            self._require_labels(infos)
        wanted = self._collector.wanted()
        self._collector.end(ended.tolist(), last_frames=self._frames.after_end)
        if (self._collector.wanted() != wanted).any():
            self._keep_last_frames()
        opening = {
            AutoresetMode.SAME_STEP: done,
            AutoresetMode.NEXT_STEP: ~running,  # the step after an end is the reset
            AutoresetMode.DISABLED: np.zeros_like(done),  # steps after an end belong to no episode
        }[self._frames.autoreset]
        if opening.any() and not self.full:
            self._begin(np.flatnonzero(opening), obs, infos)

    def _keep_last_frames(self) -> None:
        """Let the environment keep the last frames of environments whose episodes can still be kept."""
        self._frames.keep_last(np.flatnonzero(self._collector.wanted()))
        self._keeps_last = True

    def _drop_last_frames(self) -> None:
        """Let it keep none: nothing is collected any more."""
        if self._keeps_last:
            self._keeps_last = False
            self._frames.drop_last()
            if isinstance(self.env, EndOnSuccess):
                self.env.drop_frames()

    def _require_labels(self, infos: Any) -> None:
        """Raise or warn if the environment never reports success: all its episodes would be stored as failures."""
        if self._labelled or says_success(infos):
            self._labelled = True
            return
        text = f"{unreported(infos)}: every frame is labelled a failure"
        if self.counts["success"].target is not None:
            raise DataError(f"{text}, so that target_success is never reached")
        warnings.warn(text, stacklevel=4)
        self._labelled = True

    def _begin(self, envs: Array, obs: Any, infos: Any) -> None:
        action_space = self.env.action_space
        action = as_action(np.zeros(action_space.shape or (), action_space.dtype))
        rewards = dict.fromkeys(("reward", "env_reward"), np.zeros(self._watched, np.float32))
        ends = dict.fromkeys(("terminated", "truncated"), np.zeros(self._watched, bool))
        columns = {**self._vectors(obs), "action": action, **rewards, **ends, **self._labels(infos)}
        self._tells_interventions = INTERVENTION in infos
        if self._tells_interventions:
            columns[INTERVENTION] = np.zeros(self._watched, bool)
        self._collector.begin(envs.tolist(), {name: column[envs] for name, column in columns.items()})
        drawn = envs[self._collector.wanted()[envs]]
        self._collector.add_frames(drawn.tolist(), self._frames.of_resets(obs, drawn))

    def _add(self, envs: Array, columns: Columns) -> None:
        if len(envs) < self._watched:
            columns = {name: column[envs] for name, column in columns.items()}
        self._collector.add(envs.tolist(), columns)

    def _last_rows(self, infos: Any, ended: Array) -> Columns:
        """Return what is known of the true last frames of episodes after which the environment was reset."""
        final = final_info(infos)
        facts = self._labels(final)
        # Of a wrapper around each environment it is in final_info, of one around all of them beside it.
        if "env_reward" in final:
            facts["env_reward"] = to_numpy(final["env_reward"]).astype(np.float32)
        observed = _vectors(final_rows(infos["final_obs"], ended))
        return {**observed, **{name: column[ended] for name, column in facts.items()}}

    def _labels(self, infos: Any) -> Columns:
        labels = {
            "success": success_of(infos, self.num_envs, self._locate),
            "grasp": flags_of(infos, GRASP_KEYS, self.num_envs, self._locate),
        }
        return {name: flags[: self._watched] for name, flags in labels.items()}

    def _locate(self, env: int) -> str:
        return self._collector.locate(env)

    def _vectors(self, obs: Any) -> Columns:
        columns = {name: column[: self._watched] for name, column in _vectors(obs).items()}
        if not columns and not self._cameras:
            found = ", ".join(read_parts(obs))
            raise DataError(f"observations have {found}; expected 'state' (or 'observation'), as there are no cameras")
        return columns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._collector.__exit__(*error)
        finally:
            self.close()


def _frame_choice(frames: str) -> FrameChoice:
    try:
        return FrameChoice.parse(frames)
    except ValueError as error:
        raise ConfigError(f"frames: found {frames!r}, expected {error}") from None


def _vectors(obs: Any) -> Columns:
    return {f"observation.{name}": array for name, array in read_vectors(obs).items()}
