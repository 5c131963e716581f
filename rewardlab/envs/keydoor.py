"""A grid world that random exploration does not solve: fetch a key, carry it to the door, cross the second room."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rewardlab.errors import ConfigError

ID = "toy/KeyDoor"

State = NDArray[np.float32]
_MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))  # up, down, left, right


class KeyDoorEnv(gymnasium.Env[State, np.int64]):
    """Two square rooms side by side, a wall between them with one door in its middle.

    The agent begins in the upper left corner. The key lies in the lower left one and is taken by stepping on it; only
    then does the door let it pass. The reward is 1 at the goal, the lower right corner, where the episode ends, and 0
    before. Observations are the position, from -1 to 1, and whether the key is held.
    """

    metadata = {"render_modes": [], "fixed_start": True}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, room: int = 9) -> None:
        if type(room) is not int or room < 2:
            raise ConfigError(f"option 'room' of '{ID}': found {room!r}, expected a whole number of at least 2")
        self.room = room
        self.width = 2 * room + 1
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(len(_MOVES))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        super().reset(seed=seed)
        self._x, self._y, self._has_key = 0, 0, False
        return self._observe(), {"success": False}

    def step(self, action: np.int64) -> tuple[State, float, bool, bool, dict[str, Any]]:
        dx, dy = _MOVES[int(action)]
        x, y = min(max(self._x + dx, 0), self.width - 1), min(max(self._y + dy, 0), self.room - 1)
        if x != self.room or (y == self.room // 2 and self._has_key):  # not into the wall
            self._x, self._y = x, y
        self._has_key |= (self._x, self._y) == (0, self.room - 1)
        arrived = (self._x, self._y) == (self.width - 1, self.room - 1)
        return self._observe(), float(arrived), arrived, False, {"success": arrived}

    def _observe(self) -> State:
        place = (2 * self._x / (self.width - 1) - 1, 2 * self._y / (self.room - 1) - 1)
        return np.array([*place, float(self._has_key)], np.float32)


if ID not in gymnasium.registry:
    gymnasium.register(id=ID, entry_point="rewardlab.envs.keydoor:KeyDoorEnv", max_episode_steps=150)
