"""A vector environment of the user's, with any autoreset mode, as all commands want one."""

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, TypeAlias

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.data.episodes import Array
from rewardlab.envs.camera_frames import CameraFrames, Frames
from rewardlab.envs.cameras import DRAWN, Size
from rewardlab.envs.checked import check_vector_step, errors_of_environment, read_reset
from rewardlab.envs.observed_batch import ObservedBatch
from rewardlab.envs.observed_parts import ObservedPictures
from rewardlab.envs.seed_check import same_observations
from rewardlab.envs.single import unreported_success
from rewardlab.envs.step_results import (
    Bools,
    Infos,
    autoreset_mode,
    check_autoreset,
    final_info,
    following_success,
    merge_infos,
    says_success,
)
from rewardlab.errors import ConfigError, DataError
from rewardlab.observations import final_rows, take_row, to_numpy

Wanted: TypeAlias = Mapping[Size, Sequence[str]]  # cameras by the size of their frames
Step: TypeAlias = tuple[Any, Array, Bools, Bools, dict[str, Any]]


def finish_vector_env(env: VectorEnv[Any, Any, Any], cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment of the user's as its config wants it: its resets, rules, cameras and observation."""
    for key, found, usual in (("processes", cfg.processes, None), ("action_repeat", cfg.action_repeat, 1)):
        if found != usual:
            raise ConfigError(
                f"env.train.{key}: found {found}, but '{cfg.id}' is a vector environment of yours, which does that "
                "itself; or let it be a single environment, of which copies are made"
            )
    if env.num_envs != cfg.num_envs:
        raise ConfigError(f"environment '{cfg.id}' has {env.num_envs} environments; expected num_envs, {cfg.num_envs}")
    parameters = signature(env.reset).parameters.values()
    if not any(one.name == "options" or one.kind == one.VAR_KEYWORD for one in parameters):
        raise ConfigError(f"environment '{cfg.id}': its reset() takes no options; expected reset(*, seed, options)")
    renders = env.render_mode if autoreset_mode(env) != AutoresetMode.SAME_STEP else None
    pictures = ObservedPictures.of(env.single_observation_space, cfg, renders)
    return ObservedBatch.around(SameStepEnv(env, cfg, _camera_names(env, pictures, cfg, renders)), cfg, pictures)


def _camera_names(
    env: VectorEnv[Any, Any, Any], pictures: ObservedPictures | None, cfg: EnvConfig, render_mode: str | None
) -> tuple[str, ...]:
    observed = () if pictures is None else tuple(pictures.pictures)
    if hasattr(env.unwrapped, "camera_names"):
        return tuple(dict.fromkeys([*observed, *env.unwrapped.camera_names]))
    if pictures is not None:
        return (*observed, *filter(None, [pictures.rendered]))
    return cfg.cameras[:1] if render_mode == DRAWN else ()


class SameStepEnv(VectorEnv[Any, Any, Any]):
    """Resets each environment in the step that ends its episode, whatever the autoreset mode of the one inside.

    One that does not do so itself, and any where a rule of the config ends an episode, is reset by
    `reset(options={"reset_mask": ...})`, as Gymnasium's own vector environments can be. Last frames are drawn before.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], cfg: EnvConfig, cameras: tuple[str, ...]) -> None:
        self.env, self._cfg, self.camera_names = env, cfg, cameras
        self._mode = autoreset_mode(env)
        self.num_envs = env.num_envs
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.spec = env.spec or EnvSpec(cfg.id)
        self.render_mode = env.render_mode
        self.single_observation_space, self.observation_space = env.single_observation_space, env.observation_space
        self.single_action_space, self.action_space = env.single_action_space, env.action_space
        for name in {"call", "scripted_action"} & set(dir(env.unwrapped)):
            setattr(self, name, getattr(env.unwrapped, name))
        self._frames: dict[tuple[Size, tuple[str, ...]], CameraFrames] = {}
        self._wanted: dict[str, Wanted] = {}
        self._last_frames: dict[tuple[Size, str], Frames] = {}
        self._latest: Any = None
        self._steps = 0
        self._length, self._streak = np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs, np.int64)
        self._says_success = self._keeps_others = False

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        rows = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask, bool)
        self._length[rows] = self._streak[rows] = 0
        with errors_of_environment(self._cfg.id, "reset"):
            result = self.env.reset(seed=seed, options=options)
        self._latest, infos = read_reset(result, self._cfg.id, self.observation_space)
        return self._latest, dict(infos)

    def step(self, actions: Any) -> Step:
        self._steps += 1
        with errors_of_environment(self._cfg.id, f"step {self._steps}"):
            result = self.env.step(actions)
        obs, reward, *ends, infos = check_vector_step(result, self, self._steps)
        check_autoreset(self._mode, infos)
        self._latest = obs
        terminated, truncated = (to_numpy(end).astype(bool) for end in ends)
        ended_inside = terminated | truncated
        reward, terminated, truncated = self._apply_rules(to_numpy(reward), terminated, truncated, infos)
        ended = terminated | truncated
        if not ended.any():
            return obs, reward, terminated, truncated, dict(infos)
        was_reset = ended_inside & (self._mode == AutoresetMode.SAME_STEP)
        infos = self._end_episodes(infos, ended, was_reset)
        return self._latest, reward, terminated, truncated, infos

    def render_cameras(
        self, cameras: Sequence[str], image_size: Size = None, env_ids: Array | None = None, final: bool = False
    ) -> dict[str, Frames]:
        """Return frames uint8 [n, H, W, 3] by camera, of all environments or of `env_ids`."""
        if not final:
            return self._camera_frames(image_size, cameras).now(self._latest, env_ids)
        if missing := [camera for camera in cameras if (image_size, camera) not in self._last_frames]:
            raise DataError(f"the last frame of camera {missing[0]} was not drawn: call keep_last_frames first")
        rows = slice(None) if env_ids is None else env_ids
        return {camera: self._last_frames[image_size, camera][rows] for camera in cameras}

    def keep_last_frames(self, owner: str, wanted: Wanted, env_ids: Array | None = None) -> None:
        """From now on, keep the last frames of these cameras at these sizes for `owner`; an empty one wants none."""
        self._wanted[owner] = wanted

    def close_extras(self, **kwargs: Any) -> None:
        self.env.close(**kwargs)

    def _apply_rules(
        self, reward: Array, terminated: Bools, truncated: Bools, infos: Infos
    ) -> tuple[Array, Bools, Bools]:
        """Apply `max_episode_steps`, `success_hold_steps` and `reward: sparse`, as `single.finish` does to copies."""
        cfg, ended_inside = self._cfg, terminated | truncated
        self._length += 1
        if cfg.max_episode_steps is not None:
            truncated = truncated | ((self._length >= cfg.max_episode_steps) & ~terminated)
        if cfg.reward == "sparse" or cfg.success_hold_steps is not None:
            success = following_success(infos, ended_inside, self._locate)
            self._streak = np.where(success, self._streak + 1, 0)
            if cfg.success_hold_steps is not None:
                held = self._streak >= cfg.success_hold_steps
                terminated, truncated = terminated | held, truncated & ~held
            self._says_success |= says_success(infos)
            if (terminated | truncated).any() and not self._says_success:
                raise unreported_success(cfg)
            reward = success.astype(np.float32) if cfg.reward == "sparse" else reward
        ended = terminated | truncated
        self._length[ended] = self._streak[ended] = 0
        return reward, terminated, truncated

    def _end_episodes(self, infos: Infos, ended: Bools, was_reset: Bools) -> dict[str, Any]:
        """Reset what has not reset itself; return infos with the true last observations, and the facts about them."""
        to_reset = ended & ~was_reset
        now = {key: value for key, value in infos.items() if not key.lstrip("_").startswith("final_")}
        last: Any = dict(now)
        if was_reset.any():
            if infos.get("final_obs") is None:
                raise DataError(f"'{self._cfg.id}' resets in the same step but gives no infos['final_obs']")
            last = merge_infos(now, final_info(infos), was_reset)
        self._draw_last_frames(infos, was_reset, to_reset)
        final_obs = np.full(self.num_envs, None, object)
        for rows, source in ((was_reset, infos.get("final_obs")), (to_reset, self._latest)):
            if rows.any():
                found = final_rows(source, np.flatnonzero(rows))
                for place, row in enumerate(np.flatnonzero(rows)):
                    final_obs[row] = take_row(found, place)
        if to_reset.any():
            now = merge_infos(now, self._reset_rows(to_reset), to_reset)
        return {**now, "final_obs": final_obs, "_final_obs": ended, "final_info": last, "_final_info": ended}

    def _reset_rows(self, rows: Bools) -> Infos:
        """Reset these environments; the first time, check that the others go on."""
        others = np.flatnonzero(~rows)
        checked = self._keeps_others or not len(others)
        before = None if checked else final_rows(self._latest, others)
        _, infos = self.reset(options={"reset_mask": rows.copy()})
        if not checked and not same_observations(before, final_rows(self._latest, others)):
            raise DataError(
                f"'{self._cfg.id}': reset(options={{'reset_mask': ...}}) changed the observations of environments that "
                "the mask leaves out; expected it to reset the others alone. Or reset in the step that ends an episode "
                "(AutoresetMode.SAME_STEP), or let it be a single environment, of which copies are made"
            )
        self._keeps_others |= not checked
        return infos

    def _draw_last_frames(self, infos: Infos, was_reset: Bools, to_reset: Bools) -> None:
        self._last_frames = {}
        for size, cameras in {(size, tuple(c)) for one in self._wanted.values() for size, c in one.items()}:
            frames = self._camera_frames(size, cameras)
            for rows in (was_reset, to_reset):
                if not rows.any() or not cameras:
                    continue
                ids = np.flatnonzero(rows)
                drawn = frames.final(infos, ids) if rows is was_reset else frames.now(self._latest, ids)
                for camera, pictures in drawn.items():
                    shape = (self.num_envs, *pictures.shape[1:])
                    self._last_frames.setdefault((size, camera), np.zeros(shape, np.uint8))[ids] = pictures

    def _camera_frames(self, size: Size, cameras: Sequence[str]) -> CameraFrames:
        key = size, tuple(cameras)
        if key not in self._frames:
            self._frames[key] = frames = CameraFrames(self.env, cameras, size)
            frames.check()
            frames.keep_last()
        return self._frames[key]

    def _locate(self, row: int) -> str:
        return f"'{self._cfg.id}', environment {row}, step {self._length[row]} of its episode"
