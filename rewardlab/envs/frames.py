"""The frame that followed an action: what the cameras saw, and whether it shows a success.

Where an episode ends, vector environments differ (Gymnasium's AutoresetMode): one that resets in the same step returns
the first frame of the next episode and keeps the true last one in its infos. Whoever stores, labels or scores frames
asks here, so that the two are confused nowhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rewardlab.data.episodes import Array
from rewardlab.data.images import to_numpy, to_uint8_hwc
from rewardlab.errors import DataError
from rewardlab.keys import SUCCESS_KEYS

Frames: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]
Infos: TypeAlias = Mapping[str, Any]


class CameraFrames:
    """Pictures of a vector environment, uint8 [n, H, W, 3] by camera.

    A picture that an observation has at the wanted size is taken from there (`obs["images"]`, or the observation itself
    where that is an image). Others are drawn by the environment's `render_cameras`. Without that, what is in the
    observation is resized, and a single camera that is not there is the environment's `render()`.

    `image_size` is height and width; None means as they come. `advice` ends the error about a missing camera.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        cameras: Sequence[str],
        image_size: tuple[int, int] | None = None,
        *,
        advice: str = "",
    ) -> None:
        self.env = env
        self.cameras = tuple(cameras)
        self.image_size = image_size
        self.autoreset = autoreset_mode(env)
        self._advice = advice
        self._render_cameras = getattr(env.unwrapped, "render_cameras", None)
        # render() shows the present only: after a reset within the step, the last frame of an episode is gone.
        self._renders = (
            self._render_cameras is None
            and len(self.cameras) == 1
            and env.render_mode == "rgb_array"
            and self.autoreset != AutoresetMode.SAME_STEP
        )

    def check(self) -> None:
        """Raise if a camera is not to be had; needs no reset, draws nothing.

        An environment with `render_cameras` says in `camera_names` what that can draw; one that does not say is asked
        for a picture sooner or later, and answers for itself.
        """
        told = self._render_cameras is None or hasattr(self.env.unwrapped, "camera_names")
        for camera in self.cameras if told and not self._renders else ():
            if camera not in self._offered():
                raise self._missing(camera)

    def now(self, obs: Any, env_ids: Array | None = None) -> dict[str, Frames]:
        """Of the given environments (None: all), the frames that belong to the batch `obs` of all of them."""
        seen = self._seen(obs)
        if env_ids is None:
            return self._complete(seen)
        return self._complete({camera: pictures[env_ids] for camera, pictures in seen.items()}, env_ids=env_ids)

    def final(self, infos: Infos, env_ids: Array) -> dict[str, Frames]:
        """The true last frames of episodes that ended in this step, in an environment that resets in the same step."""
        if infos.get("final_obs") is None:
            raise DataError("the environment resets in the same step but gives no infos['final_obs']")
        seen = self._seen(final_rows(infos["final_obs"], env_ids))
        return self._complete(seen, env_ids=env_ids, final=True)

    def following(self, obs: Any, infos: Infos, ended: Bools) -> dict[str, Frames]:
        """The frame that followed each action: the one of `obs`, or the true last one where an episode `ended`."""
        check_autoreset(self.autoreset, infos)
        if self.autoreset != AutoresetMode.SAME_STEP or not ended.any():
            return self.now(obs)
        last = self.final(infos, np.flatnonzero(ended))
        if ended.all():
            return last
        others = self.now(obs, np.flatnonzero(~ended))
        return {camera: _merged(ended, last[camera], others[camera]) for camera in self.cameras}

    def _seen(self, obs: Any) -> dict[str, Array]:
        if self._is_the_camera(obs):
            return {self.cameras[0]: to_numpy(obs)}
        images = obs.get("images", obs) if isinstance(obs, Mapping) else {}
        return {camera: to_numpy(images[camera]) for camera in self.cameras if camera in images}

    def _is_the_camera(self, obs: Any) -> bool:
        """An observation without names can only be meant where there is one camera, and no better source for it."""
        return self._render_cameras is None and len(self.cameras) == 1 and is_image_batch(obs)

    def _complete(self, seen: dict[str, Array], **which: Any) -> dict[str, Frames]:
        if self._render_cameras is not None:
            seen = {camera: pictures for camera, pictures in seen.items() if self._fits(pictures)}
        absent = [camera for camera in self.cameras if camera not in seen]
        pictures = {**seen, **(self._draw(absent, **which) if absent else {})}
        frames = {}
        for camera in self.cameras:
            if camera not in pictures:
                raise self._missing(camera)
            frames[camera] = self._resized(to_uint8_hwc(pictures[camera], camera))
        return frames

    def _draw(self, cameras: Sequence[str], env_ids: Array | None = None, **which: Any) -> Mapping[str, Array]:
        if self._render_cameras is not None:
            drawn: Mapping[str, Array] = self._render_cameras(
                cameras, image_size=self.image_size, env_ids=env_ids, **which
            )
            return drawn
        if not self._renders:
            return {}
        frames = np.stack([to_numpy(frame) for frame in self.env.render() or ()])
        return {cameras[0]: frames if env_ids is None else frames[env_ids]}

    def _fits(self, pictures: Array) -> bool:
        if pictures.ndim != 4 or 3 not in (pictures.shape[-1], pictures.shape[1]):
            return False
        size = pictures.shape[1:3] if pictures.shape[-1] == 3 else pictures.shape[2:]
        return self.image_size is None or size == tuple(self.image_size)

    def _resized(self, frames: Frames) -> Frames:
        if self.image_size is None or frames.shape[1:3] == tuple(self.image_size):
            return frames
        height, width = self.image_size
        return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in frames])

    def _offered(self) -> list[str]:
        space = self.env.observation_space
        if self._is_the_camera(space):
            return list(self.cameras)
        return [*_pictures_of(space), *getattr(self.env.unwrapped, "camera_names", ())]

    def _missing(self, camera: str) -> DataError:
        found = ", ".join(dict.fromkeys(self._offered())) or "neither render_cameras nor pictures in its observations"
        if self.env.render_mode == "rgb_array" and self.autoreset == AutoresetMode.SAME_STEP:
            found += " (its render() cannot show the last frame of an episode, as it resets in the same step)"
        return DataError(f"no camera '{camera}': the environment has {found}{self._advice}")


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """What the environment says of itself; one that does not say resets at the next step, Gymnasium's own default."""
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if not isinstance(mode, AutoresetMode):
        raise DataError(f"metadata['autoreset_mode'] is {mode!r}; expected a gymnasium AutoresetMode")
    return mode


