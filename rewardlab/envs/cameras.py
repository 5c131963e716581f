"""Draws a single environment as its cameras see it."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import cv2
import gymnasium
import numpy as np
import numpy.typing as npt

from rewardlab.envs.opengl import close_at_exit, is_of_opengl, unusable_backend
from rewardlab.errors import ConfigError, DataError
from rewardlab.keys import DEFAULT_CAMERA
from rewardlab.observations import to_numpy
from rewardlab.registry import unknown_name

Frame: TypeAlias = npt.NDArray[np.uint8]  # [H, W, 3]
DRAWN = "rgb_array"  # the render_mode of environments that return pictures
RENDER = "render"  # the camera that is the picture of an environment's render(), beside those in its observations
Size: TypeAlias = tuple[int, int] | None  # height and width; None: the environment's own


def camera_names(env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
    """Return the cameras that an environment or a wrapper of it says it has; a mere `render()` is the default one."""
    if env.has_wrapper_attr("camera_names"):
        return tuple(env.get_wrapper_attr("camera_names"))
    return (DEFAULT_CAMERA,) if env.render_mode == DRAWN else ()


def check_cameras(env: gymnasium.Env[Any, Any], cameras: Sequence[str], name: str) -> None:
    """Raise if the environment lacks one of these cameras; draws nothing. `name` is its id."""
    offered = camera_names(env)
    if not offered:
        raise ConfigError(
            f"cameras: '{name}' cannot be drawn: it offers no render_mode='rgb_array' and no render_cameras; found "
            f"{', '.join(cameras)}. Use obs_mode=state"
        )
    if len(cameras) > 1 and not env.has_wrapper_attr("render_cameras"):
        raise ConfigError(f"cameras: '{name}' has one picture, its render(); found {len(cameras)} cameras")
    for camera in cameras:
        if camera not in offered:
            raise ConfigError(unknown_name(f"camera of '{name}'", camera, offered))


def drawing_layer(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return the outermost wrapper that draws cameras itself, else the environment inside of all wrappers."""
    while isinstance(env, gymnasium.Wrapper) and not hasattr(env, "render_cameras"):
        env = env.env
    return env


def draw_cameras(env: gymnasium.Env[Any, Any], cameras: Sequence[str], size: Size = None) -> dict[str, Frame]:
    """Return the present picture of each camera.

    An environment, or a wrapper of it, with `render_cameras(cameras, image_size)` draws them itself, at that size. Of
    another, `render()` is the picture of its only camera, resized.
    """
    if env.has_wrapper_attr("render_cameras"):
        return dict(env.get_wrapper_attr("render_cameras")(tuple(cameras), size))
    if len(cameras) != 1 or env.render_mode != DRAWN:
        raise DataError(
            f"cameras {', '.join(cameras)}: the environment has no render_cameras, and its render() (render_mode "
            f"{env.render_mode}) is one picture with render_mode='rgb_array'"
        )
    return {cameras[0]: resized(_rendered(env), size)}


def resized(frame: Frame, size: Size) -> Frame:
    """Return a picture at another height and width; None keeps it as it is."""
    if size is None or frame.shape[:2] == size:
        return frame
    return np.asarray(cv2.resize(frame, (size[1], size[0]), interpolation=cv2.INTER_AREA), np.uint8)


def _rendered(env: gymnasium.Env[Any, Any]) -> Frame:
    try:
        frame = to_numpy(env.render())
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigError(f"{env}: drawing it needs a package that is not installed: {error}") from error
    except Exception as error:
        if not (is_of_opengl(error) or type(error).__module__.partition(".")[0] == "mujoco"):
            raise
        raise unusable_backend(str(env) if env.spec is None else env.spec.id, error) from error
    if (renderer := getattr(env.unwrapped, "mujoco_renderer", None)) is not None:
        close_at_exit(renderer)
    if frame.ndim == 4 and len(frame) == 1:  # simulators that step batches
        frame = frame[0]
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise ConfigError(f"render() of '{env}' gave {frame.dtype} {frame.shape}, expected uint8 [H, W, 3]")
    return frame
