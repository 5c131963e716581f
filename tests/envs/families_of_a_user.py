"""A module as a user writes it: a family of environments and wrappers, found by module:name."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorRewardWrapper

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.make import FAMILIES
from rewardlab.envs.make_copies import make_copies
from rewardlab.envs.single import finish


class Line(gymnasium.Env[Any, Any]):
    """Walk right to the end of a line."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 3) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += int(action)
        return np.full(1, self.place, np.float32), 1.0, False, False, {"success": self.place >= self.length}


def make_one(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    return finish(Line(**cfg.options), cfg)


@FAMILIES.register("line")
def make_line(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    return make_copies(cfg, make_one)


class Doubled(VectorRewardWrapper):
    def __init__(self, env: VectorEnv[Any, Any, Any], times: float = 2) -> None:
        super().__init__(env)
        self.times = times

    def rewards(self, rewards: Any) -> Any:
        return self.times * rewards
