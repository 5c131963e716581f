"""The pictures that the cameras of a vector environment take, also of the true last frames of episodes.

Where an episode ends, vector environments differ (Gymnasium's AutoresetMode): one that resets in the same step returns
the first observation of the next episode and keeps the true last one in its infos. All code that stores or scores
frames uses this module, so that the two are never confused; for their labels there is `step_results.py`.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from rewardlab.data.images import to_uint8_hwc
from rewardlab.envs.cameras import DRAWN, RENDER
from rewardlab.envs.step_results import Bools, Infos, autoreset_mode, check_autoreset
from rewardlab.errors import DataError
from rewardlab.frame_sizes import FrameSize, resize_frames
from rewardlab.observations import Array, camera_images, final_rows, is_image, read_parts, to_numpy

Frames: TypeAlias = npt.NDArray[np.uint8]

# In infos, from wrappers that end episodes: frames [N, H, W, 3] by camera, true in the rows of the final observations.
FINAL_FRAMES = "final_frames"
_NUMBERS = count()  # of the CameraFrames in this process


class CameraFrames:
    """Gives the pictures of a vector environment, uint8 [n, H, W, 3] by camera.

    A picture that an observation has at the wanted size is taken from there. Others are drawn by the environment's
    `render_cameras`. Without that, what is in the observation is resized. The camera `render`, or a single camera that
    is not there, is the environment's `render()`.

    `image_size` is height and width, to which pictures of any size are resized; or, by camera, the size at which
    frames for a reward model were recorded; None keeps the size as it is. `advice` ends the error about a missing
    camera. Who asks for last frames says so first, by `keep_last`.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        cameras: Sequence[str],
        image_size: tuple[int, int] | Mapping[str, FrameSize] | None = None,
        *,
        advice: str = "",
    ) -> None:
        self.env = env
        self.cameras = tuple(cameras)
        if isinstance(image_size, Mapping):
            self._sizes: dict[str, FrameSize] = dict(image_size)
        else:
            self._sizes = {} if image_size is None else dict.fromkeys(cameras, FrameSize(*image_size, resize="allow"))
        self.autoreset = autoreset_mode(env)
        self._advice = advice
        self._owner = f"frames {next(_NUMBERS)}"
        self._render_cameras = getattr(env.unwrapped, "render_cameras", None)
        # An observation that is a picture can only be meant if there is one camera, and no better source for it.
        self._only = self.cameras[0] if len(self.cameras) == 1 and not self._is_drawable(self.cameras[0]) else None
        # render() shows the present only: after a reset within the step, the last frame of an episode is gone.
        renders = env.render_mode == DRAWN and self.autoreset != AutoresetMode.SAME_STEP
        named = RENDER if RENDER in self.cameras and not self._is_drawable(RENDER) else self._only
        self._rendered = named if renders else None

    def check(self) -> None:
        """Raise if the environment lacks a camera; needs no reset and draws nothing.

        An environment with `render_cameras` says in `camera_names` what that can draw; one that does not say is asked
        for a picture later, and raises its own error.
        """
        told = self._render_cameras is None or hasattr(self.env.unwrapped, "camera_names")
        for camera in self.cameras if told else ():
            if camera != self._rendered and camera not in self._offered():
                raise self._missing(camera)

    def now(self, obs: Any, env_ids: Array | None = None) -> dict[str, Frames]:
        """Return the frames that belong to the batch `obs` of all environments; only of `env_ids`, if given."""
        observed = self._observed(obs)
        if env_ids is not None:
            observed = {camera: pictures[env_ids] for camera, pictures in observed.items()}
        return self._complete(observed, env_ids=env_ids)

    def final(self, infos: Infos, env_ids: Array) -> dict[str, Frames]:
        """Return the last frames of episodes that ended in this step, if the environment resets in the same step."""
        if infos.get("final_obs") is None:
            raise DataError("the environment resets in the same step but gives no infos['final_obs']")
        observed = self._observed(final_rows(infos["final_obs"], env_ids))
        for camera, frames in infos.get(FINAL_FRAMES, {}).items():
            if camera in self.cameras and self._fits(camera, frames.shape):
                observed[camera] = frames[env_ids]
        return self._complete(observed, env_ids=env_ids, final=True)

    def drawn_cameras(self) -> tuple[str, ...]:
        """Return the cameras whose pictures are not in the observations at the wanted size, so that they are drawn."""
        parts = camera_images(self.env.observation_space, unnamed=self._only)
        taken = {c for c, part in parts.items() if not self._is_drawable(c) or self._fits(c, part.shape or ())}
        return tuple(camera for camera in self.cameras if camera not in taken)

    def keep_last(self, env_ids: Array | None = None) -> None:
        """Tell the environment that last frames will be asked for (`final`, `following`), perhaps of `env_ids` only.

        An environment that cannot be drawn after its reset draws them before it, and without this none at all.
        """
        self._keep_last_frames(self.by_size(self.drawn_cameras()), env_ids)

    def drop_last(self) -> None:
        """Tell the environment that no last frames will be asked for any more."""
        self._keep_last_frames({})

    def _keep_last_frames(self, wanted: Mapping[tuple[int, int] | None, Sequence[str]], *env_ids: Array | None) -> None:
        keep = getattr(self.env.unwrapped, "keep_last_frames", None)
        if keep is not None and self.autoreset == AutoresetMode.SAME_STEP:
            keep(self._owner, wanted, *env_ids)

    def keep_last_states(self, count: int) -> bool:
        """Let the environment keep the last states of episodes, for `last_states`; return whether it can do that."""
        keep = getattr(self.env.unwrapped, "keep_last_states", None)
        return keep is not None and bool(keep(count))

    def last_states(self, env_ids: Sequence[int]) -> list[dict[str, Frames]]:
        """Draw the last states of the episodes that ended in these environments, [n, H, W, 3] by camera for each."""
        inner: Any = self.env.unwrapped
        found: list[dict[str, Frames]] = [{} for _ in env_ids]
        for size, cameras in self.by_size(self.cameras).items():
            drawn = inner.render_last_states(cameras, image_size=size, env_ids=env_ids)
            for pictures, more in zip(found, drawn, strict=True):
                pictures.update(self._as_wanted({camera: to_numpy(frames) for camera, frames in more.items()}))
        return found

    def following(self, obs: Any, infos: Infos, ended: Bools) -> dict[str, Frames]:
        """Return the frame that followed each action: that of `obs`, or the true last one where an episode `ended`."""
        check_autoreset(self.autoreset, infos)
        if self.autoreset != AutoresetMode.SAME_STEP or not ended.any():
            return self.now(obs)
        frames = self.final(infos, np.flatnonzero(ended))
        if ended.all():
            return frames
        for camera, others in self.now(obs, np.flatnonzero(~ended)).items():
            merged = np.empty((len(ended), *others.shape[1:]), np.uint8)
            merged[ended], merged[~ended] = frames[camera], others
            frames[camera] = merged
        return frames

    def _observed(self, obs: Any) -> dict[str, Array]:
        pictures = camera_images(obs, unnamed=self._only)
        return {camera: to_numpy(pictures[camera]) for camera in self.cameras if camera in pictures}

    def _complete(self, pictures: dict[str, Array], **which: Any) -> dict[str, Frames]:
        kept = (c for c, found in pictures.items() if not self._is_drawable(c) or self._fits(c, found.shape))
        pictures = {camera: pictures[camera] for camera in kept}
        absent = [camera for camera in self.cameras if camera not in pictures]
        if absent:
            pictures |= self._draw(absent, **which)
        for camera in absent:
            if camera not in pictures:
                raise self._missing(camera)
        return self._as_wanted({camera: pictures[camera] for camera in self.cameras})

    def _as_wanted(self, pictures: Mapping[str, Array]) -> dict[str, Frames]:
        frames = {camera: to_uint8_hwc(found, camera) for camera, found in pictures.items()}
        return {c: resize_frames(frames[c], self._sizes[c], c) if c in self._sizes else frames[c] for c in frames}

    def _draw(self, cameras: Sequence[str], env_ids: Array | None = None, **which: Any) -> dict[str, Array]:
        if self._render_cameras is not None:
            drawn: dict[str, Array] = {}
            for size, names in self.by_size(cameras).items():
                drawn |= self._render_cameras(names, image_size=size, env_ids=env_ids, **which)
            return drawn
        if self._rendered is None or self._rendered not in cameras:
            return {}
        frames = np.stack([to_numpy(frame) for frame in self.env.render() or ()])
        return {self._rendered: frames if env_ids is None else frames[env_ids]}

    def by_size(self, cameras: Sequence[str]) -> dict[tuple[int, int] | None, list[str]]:
        """Return these cameras by the height and width of their frames; None is the size that they have."""
        grouped: dict[tuple[int, int] | None, list[str]] = {}
        for camera in cameras:
            grouped.setdefault(self._sizes[camera].pixels if camera in self._sizes else None, []).append(camera)
        return grouped

    def _is_drawable(self, camera: str) -> bool:
        """Return whether the environment can draw a camera, unless it says which ones and this is not among them."""
        return self._render_cameras is not None and camera in getattr(self.env.unwrapped, "camera_names", (camera,))

    def _fits(self, camera: str, shape: tuple[int, ...]) -> bool:
        if len(shape) != 4 or 3 not in (shape[-1], shape[1]):
            return False
        size = shape[1:3] if shape[-1] == 3 else shape[2:]
        return camera not in self._sizes or size == self._sizes[camera].pixels

    def _offered(self) -> list[str]:
        parts = camera_images(self.env.observation_space, unnamed=self._only)
        pictures = [camera for camera, space in parts.items() if is_image((space.shape or ())[1:])]
        return [*pictures, *getattr(self.env.unwrapped, "camera_names", ())]

    def _missing(self, camera: str) -> DataError:
        env, offered = self.env, list(dict.fromkeys(self._offered()))
        if offered:
            return DataError(f"no camera '{camera}': the environment has {', '.join(offered)}{self._advice}")
        return DataError(f"no camera '{camera}': {describe_pictures(env)}{self._advice}")


def describe_pictures(env: VectorEnv[Any, Any, Any]) -> str:
    """Return in words why an environment has no pictures, and what its observations have instead."""
    if env.render_mode == DRAWN:
        why = "its render() cannot show the last frame of an episode, as it resets in the same step"
    else:
        why = f"its render_mode is {env.render_mode}, where render_mode='{DRAWN}' would give its render()"
    parts = _describe(env.observation_space)
    return f"the environment has neither render_cameras nor pictures in its observations ({parts}), and {why}"


def _describe(space: Any) -> str:
    """Return the parts of a batch of observations with the shape of each."""
    parts = read_parts(space) if hasattr(space, "shape") else {}
    return ", ".join(f"{name} {list((part.shape or ())[1:])}" for name, part in parts.items()) or str(space)
