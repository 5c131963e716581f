"""A short random walk whose process dies once: that of the first copy that gets to a certain step."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Mortal(gymnasium.Env[Any, Any]):
    """Dies in the `dies_at`-th step of a copy if `marker` does not exist, and makes it; "" never dies."""

    observation_space = spaces.Box(-100, 100, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, marker: str = "", dies_at: int = 15) -> None:
        self.marker, self.dies_at, self.life = marker, dies_at, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.place = 0, self.np_random.normal(size=2).astype(np.float32)
        return self.place, {"success": False}

    def step(self, action: Any) -> Any:
        self.steps, self.life = self.steps + 1, self.life + 1
        if self.marker and self.life == self.dies_at:
            with suppress(FileExistsError):
                Path(self.marker).touch(exist_ok=False)
                os._exit(9)
        self.place = self.place + self.np_random.normal(size=2).astype(np.float32) + action[0]
        ended = self.steps == 6 or self.place[0] > 2
        return self.place, float(self.place[0]), ended, False, {"success": bool(self.place[0] > 2), "step": self.steps}


gymnasium.register("Mortal-v0", "mortal_env:Mortal")
