"""Wrappers around vector environments."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import cv2
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from rewardlab.data.collector import EpisodeCollector, OutcomeCount
from rewardlab.data.episodes import Array, Columns
from rewardlab.data.images import to_numpy, to_uint8_hwc
from rewardlab.data.writer import EpisodeWriter
from rewardlab.errors import DataError
from rewardlab.keys import DEFAULT_CAMERA, GRASP_KEYS, IMAGES, STATE, SUCCESS_KEYS


class DataCollectorWrapper(VectorWrapper[Any, Any, Any]):
    """Writes every episode that ends, labelled frame by frame, until both targets are reached (document 003).

    Images come from the environment's `render_cameras` if it has one, else from its observations (`obs["images"]`, or
    the observation itself where that is an image); with `cameras=()` only states are kept. What the wrapped environment
    returns passes through unchanged. `close` waits until everything is written; `durable` (for robots, where an episode
    costs minutes) also makes each file safe from a power cut.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        save_dir: str | Path,
        *,
        target_success: int | None = None,
        target_failure: int | None = None,
        max_episodes: int | None = None,
        format: str = "safetensors",
        success_dir: str | Path | None = None,
        failure_dir: str | Path | None = None,
        durable: bool = False,
        cameras: Sequence[str] = (DEFAULT_CAMERA,),
        image_size: tuple[int, int] | None = None,
        policy: str = "unknown",
        task: str | None = None,
    ) -> None:
        super().__init__(env)
        self.cameras = tuple(cameras)
        self.image_size = image_size
        # An environment that does not say resets at the next step: Gymnasium's own default.
        self._autoreset = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if not isinstance(self._autoreset, AutoresetMode):
            raise DataError(f"metadata['autoreset_mode'] is {self._autoreset!r}; expected a gymnasium AutoresetMode")
        self._labelled = False
        self._render = getattr(env.unwrapped, "render_cameras", None)
        spec = env.spec
        self._collector = EpisodeCollector(
            EpisodeWriter(save_dir, format, success_dir=success_dir, failure_dir=failure_dir, durable=durable),
            env.num_envs,
            target_success=target_success,
            target_failure=target_failure,
            max_episodes=max_episodes,
            task=task or (spec.id if spec is not None else type(env.unwrapped).__name__),
            policy=policy,
        )

    @property
    def counts(self) -> dict[str, OutcomeCount]:
        """Episodes on disk before, kept and seen, under "success" and "failure"; no longer counted once full."""
        return self._collector.counts

    @property
    def full(self) -> bool:
        """Both targets are reached; from here on the environment runs at its own speed."""
        return self._collector.full

    @property
    def policy(self) -> str:
        """Who acts; may be changed, and holds for episodes that begin afterwards."""
        return self._collector.policy

    @policy.setter
    def policy(self, name: str) -> None:
        self._collector.policy = name

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")  # read first: Gymnasium removes it from the dictionary
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        if not self.full:
            if seed is not None:
                self._collector.seed = int(seed) if isinstance(seed, (int, np.integer)) else None
            self._begin(np.arange(self.num_envs) if mask is None else np.flatnonzero(mask), self._observe(obs), infos)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        if not self.full:
            self._record(actions, obs, reward, terminated, truncated, infos)
        return obs, reward, terminated, truncated, infos

    def close(self, **kwargs: Any) -> None:
        """Wait until every ended episode is on disk, then close the environment. Unfinished episodes are dropped."""
        try:
            self._collector.close()
        finally:
            super().close(**kwargs)

    def flush(self) -> None:
        """Wait until every ended episode is on disk."""
        self._collector.flush()

    def _record(self, actions: Any, obs: Any, reward: Any, terminated: Any, truncated: Any, infos: Any) -> None:
        reward = to_numpy(reward).astype(np.float32)
        arrival: Columns = {
            "action": _as_action(to_numpy(actions)),
            "reward": reward,
            "env_reward": to_numpy(infos.get("env_reward", reward)).astype(np.float32),
            "terminated": to_numpy(terminated).astype(bool),
            "truncated": to_numpy(truncated).astype(bool),
        }
        running = self._collector.running()
        done = arrival["terminated"] | arrival["truncated"]
        ended = np.flatnonzero(done & running)
        observed = self._observe(obs)
        if self._autoreset != AutoresetMode.SAME_STEP and infos.get("final_obs") is not None:
            raise DataError(
                "infos has 'final_obs', so the environment resets in the same step, but its metadata do not say so: "
                "set metadata['autoreset_mode'] to AutoresetMode.SAME_STEP, or last frames would be lost"
            )
        nowhere = np.zeros_like(done)
        # Where `obs` is not the last frame of an episode that ended, and where it is the first of a new one.
        replaced, opening = {
            AutoresetMode.SAME_STEP: (done, done),
            AutoresetMode.NEXT_STEP: (nowhere, ~running),  # the step after an end is the reset
            AutoresetMode.DISABLED: (nowhere, nowhere),  # whoever steps on after an end is not in an episode
        }[self._autoreset]
        self._add(np.flatnonzero(running & ~replaced), {**observed, **arrival, **_labels(infos, self.num_envs)})
        if self._autoreset == AutoresetMode.SAME_STEP and len(ended):
            final = {name: column[ended] for name, column in {**arrival, **self._final_labels(infos, reward)}.items()}
            self._collector.add(ended.tolist(), {**self._observe_final(infos, ended), **final})
        if len(ended):
            self._require_labels(infos)
        self._collector.end(ended.tolist())
        if opening.any() and not self.full:
            self._begin(np.flatnonzero(opening), observed, infos)

    def _require_labels(self, infos: Any) -> None:
        """An environment that never says "success" would fill the disk with failures, and never reach a target."""
        if self._labelled or any(
            key in place for key in SUCCESS_KEYS for place in (infos, infos.get("final_info", {}))
        ):
            self._labelled = True
            return
        text = f"the environment's infos have none of {', '.join(SUCCESS_KEYS)}: every frame is labelled a failure"
        if self.counts["success"].target is not None:
            raise DataError(f"{text}, so that target_success is never reached")
        warnings.warn(text, stacklevel=4)
        self._labelled = True

    def _begin(self, envs: Array, observed: Columns, infos: Any) -> None:
        action_space = self.env.action_space
        nothing: Columns = {
            "action": _as_action(np.zeros(action_space.shape or (), action_space.dtype)),
            "reward": np.zeros(self.num_envs, np.float32),
            "env_reward": np.zeros(self.num_envs, np.float32),
            "terminated": np.zeros(self.num_envs, bool),
            "truncated": np.zeros(self.num_envs, bool),
        }
        columns = {**observed, **nothing, **_labels(infos, self.num_envs)}
        self._collector.begin(envs.tolist(), {name: column[envs] for name, column in columns.items()})

    def _add(self, envs: Array, columns: Columns) -> None:
        if len(envs) < self.num_envs:  # indexing copies every frame; not needed while all are running
            columns = {name: column[envs] for name, column in columns.items()}
        self._collector.add(envs.tolist(), columns)

    def _final_labels(self, infos: Any, reward: Array) -> Columns:
        """The facts of the true last frame; the outer ones already describe the reset frame."""
        final = infos.get("final_info")
        if final is None:
            if any(key in infos for key in SUCCESS_KEYS):
                raise DataError(
                    "the environment resets in the same step and reports success, but gives no infos['final_info']: "
                    "the last frame of an episode would get the label of the next one's first"
                )
            final = {}
        labels = _labels(final, self.num_envs)
        return {**labels, "env_reward": to_numpy(final.get("env_reward", reward)).astype(np.float32)}

    def _observe(self, obs: Any, **which: Any) -> Columns:
        columns = self._state(obs)
        if self._render is None or not self.cameras:
            return {**columns, **self._images_in(obs)}
        frames = self._render(self.cameras, image_size=self.image_size, **which)
        return {**columns, **{IMAGES + camera: frames[camera] for camera in self.cameras}}

    def _observe_final(self, infos: Any, envs: Array) -> Columns:
        if infos.get("final_obs") is None:
            raise DataError("the environment resets in the same step but gives no infos['final_obs']")
        return self._observe(_rows(infos["final_obs"], envs), env_ids=envs, final=True)

    def _state(self, obs: Any) -> Columns:
        state = obs.get("state") if isinstance(obs, Mapping) else obs
        if state is None and not self.cameras:
            raise DataError(f"observations have {', '.join(map(str, obs))}; expected 'state', as there are no cameras")
        if state is None or _is_image(state):
            return {}
        array = to_numpy(state)
        return {STATE: array.reshape(len(array), -1).astype(np.float32)}

    def _images_in(self, obs: Any) -> Columns:
        columns: Columns = {}
        images = obs.get("images", obs) if isinstance(obs, Mapping) else {}
        if _is_image(obs) and len(self.cameras) == 1:
            images = {self.cameras[0]: obs}
        for camera in self.cameras:
            if camera not in images:
                found = ", ".join(map(str, images)) or "no images"
                raise DataError(
                    f"no camera '{camera}': the environment has no render_cameras, and its observations have {found}. "
                    "Name its cameras, or keep states only: cameras=(), or env.train.cameras=[] in a config"
                )
            columns[IMAGES + camera] = self._resized(to_uint8_hwc(images[camera], camera))
        return columns

    def _resized(self, frames: Array) -> Array:
        if self.image_size is None or frames.shape[1:3] == tuple(self.image_size):
            return frames
        height, width = self.image_size
        return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in frames])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._collector.__exit__(kind, error, traceback)
        finally:
            self.close()


