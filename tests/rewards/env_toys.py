"""A lamp whose brightness is known by hand, and a classifier that reads it off the picture."""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rewardlab.rewards import ResNetRewardModel
from rewardlab.rewards.zoo.transitions import read_images

SIZE = 8
AFTER_RESET = 90  # brighter than any other frame: who scores it as the last one of an episode gives a success
EPISODES = ((10, 20, 60), (10, 30))  # brightness after each step, by environment; env_reward counts the steps


class LampEnv(gymnasium.Env[Any, Any]):
    """`kind` says where its picture is: in the observation ("image", "images"), or drawn ("cameras", "render")."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, index: int = 0, kind: str = "image", truncates: bool = False) -> None:
        self.episode, self.kind, self.truncates = EPISODES[index], kind, truncates
        picture = spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        state = spaces.Box(0, 1, (1,), np.float32)
        self.observation_space = {
            "image": picture,
            "images": spaces.Dict({"state": state, "images": spaces.Dict({"base_camera": picture})}),
        }.get(kind, state)
        self.action_space = spaces.Discrete(2)
        self.render_mode = "rgb_array" if kind == "render" else None
        if kind == "cameras":
            self.camera_names = ("base_camera", "top_camera")
            self.render_cameras = self._render_cameras
        self.drawn = 0

    def _picture(self) -> np.ndarray[Any, Any]:
        return np.full((SIZE, SIZE, 3), self.brightness, np.uint8)

    def _render_cameras(self, cameras: Any, image_size: Any = None) -> Any:
        self.drawn += 1
        return {camera: self._picture() for camera in cameras}

    def render(self) -> Any:
        self.drawn += 1
        return self._picture().repeat(2, axis=0).repeat(2, axis=1)  # larger than the model's

    def _observe(self) -> Any:
        state = np.array([self.brightness / 100], np.float32)
        if self.kind == "images":
            return {"state": state, "images": {"base_camera": self._picture()}}
        return self._picture() if self.kind == "image" else state

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.brightness = 0, AFTER_RESET
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.brightness = self.episode[self.steps]
        self.steps += 1
        end = self.steps == len(self.episode)
        return self._observe(), float(self.steps), end and not self.truncates, end and self.truncates, {}


class LampReader(ResNetRewardModel):
    """The probability is the brightness in hundredths; remembers every brightness it was shown."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(arch="resnet10", image_size=(3, SIZE, SIZE), hidden_dim=4, width=8, **settings)
        self.shown: list[int] = []

    def probabilities(self, observation: Any) -> Tensor:
        pixels = torch.as_tensor(read_images(observation)[self.image_keys[0]])[:, 0, 0, 0]  # type: ignore[call-overload, index]
        self.shown += pixels.tolist()
        return pixels.float() / 100
