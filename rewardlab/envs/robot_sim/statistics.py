"""What the simulated robot notes of the commands that reach it: proof that a client keeps its limits."""

import threading
from typing import Any

import numpy as np

from rewardlab.envs.robot.poses import turn_between
from rewardlab.envs.robot.protocol import Floats


class Statistics:
    """Of the commands to /pose since the start, or since they were reset."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        with self._lock:
            self._commands = self._refused = 0
            self._low, self._high = np.full(3, np.inf), np.full(3, -np.inf)
            self._largest = dict.fromkeys(("step", "turn", "step_from_answer", "turn_from_answer"), 0.0)
            self._answered: Floats | None = None

    def answered(self, pose: Floats) -> None:
        """Note the pose that a client was told."""
        with self._lock:
            self._answered = pose

    def refused(self) -> None:
        with self._lock:
            self._refused += 1

    def commanded(self, pose: Floats, measured: Floats) -> None:
        """Note a command, and where the tool was at its arrival."""
        with self._lock:
            self._commands += 1
            self._low, self._high = np.minimum(self._low, pose[:3]), np.maximum(self._high, pose[:3])
            self._note("step", "turn", pose, measured)
            if self._answered is not None:
                self._note("step_from_answer", "turn_from_answer", pose, self._answered)

    def _note(self, step: str, turn: str, pose: Floats, start: Floats) -> None:
        largest = self._largest
        largest[step] = max(largest[step], float(np.linalg.norm(pose[:3] - start[:3])))
        largest[turn] = max(largest[turn], float(np.linalg.norm(turn_between(start[3:], pose[3:]))))

    def values(self) -> dict[str, Any]:
        """Return them as JSON: steps in metres, turns in radians.

        `largest_step` is from where the tool was when a command arrived; `largest_step_from_answer` from the pose that
        the client was told last, which is what a client can keep to.
        """
        with self._lock:
            none = not self._commands
            return {
                "commands": self._commands,
                "refused": self._refused,
                "low": None if none else self._low.tolist(),
                "high": None if none else self._high.tolist(),
                **{f"largest_{name}": value for name, value in self._largest.items()},
            }
