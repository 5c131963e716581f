"""The pictures of collected episodes: which frames are drawn, and when."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rewardlab.data.episodes import Array, Columns
from rewardlab.envs.camera_frames import CameraFrames, Frames
from rewardlab.envs.step_results import Bools, Infos
from rewardlab.frame_choice import FrameChoice
from rewardlab.keys import IMAGES


class CollectedFrames:
    """Takes the pictures that `choice` asks for, and draws no others if it can avoid it.

    With `every:n` it is known in each step which frames are due. With `last:n` it is not, so environments that can draw
    a state later keep the last n states and draw those when an episode has ended (`after_end`). Of other environments
    every frame is drawn, and the collector keeps the last n. Pictures in observations are never drawn again.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        cameras: Sequence[str],
        image_size: tuple[int, int] | None,
        choice: FrameChoice,
        *,
        advice: str = "",
    ) -> None:
        self._every = choice.every
        self._num_envs = env.num_envs
        self._running = CameraFrames(env, cameras, image_size, advice=advice)
        self._running.check()
        self._ended: CameraFrames | None = None
        self.autoreset = self._running.autoreset
        drawn = self._running.drawn_cameras() if choice.last is not None else ()
        if choice.last is not None and drawn:
            if self._running.keep_last_states(choice.last):
                self._running = CameraFrames(env, [c for c in cameras if c not in drawn], image_size, advice=advice)
                self._ended = CameraFrames(env, drawn, image_size, advice=advice)
                self._ended.check()
            else:
                name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
                warnings.warn(
                    f"frames=last:{choice.last} saves no time: '{name}' draws every frame, since it cannot draw a kept "
                    "state (keep_state and draw_state); only the last ones are stored",
                    stacklevel=3,
                )

    def of_resets(self, obs: Any, envs: Array) -> Columns:
        """Return the pictures of the first frames of new episodes in these environments."""
        return self._now(obs, envs)

    def of_step(
        self, obs: Any, infos: Infos, number: Array, wanted: Bools, ended: Bools
    ) -> Iterator[tuple[Array, Columns]]:
        """Yield pictures of the frames that a step led to, and their environments.

        `number` is that of the frame in its episode; `wanted` are the environments whose step is collected.
        """
        due = wanted & ((number % self._every == 0) | ended)
        if self.autoreset == AutoresetMode.SAME_STEP:
            last = np.flatnonzero(due & ended)
            if len(last) and self._running.cameras:
                yield last, _columns(self._running.final(infos, last))
            due &= ~ended
        envs = np.flatnonzero(due)
        yield envs, self._now(obs, envs)

    def after_end(self, envs: Sequence[int]) -> list[Columns]:
        """Return pictures of the last frames of the episodes that ended in this step, if they were not taken before."""
        if self._ended is None:
            return [{} for _ in envs]
        return [_columns(pictures) for pictures in self._ended.last_states(envs)]

    def keep_last(self, envs: Array) -> None:
        """Tell the environment that the last frames of episodes in these environments will be asked for."""
        self._running.keep_last(None if len(envs) == self._num_envs else envs)

    def drop_last(self) -> None:
        """Tell the environment that no pictures will be asked for any more."""
        self._running.drop_last()
        if self._ended is not None:
            self._ended.keep_last_states(0)

    def _now(self, obs: Any, envs: Array) -> Columns:
        if not len(envs) or not self._running.cameras:
            return {}
        return _columns(self._running.now(obs, None if len(envs) == self._num_envs else envs))


def _columns(pictures: Mapping[str, Frames]) -> Columns:
    return {IMAGES + camera: frames for camera, frames in pictures.items()}