def check_autoreset(mode: AutoresetMode, infos: Infos) -> None:
    """Raise if what a step returned shows that the environment resets in the same step without saying so."""
    if mode != AutoresetMode.SAME_STEP and infos.get("final_obs") is not None:
        raise DataError(
            "infos has 'final_obs', so the environment resets in the same step, but its metadata do not say so: "
            "set metadata['autoreset_mode'] to AutoresetMode.SAME_STEP, or last frames would be lost"
        )


def success_of(infos: Infos, num_envs: int) -> Bools:
    """Whether the frame beside `infos` shows a success; False where the environment does not say."""
    return flags_of(infos, SUCCESS_KEYS, num_envs)


def says_success(infos: Infos) -> bool:
    """Whether the environment reports success at all."""
    places = (infos, infos.get("final_info") or {})
    return any(key in place for key in SUCCESS_KEYS for place in places)


def following_success(infos: Infos, ended: Bools) -> Bools:
    """Whether the frame that followed each action shows a success; see `CameraFrames.following`."""
    beside = success_of(infos, len(ended))
    if infos.get("final_obs") is None:
        return beside
    return np.where(ended, success_of(final_info(infos), len(ended)), beside)


def final_info(infos: Infos) -> Infos:
    """The facts of the true last frames; where an episode ended, the outer ones already describe the reset frame."""
    final = infos.get("final_info")
    if final is not None:
        return final
    if any(key in infos for key in SUCCESS_KEYS):
        raise DataError(
            "the environment resets in the same step and reports success, but gives no infos['final_info']: "
            "the last frame of an episode would get the label of the next one's first"
        )
    return {}


def flags_of(infos: Infos, keys: Sequence[str], num_envs: int) -> Bools:
    """A fact per environment under the first key that is there; False where Gymnasium's mask says it is not known."""
    for key in keys:
        if key in infos:
            values = to_numpy(infos[key])
            known = to_numpy(infos.get(f"_{key}", True)).astype(bool)
            return np.asarray(values.astype(bool) & known)
    return np.zeros(num_envs, dtype=bool)


def final_rows(final_obs: Any, env_ids: Array) -> Any:
    """The observations of some environments, from a batch or from Gymnasium's array of observations and Nones."""
    if isinstance(final_obs, Mapping):
        return {key: final_rows(value, env_ids) for key, value in final_obs.items()}
    rows = [final_obs[i] for i in env_ids]
    if isinstance(rows[0], Mapping):
        return {key: final_rows([row[key] for row in rows], np.arange(len(rows))) for key in rows[0]}
    return np.stack([to_numpy(row) for row in rows])


def is_image_batch(obs: Any) -> bool:
    """Of an observation or its space: pictures alone, one per environment."""
    return not isinstance(obs, (Mapping, spaces.Dict)) and len(getattr(obs, "shape", None) or ()) == 4


def _pictures_of(space: spaces.Space[Any]) -> list[str]:
    if not isinstance(space, spaces.Dict):
        return []
    images = space.spaces.get("images", space)
    return [name for name, part in images.items() if is_image_batch(part)] if isinstance(images, spaces.Dict) else []


def _merged(ended: Bools, last: Frames, others: Frames) -> Frames:
    frames = np.empty((len(ended), *others.shape[1:]), np.uint8)
    frames[ended], frames[~ended] = last, others
    return frames
