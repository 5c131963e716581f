"""What the policy sees of a vector environment of the user's; for copies of a single one see `observed_parts`."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.camera_frames import CameraFrames
from rewardlab.envs.observed_parts import ObservedPictures, has_goals_apart, no_proprioception, numeric_names
from rewardlab.errors import ConfigError
from rewardlab.nested import leaves
from rewardlab.observations import final_rows, take_row, to_numpy


class ObservedBatch(VectorWrapper[Any, Any, Any]):
    """Gives the observations of a vector environment that resets in the same step the form that `obs_mode` names."""

    @classmethod
    def around(
        cls, env: VectorEnv[Any, Any, Any], cfg: EnvConfig, pictures: ObservedPictures | None
    ) -> VectorEnv[Any, Any, Any]:
        """Wrap an environment, unless its observations have that form already."""
        if cfg.obs_mode == "proprio+images":
            raise ConfigError(no_proprioception(cfg.id))
        space = env.single_observation_space
        known = pictures is None and (isinstance(space, spaces.Box) or has_goals_apart(space))
        return env if known and cfg.obs_mode == "state" else cls(env, cfg, pictures)

    def __init__(self, env: VectorEnv[Any, Any, Any], cfg: EnvConfig, pictures: ObservedPictures | None) -> None:
        super().__init__(env)
        self._pictures = pictures
        self._numbers: spaces.Space[Any] | None = None
        self._frames: CameraFrames | None = None
        self._kept: list[Any] | None = None  # names of the parts that are numbers; None: all of them
        self._kept_apart = False  # goals, beside a state
        parts: dict[str, Any] = {}
        own = env.single_observation_space if pictures is None else pictures.numbers
        if cfg.obs_mode != "images" and own is not None:
            self._kept = numeric_names(own, cfg)
            self._numbers = own if self._kept is None else _only(own, self._kept)
            self._kept_apart = cfg.obs_mode == "state" and has_goals_apart(self._numbers)
            parts["state"] = self._numbers if self._kept_apart else spaces.flatten_space(self._numbers)
        if cfg.obs_mode != "state":
            if pictures is not None:
                pictures.check_mode(cfg)
            if not cfg.cameras:
                raise ConfigError(f"cameras: found none, but obs_mode is {cfg.obs_mode}; name a camera, or use state")
            self._frames = CameraFrames(env, cfg.cameras, cfg.frame_size, advice=". Use obs_mode=state, or name others")
            self._frames.check()
            self._frames.keep_last()
            picture = spaces.Box(0, 255, (*cfg.frame_size, 3), np.uint8)
            parts["images"] = spaces.Dict({camera: picture for camera in cfg.cameras})
        if not parts:
            assert pictures is not None
            parts = dict(pictures.space())
        single = parts["state"] if list(parts) == ["state"] else spaces.Dict(parts)
        self.single_observation_space, self.observation_space = single, batch_space(single, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._seen(obs, self._frames and self._frames.now(obs)), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            frames = self._frames and self._frames.final(infos, ended)
            last = self._seen(final_rows(infos["final_obs"], ended), frames)
            final_obs = np.full(self.num_envs, None, object)
            for place, row in enumerate(ended):
                final_obs[row] = take_row(last, place)
            infos = {**infos, "final_obs": final_obs}
        return self._seen(obs, self._frames and self._frames.now(obs)), reward, terminated, truncated, infos

    def _seen(self, obs: Any, frames: Any) -> Any:
        """Return what a policy sees of some of the environments."""
        if self._numbers is None:
            pictures = self._pictures
            return {"images": frames if pictures is None or frames else pictures.read_pictures(obs, batch_axes=1)}
        numbers = obs if self._pictures is None else self._pictures.read_numbers(obs, batch_axes=1)
        if self._kept is not None:
            numbers = _only(numbers, self._kept)
        state = numbers if self._kept_apart else _flattened(self._numbers, numbers)
        return state if frames is None else {"state": state, "images": frames}


def _only(parts: Any, names: list[Any]) -> Any:
    """Return some parts of an observation, or of its space."""
    if isinstance(parts, (tuple, spaces.Tuple)):
        kept = tuple(parts[name] for name in names)
        return spaces.Tuple(kept) if isinstance(parts, spaces.Tuple) else kept
    found = {name: parts[name] for name in names}
    return spaces.Dict(found) if isinstance(parts, spaces.Dict) else found


def _flattened(space: spaces.Space[Any], numbers: Any) -> Any:
    """Return a batch of observations as one row of numbers each, in Gymnasium's order."""
    if isinstance(space, spaces.Box):
        return to_numpy(numbers).reshape(len(numbers), -1)
    if isinstance(space, spaces.Dict) and all(isinstance(part, spaces.Box) for part in space.values()):
        parts = [to_numpy(numbers[name]) for name in space]
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    count = len(next(leaf for _, leaf in leaves({"all": numbers})) if not isinstance(numbers, tuple) else numbers[0])
    rows: list[Any] = [spaces.flatten(space, row) for row in iterate(batch_space(space, count), numbers)]
    return np.stack(rows)
