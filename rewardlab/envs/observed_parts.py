"""What the policy sees of a single environment: its own observation, its numbers in one row, pictures."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FilterObservation, FlattenObservation

from rewardlab.config.schema import EnvConfig
from rewardlab.data.images import to_uint8_hwc
from rewardlab.envs.cameras import (
    DRAWN,
    RENDER,
    Frame,
    Size,
    camera_names,
    check_cameras,
    draw_cameras,
    resized,
)
from rewardlab.errors import ConfigError
from rewardlab.keys import DEFAULT_CAMERA
from rewardlab.observations import IMAGE_PART, VECTOR_PARTS, is_image, is_picture, read_parts

Env = gymnasium.Env[Any, Any]

LARGEST_PART = 1_000  # numbers in an array of several axes, above which a warning says that they are used one by one


def observe_as_configured(env: Env, cfg: EnvConfig) -> Env:
    """Return the environment with the observation that `cfg.obs_mode` names.

    `state` is what it has in numbers: a state, goals beside it, other spaces flattened; or the pictures that some have
    instead. `images` and `state+images` are drawn, or are the observation's own pictures, at `cfg.image_size`.
    """
    if cfg.obs_mode == "proprio+images":
        raise ConfigError(no_proprioception(cfg.id))
    pictures = ObservedPictures.of(env.observation_space, cfg, env.render_mode)
    if pictures is not None:
        pictures.check_mode(cfg)
        env = PicturesApart(env, pictures, cfg)
    if cfg.obs_mode != "images" and not is_only_pictures(env.observation_space):
        env = _with_vectors(env, cfg, keep_parts=cfg.obs_mode == "state")
    env = OnlyCamera.name(env, cfg)
    return env if cfg.obs_mode == "state" else DrawnPictures(env, cfg)


def no_proprioception(env_id: str) -> str:
    """Return the message for an environment that does not tell the robot's own state apart."""
    return (
        f"obs_mode: '{env_id}' does not offer proprio+images (images and the robot's own state), which tabletop/... "
        "does; use state+images or images"
    )


@dataclass(frozen=True)
class ObservedPictures:
    """The pictures in the observations of an environment, by camera, and the numbers beside them.

    It reads single observations and batches.
    """

    pictures: Mapping[str, tuple[int, int, int]]  # height, width and 3
    numbers: spaces.Dict | None  # None: there are only pictures
    unnamed: str  # the camera of a picture that has no name
    rendered: str | None  # the camera that is the environment's render(); None: it cannot be drawn

    @classmethod
    def of(cls, space: spaces.Space[Any], cfg: EnvConfig, render_mode: str | None) -> "ObservedPictures | None":
        """Return the pictures of a single observation's space; None if it has none."""
        if not isinstance(space, (spaces.Box, spaces.Dict)):
            return None
        named = cfg.cameras[0] if len(cfg.cameras) == 1 else None
        draws = render_mode == DRAWN
        unnamed = DEFAULT_CAMERA if named is None or (named == RENDER and draws) else named
        parts = read_parts(space, batch_axes=0, camera=unnamed)
        _check_colors(space, cfg)
        boxes = {name: part for name, part in parts.items() if isinstance(part, spaces.Box) and is_picture(name, part)}
        if isinstance(space, spaces.Box) and is_image(space.shape) and _has_colors(space):
            boxes = parts  # whatever its size
        if not boxes:
            return None
        shapes = {name.removeprefix(IMAGE_PART): _colors_last(box.shape) for name, box in boxes.items()}
        numbers = {name: part for name, part in parts.items() if name not in boxes}
        rendered = (named if named is not None and named not in shapes else RENDER) if draws else None
        return cls(shapes, spaces.Dict(numbers) if numbers else None, unnamed, rendered)

    def check_mode(self, cfg: EnvConfig) -> None:
        """Raise if a policy is to see a state beside the pictures, and there is none."""
        if cfg.obs_mode == "state+images" and self.numbers is None:
            raise ConfigError(
                f"obs_mode: the observation of '{cfg.id}' is a picture, with no state beside it; use images (at "
                "env.train.image_size) or state (the observation as it is)"
            )

    def read_numbers(self, observation: Any, *, batch_axes: int = 0) -> dict[str, Any]:
        """Return what is beside the pictures, by name."""
        parts = read_parts(observation, batch_axes=batch_axes, camera=self.unnamed)
        return {name: parts[name] for name in self.numbers or ()}

    def read_pictures(
        self, observation: Any, cameras: Iterable[str] | None = None, *, batch_axes: int = 0
    ) -> dict[str, Frame]:
        """Return pictures uint8 [..., H, W, 3] by camera."""
        parts = read_parts(observation, batch_axes=batch_axes, camera=self.unnamed)
        names = {camera: IMAGE_PART + camera for camera in (self.pictures if cameras is None else cameras)}
        return {c: to_uint8_hwc(parts[name if name in parts else c], c) for c, name in names.items()}

    def space(self) -> spaces.Dict:
        """Return the space of observations that are these pictures."""
        boxes = {camera: spaces.Box(0, 255, shape, np.uint8) for camera, shape in self.pictures.items()}
        return spaces.Dict({"images": spaces.Dict(boxes)})  # type: ignore[arg-type]


