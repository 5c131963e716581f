"""What the policy sees of a single environment: its own observation, its numbers in one row, pictures."""

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FilterObservation, FlattenObservation

from rewardlab.config.schema import EnvConfig
from rewardlab.data.images import to_uint8_hwc
from rewardlab.envs.cameras import Frame, Size, check_cameras, draw_cameras, resized
from rewardlab.errors import ConfigError
from rewardlab.keys import DEFAULT_CAMERA
from rewardlab.observations import IMAGE_PART, VECTOR_PARTS, is_image, read_parts

Env = gymnasium.Env[Any, Any]


def observe_as_configured(env: Env, cfg: EnvConfig) -> Env:
    """Return the environment with the observation that `cfg.obs_mode` names.

    `state` is the environment's own: a state, goals beside it, or the pictures that some have instead; other spaces are
    flattened. `images` and `state+images` are drawn, or are those that it has instead of a state, at `cfg.image_size`.
    """
    if cfg.obs_mode == "proprio+images":
        raise ConfigError(no_proprioception(cfg.id))
    if is_picture(env.observation_space) and (cfg.obs_mode != "images" or _has_colors(env.observation_space)):
        env = PictureObservation(env, cfg)
    elif cfg.obs_mode != "images":
        env = _with_vectors(env, cfg, keep_parts=cfg.obs_mode == "state")
    env = OnlyCamera.name(env, cfg)
    return env if cfg.obs_mode == "state" else DrawnPictures(env, cfg)


def no_proprioception(env_id: str) -> str:
    """Return the message for an environment that does not tell the robot's own state apart."""
    return (
        f"obs_mode: '{env_id}' does not offer proprio+images (images and the robot's own state), which tabletop/... "
        "does; use state+images or images"
    )


def is_picture(space: spaces.Space[Any]) -> bool:
    """Return whether an observation is a picture and nothing else."""
    return isinstance(space, spaces.Box) and is_image(space.shape)


def _has_colors(space: spaces.Space[Any]) -> bool:
    shape = space.shape or ()
    return 3 in (shape[-1], shape[0])


class PictureObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Gives a picture that is the whole observation the name of a camera; that camera shows it at any size."""

    def __init__(self, env: Env, cfg: EnvConfig) -> None:
        super().__init__(env)
        shape = tuple(env.observation_space.shape or ())
        if not _has_colors(env.observation_space):
            raise ConfigError(
                f"observations of '{cfg.id}' are pictures of shape {list(shape)}; expected 3 colours, [height, width, "
                "3]. A wrapper can change them (env.train.wrappers), or obs_mode=images draws its render() instead"
            )
        if cfg.obs_mode == "state+images":
            raise ConfigError(
                f"obs_mode: the observation of '{cfg.id}' is a picture, with no state beside it; use images (at "
                "env.train.image_size) or state (the observation as it is)"
            )
        self.camera = cfg.cameras[0] if len(cfg.cameras) == 1 else DEFAULT_CAMERA
        self.camera_names = (self.camera,)
        self._latest: Frame = np.zeros(shape if shape[-1] == 3 else (*shape[1:], shape[0]), np.uint8)
        picture = spaces.Box(0, 255, self._latest.shape, np.uint8)
        self.observation_space = spaces.Dict({"images": spaces.Dict({self.camera: picture})})

    def observation(self, observation: Any) -> Any:
        self._latest = to_uint8_hwc(observation, self.camera)
        return {"images": {self.camera: self._latest}}

    def render_cameras(self, cameras: tuple[str, ...], image_size: Size = None) -> dict[str, Frame]:
        return {camera: resized(self._latest, image_size) for camera in cameras}


class OnlyCamera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives the picture of `render()` the name that a config has for the only camera."""

    def __init__(self, env: Env, name: str) -> None:
        super().__init__(env)
        self.camera_names = (name,)

    @classmethod
    def name(cls, env: Env, cfg: EnvConfig) -> Env:
        """Wrap an environment whose only camera is called otherwise in its config."""
        unnamed = not env.has_wrapper_attr("camera_names") and env.render_mode == "rgb_array"
        return cls(env, cfg.cameras[0]) if unnamed and len(cfg.cameras) == 1 else env


class DrawnPictures(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Adds pictures of the config's cameras to the observation, or puts them in its place (`obs_mode: images`)."""

    def __init__(self, env: Env, cfg: EnvConfig) -> None:
        super().__init__(env)
        if not cfg.cameras:
            raise ConfigError(f"cameras: found none, but obs_mode is {cfg.obs_mode}; name a camera, or use state")
        check_cameras(env, cfg.cameras, cfg.id)
        self.cameras, self.size = cfg.cameras, cfg.frame_size
        self.with_state = cfg.obs_mode == "state+images"
        picture = spaces.Box(0, 255, (*self.size, 3), np.uint8)
        parts: dict[str, spaces.Space[Any]] = {"state": env.observation_space} if self.with_state else {}
        parts["images"] = spaces.Dict({camera: picture for camera in cfg.cameras})
        self.observation_space = spaces.Dict(parts)

    def observation(self, observation: Any) -> Any:
        images = {"images": draw_cameras(self.env, self.cameras, self.size)}
        return {"state": observation, **images} if self.with_state else images


def _with_vectors(env: Env, cfg: EnvConfig, *, keep_parts: bool) -> Env:
    """Return an environment whose observation is one row of numbers, unless its parts are known and may be kept."""
    space = env.observation_space
    names = set(read_parts(space)) if isinstance(space, spaces.Dict) else set()
    known = names == {*VECTOR_PARTS} or any(name.startswith(IMAGE_PART) for name in names)
    if isinstance(space, spaces.Box) or (known and keep_parts):
        return env
    return FlattenObservation(_without_text(env, cfg))


def _without_text(env: Env, cfg: EnvConfig) -> Env:
    """Return an environment without the parts of its observation that are no numbers, such as text."""
    space = env.observation_space
    parts: Mapping[Any, spaces.Space[Any]] = {"observation": space}
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = dict(space.items() if isinstance(space, spaces.Dict) else enumerate(space))
    kept = [name for name, part in parts.items() if _is_numeric(part)]
    if len(kept) == len(parts):
        return env
    dropped = ", ".join(f"'{name}' ({type(part).__name__})" for name, part in parts.items() if name not in kept)
    if not kept:
        raise ConfigError(
            f"observations of '{cfg.id}' have no numbers: {dropped}. A wrapper can turn them into numbers "
            "(env.train.wrappers), and obs_mode=images uses its render() instead"
        )
    warnings.warn(f"'{cfg.id}': its observations are used without {dropped}, as that is no number", stacklevel=2)
    return FilterObservation(env, kept)


def _is_numeric(space: spaces.Space[Any]) -> bool:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return all(map(_is_numeric, space.values() if isinstance(space, spaces.Dict) else space))
    return isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete))
