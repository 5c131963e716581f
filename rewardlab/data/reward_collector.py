"""The collector of the `.npy` workflow: writes what environment workers have as positive and negative trajectories."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rewardlab.data.collector import EpisodeCollector, OutcomeCount
from rewardlab.data.episodes import Array, Columns
from rewardlab.data.images import to_float_chw, to_uint8_hwc
from rewardlab.data.writer import EpisodeWriter
from rewardlab.errors import DataError
from rewardlab.keys import IMAGES
from rewardlab.observations import camera_images, final_rows, replace_rows, to_numpy


class RewardDataCollector:
    """Images and success labels per environment, saved when that environment is done.

    A trajectory is positive if any frame was a success (`success_frame >= 0.5`) or the environment says `success_once`
    at its end; `success_once` never labels a frame. Written in the background: `close`, `save_trajectory` and a call
    with `is_last_step` return when everything that ended is on disk.
    """

    def __init__(
        self,
        image_keys: Sequence[str] = ("base_camera",),
        positive_dir: str | Path = "./reward_data/positive",
        negative_dir: str | Path = "./reward_data/negative",
        max_positive_trajectories: int | None = None,
        max_negative_trajectories: int | None = None,
        num_envs: int | None = None,
    ) -> None:
        self.image_keys = tuple(image_keys)
        self._num_envs = num_envs  # None until the first output shows it
        directories = {"success_dir": positive_dir, "failure_dir": negative_dir}
        self._new_collector = partial(
            EpisodeCollector,
            EpisodeWriter(Path(positive_dir).parent, "npy", **directories, durable=False),
            target_success=max_positive_trajectories,
            target_failure=max_negative_trajectories,
        )
        self._collector = self._new_collector(num_envs or 1)
        self._success_once: Array = np.zeros(num_envs or 1, dtype=bool)

    @property
    def counts(self) -> dict[str, OutcomeCount]:
        return self._collector.counts

    @property
    def full(self) -> bool:
        return self._collector.full

    def add_env_output(
        self, env_output: Any, env_info: Mapping[str, Any] | None = None, is_last_step: bool | Array = False
    ) -> None:
        """Add one frame per environment and save the trajectories that end with it.

        `env_output`, a mapping or an object, has `obs` (in any form that `rewardlab.observations` reads),
        `success_frame`, `dones` and, from environments that reset themselves, `final_obs`: then `obs` of a done
        environment is the first frame of its next trajectory. `is_last_step` ends all trajectories, or those it marks.
        """
        frames = self._images(_get(env_output, "obs"))
        count = len(next(iter(frames.values())))
        collector = self._collector_for(count)
        if collector.full:
            return
        success = _flags(_get(env_output, "success_frame"), count, "success_frame")[:, -1]
        dones = np.asarray((_per_env(_get(env_output, "dones"), count) > 0).any(axis=1))
        ended = np.flatnonzero(dones | np.asarray(is_last_step, dtype=bool))
        once = _flags((env_info or {}).get("success_once"), count, "success_once")
        self._success_once = np.asarray(once.any(axis=1))
        final_obs = _get(env_output, "final_obs")
        # Only these have been reset; `is_last_step` ends the others where they stand.
        reset = np.flatnonzero(dones & (final_obs is not None))
        last = replace_rows(frames, reset, self._images(final_rows(final_obs, reset))) if len(reset) else frames
        running = collector.running()
        for put, envs in ((collector.begin, np.flatnonzero(~running)), (collector.add, np.flatnonzero(running))):
            put(envs.tolist(), {name: column[envs] for name, column in {**last, "success": success}.items()})
        collector.end(ended.tolist(), self._success_once)
        self._success_once[ended] = False
        if len(reset) and not collector.full:
            opening: Columns = {name: array[reset] for name, array in frames.items()}
            collector.begin(reset.tolist(), {**opening, "success": np.zeros(len(reset), dtype=bool)})
        if np.any(is_last_step):
            collector.flush()

    def save_trajectory(self, env_idx: int | None = None) -> None:
        """End the trajectory of one environment, or of all, at this frame; it is on disk when this returns."""
        running = self._collector.running()
        if env_idx is not None and not 0 <= env_idx < len(running):
            raise DataError(f"no environment {env_idx}; there are {len(running)}")
        self._collector.end(np.flatnonzero(running).tolist() if env_idx is None else [env_idx], self._success_once)
        self._collector.flush()

    def close(self) -> None:
        """Finish writing. Trajectories still running are dropped."""
        self._collector.close()

    def _collector_for(self, count: int) -> EpisodeCollector:
        if self._num_envs is None:
            self._num_envs, self._collector = count, self._new_collector(count)
        if self._num_envs != count:
            raise DataError(f"env_output has {count} environments; expected {self._num_envs}")
        return self._collector

    def _images(self, obs: Any) -> Columns:
        found = camera_images(obs, unnamed=self.image_keys[0] if len(self.image_keys) == 1 else None)
        columns: Columns = {}
        for key in self.image_keys:
            if key not in found:
                raise DataError(f"no images of camera '{key}' in obs; found: {', '.join(found) or 'none'}")
            columns[IMAGES + key] = to_uint8_hwc(found[key], key)
            if columns[IMAGES + key].ndim != 4:
                raise DataError(f"images of '{key}' have shape {list(found[key].shape)}; expected one per environment")
        return columns

    def _extract_image(self, image: Any, key_offset: int = 0) -> npt.NDArray[np.float32]:
        """Return the image of environment `key_offset` as `.npy` trajectories have it: float32 [C, H, W] in [0, 1]."""
        array = to_numpy(image)
        return to_float_chw(to_uint8_hwc(array[key_offset] if array.ndim == 4 else array, "image"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _get(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _flags(values: Any, count: int, name: str) -> Array:
    """Return booleans or finite numbers as bool [envs, chunk]: true from 0.5 on, as in stored episodes."""
    array = _per_env(values, count)
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        bad = array[0, 0] if array.dtype.kind not in "biuf" else array[~np.isfinite(array)][0]
        raise DataError(f"{name} has {str(bad)[:60]!r} (of {array.dtype}); expected true, false or finite numbers")
    return np.asarray(array >= 0.5)


def _per_env(values: Any, count: int) -> Array:
    """Return numbers as [envs, chunk]; None is all zero, one number holds for all."""
    array = np.zeros(count) if values is None else to_numpy(values)
    if array.ndim == 0:
        array = np.full(count, array)
    if len(array) != count or array.ndim > 2:
        raise DataError(f"env_output has {count} images but values of shape {list(array.shape)}")
    return array.reshape(count, -1)