def is_only_pictures(space: spaces.Space[Any]) -> bool:
    """Return whether an observation has pictures, as `ObservedPictures.space` has them, and nothing else."""
    return isinstance(space, spaces.Dict) and list(space) == ["images"]


def _check_colors(space: spaces.Space[Any], cfg: EnvConfig) -> None:
    shape = space.shape or ()
    if is_image(shape) and not _has_colors(space) and cfg.obs_mode != "images":
        raise ConfigError(
            f"observations of '{cfg.id}' are pictures of shape {list(shape)}; expected 3 colours, [height, width, 3]. "
            "A wrapper can change them (env.train.wrappers), or obs_mode=images draws its render() instead"
        )


def _has_colors(space: spaces.Space[Any]) -> bool:
    shape = space.shape or ()
    return 3 in (shape[-1], shape[0])


def _colors_last(shape: tuple[int, ...]) -> tuple[int, int, int]:
    height, width, _ = shape if shape[-1] == 3 else (*shape[1:], 3)
    return height, width, 3


class PicturesApart(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Takes the pictures out of an observation, for the cameras to show. One without numbers stays pictures."""

    def __init__(self, env: Env, pictures: ObservedPictures, cfg: EnvConfig) -> None:
        super().__init__(env)
        self._pictures = pictures
        self._latest: Any = None
        inner = camera_names(env) if env.has_wrapper_attr("camera_names") else filter(None, [pictures.rendered])
        self.camera_names = tuple(dict.fromkeys([*pictures.pictures, *inner]))
        self.observation_space = pictures.space() if pictures.numbers is None else pictures.numbers

    def observation(self, observation: Any) -> Any:
        self._latest = observation
        if self._pictures.numbers is None:
            return {"images": self._pictures.read_pictures(observation)}
        return self._pictures.read_numbers(observation)

    def render_cameras(self, cameras: tuple[str, ...], image_size: Size = None) -> dict[str, Frame]:
        seen = [camera for camera in cameras if camera in self._pictures.pictures]
        frames = {c: resized(f, image_size) for c, f in self._pictures.read_pictures(self._latest, seen).items()}
        others = [camera for camera in cameras if camera not in seen]
        return frames | (draw_cameras(self.env, others, image_size) if others else {})


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
    """Return an environment whose observation is one row of numbers, with goals beside it if they may be kept."""
    space = env.observation_space
    if isinstance(space, spaces.Box) or (keep_parts and has_goals_apart(space)):
        return env
    kept = numeric_names(space, cfg)
    return FlattenObservation(env if kept is None else FilterObservation(env, kept))


def has_goals_apart(space: spaces.Space[Any]) -> bool:
    """Return whether an observation is a state with an achieved and a desired goal, and nothing else."""
    return isinstance(space, spaces.Dict) and set(read_parts(space, batch_axes=0)) == {*VECTOR_PARTS}


def numeric_names(space: spaces.Space[Any], cfg: EnvConfig) -> list[Any] | None:
    """Return the names of the parts that are numbers, and warn of others, such as text; None if all of them are."""
    parts: Mapping[Any, spaces.Space[Any]] = {"observation": space}
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = dict(space.items() if isinstance(space, spaces.Dict) else enumerate(space))
    kept = {name: part for name, part in parts.items() if _is_numeric(part)}
    _warn_about_large_parts(kept, cfg)
    if len(kept) == len(parts):
        return None
    dropped = ", ".join(f"'{name}' ({type(part).__name__})" for name, part in parts.items() if name not in kept)
    if not kept:
        raise ConfigError(
            f"observations of '{cfg.id}' have no numbers: {dropped}. A wrapper can turn them into numbers "
            "(env.train.wrappers), and obs_mode=images uses its render() instead"
        )
    warnings.warn(f"'{cfg.id}': its observations are used without {dropped}, as that is no number", stacklevel=2)
    return list(kept)


def _warn_about_large_parts(parts: Mapping[Any, spaces.Space[Any]], cfg: EnvConfig) -> None:
    for name, part in parts.items():
        count = int(np.prod(part.shape or ()))
        if len(part.shape or ()) > 1 and count > LARGEST_PART:
            warnings.warn(
                f"'{cfg.id}': '{name}' of its observations, of shape {list(part.shape or ())} and {part.dtype}, is no "
                f"picture in 3 colours and becomes {count:,} numbers of the state. A wrapper can leave it out "
                "(env.train.wrappers)",
                stacklevel=2,
            )


def _is_numeric(space: spaces.Space[Any]) -> bool:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return all(map(_is_numeric, space.values() if isinstance(space, spaces.Dict) else space))
    return isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete))
