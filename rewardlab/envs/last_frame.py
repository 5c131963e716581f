"""Pictures of the last frame of an episode, for environments that are reset before anyone can look at it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from rewardlab.envs.cameras import Frame, draw_cameras

LAST_FRAMES = "last_frames"  # in the info of the step that ends an episode: pictures by size and camera
ImageSize: TypeAlias = tuple[int, int] | None  # height and width; None: the environment's own


class LastFrameWrapper(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Draws the last frame of each episode before a vector environment of Stable-Baselines3 resets the environment.

    It goes around everything that may end an episode, such as a time limit. `keep_frames` says which cameras to draw;
    `RewardModelVecEnvWrapper` calls it. An environment without `render_cameras` is drawn by its `render()`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._kept: dict[ImageSize, tuple[str, ...]] = {}

    def keep_frames(self, cameras: Mapping[ImageSize, Sequence[str]]) -> None:
        """From now on, draw these cameras at these sizes at the end of each episode."""
        self._kept = {size: tuple(names) for size, names in cameras.items()}

    def render_cameras(self, cameras: Sequence[str], image_size: ImageSize = None) -> dict[str, Frame]:
        """Return the present picture of each camera; `render()` has one of any size."""
        return draw_cameras(self.env, cameras, image_size)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._kept and (terminated or truncated):
            frames = {size: self.render_cameras(cameras, size) for size, cameras in self._kept.items()}
            info = {**info, LAST_FRAMES: frames}
        return obs, reward, terminated, truncated, info
