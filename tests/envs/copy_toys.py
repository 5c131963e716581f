"""A single environment that draws itself and, told by an action, fails in all the ways in which a process can."""

import ctypes
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

WALK, RAISE, EXIT, DIE, CRASH, HANG, WARN, RETURN_A_LAMBDA = range(8)  # actions


class WalkEnv(gymnasium.Env[Any, Any]):
    """A random walk of 2 to 6 steps from a random place; the brightness of its picture counts the steps."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, kind: str = "dict", keeps_state: bool = False, dies_in: str = "") -> None:
        self.kind = kind
        state = spaces.Box(-100, 100, (3,), np.float32)
        parts = spaces.Dict({"state": state, "pair": spaces.Tuple([spaces.Discrete(9), spaces.MultiBinary(2)])})
        self.observation_space = {"dict": parts, "text": spaces.Text(9)}.get(kind, state)
        self.action_space = spaces.Discrete(8)
        self.camera_names = ("front", "top")
        self.drawn = 0
        if keeps_state:
            self.keep_state = lambda: self.steps
            self.draw_state = self._draw_state
        if dies_in == "constructor":
            print("no licence for this simulator", file=sys.stderr)
            os._exit(3)

    def _draw_state(self, steps: int, cameras: Any, size: Any) -> Any:
        self.drawn += len(cameras)
        value = {"front": steps, "top": 100 + steps}
        return {camera: np.full((*(size or (4, 6)), 3), value[camera], np.uint8) for camera in cameras}

    def render_cameras(self, cameras: Any, image_size: Any) -> Any:
        return self._draw_state(self.steps, cameras, image_size)

    def _observe(self) -> Any:
        if self.kind == "text":
            return f"{self.steps}"
        if self.kind == "box":
            return self.place
        return {"state": self.place, "pair": (self.steps, np.array([1, self.steps % 2], np.int8))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.length = 0, int(self.np_random.integers(2, 7))
        self.place = self.np_random.normal(size=3).astype(np.float32)
        return self._observe(), {"success": False, "options": str(options)}

    def step(self, action: Any) -> Any:
        self.steps += 1
        misbehave(int(action))
        self.place = self.place + self.np_random.normal(size=3).astype(np.float32)
        ended = self.steps == self.length
        info = {"success": bool(self.place[0] > 0), "place": self.place.copy(), "words": f"step {self.steps}"}
        if action == RETURN_A_LAMBDA:
            info["words"] = lambda: None  # type: ignore[assignment]
        return self._observe(), float(self.place.sum()), ended and self.length > 3, ended and self.length <= 3, info

    def scripted_action(self, scale: int = 1) -> int:
        return self.steps * scale


class ServerEnv(WalkEnv):
    """Starts a program that it never ends, as a simulator may, steps slowly, and leaves a file when it is closed."""

    def __init__(self, directory: str) -> None:
        super().__init__("box")
        self.directory = Path(directory)
        self.server = subprocess.Popen(["sleep", "1000"])

    def server_pid(self) -> int:
        return self.server.pid

    def step(self, action: Any) -> Any:
        (self.directory / f"stepping {self.server.pid}").touch()
        time.sleep(0.3)
        return super().step(action)

    def close(self) -> None:
        (self.directory / f"closed {self.server.pid}").touch()


class MisbehavedError(Exception):
    """An error of the user's own."""


def misbehave(action: int) -> None:
    if action == RAISE:
        raise MisbehavedError("no such leg")
    if action == EXIT:
        sys.exit("the simulator's licence has expired")
    if action == DIE:
        print("the motor is on fire", file=sys.stderr)
        os._exit(7)
    if action == CRASH:
        ctypes.string_at(0)
    if action == HANG:
        time.sleep(1000)
    if action == WARN:
        warnings.warn("the left leg limps", RuntimeWarning, stacklevel=2)


gymnasium.register("copy-toys/Walk-v0", "copy_toys:WalkEnv")
gymnasium.register("copy-toys/Lambda-v0", lambda **options: WalkEnv(**options), max_episode_steps=5)
