"""Draws a single environment as its cameras see it."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import cv2
import gymnasium
import numpy as np
import numpy.typing as npt

from rewardlab.errors import ConfigError, DataError
from rewardlab.keys import DEFAULT_CAMERA
from rewardlab.observations import to_numpy

Frame: TypeAlias = npt.NDArray[np.uint8]  # [H, W, 3]
Size: TypeAlias = tuple[int, int] | None  # height and width; None: the environment's own


def camera_names(env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
    """Return the cameras that an environment has; the picture of its `render()` is that of any one camera."""
    names = getattr(env.unwrapped, "camera_names", None)
    return tuple(names) if names is not None else (DEFAULT_CAMERA,) if env.render_mode == "rgb_array" else ()


def draw_cameras(env: gymnasium.Env[Any, Any], cameras: Sequence[str], size: Size = None) -> dict[str, Frame]:
    """Return the present picture of each camera.

    An environment with `render_cameras(cameras, image_size)` draws them itself, at that size. Of another, `render()` is
    the picture of its only camera, resized.
    """
    inner: Any = env.unwrapped
    if hasattr(inner, "render_cameras"):
        return dict(inner.render_cameras(tuple(cameras), size))
    if len(cameras) != 1 or env.render_mode != "rgb_array":
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
    if frame.ndim == 4 and len(frame) == 1:  # simulators that step batches
        frame = frame[0]
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise ConfigError(f"render() of '{env}' gave {frame.dtype} {frame.shape}, expected uint8 [H, W, 3]")
    return frame