def _is_image(obs: Any) -> bool:
    return not isinstance(obs, Mapping) and getattr(obs, "ndim", 0) == 4


def _as_action(actions: Array) -> Array:
    return actions.astype(np.int64 if actions.dtype.kind in "biu" else np.float32)


def _labels(infos: Any, num_envs: int) -> Columns:
    return {"success": _flags(infos, SUCCESS_KEYS, num_envs), "grasp": _flags(infos, GRASP_KEYS, num_envs)}


def _flags(infos: Mapping[str, Any], keys: Sequence[str], num_envs: int) -> Array:
    """A fact per environment under the first key that is there; False where Gymnasium's mask says it is not known."""
    for key in keys:
        if key in infos:
            values = to_numpy(infos[key])
            known = to_numpy(infos.get(f"_{key}", True)).astype(bool)
            return np.asarray(values.astype(bool) & known)
    return np.zeros(num_envs, dtype=bool)


def _rows(batch: Any, envs: Array) -> Any:
    """The observations of some environments, from a batch or from Gymnasium's array of observations and Nones."""
    if isinstance(batch, Mapping):
        return {key: _rows(value, envs) for key, value in batch.items()}
    rows = [batch[i] for i in envs]
    if isinstance(rows[0], Mapping):
        return {key: _rows([row[key] for row in rows], np.arange(len(rows))) for key in rows[0]}
    return np.stack([to_numpy(row) for row in rows])
