"""Policies that need no learning: an expert per task, and one that makes the mistakes learners make.

They read the whole state of the tables, whatever is observed.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.envs.tabletop.env import TabletopVectorEnv
from rewardlab.envs.tabletop.tasks import part_of_state
from rewardlab.envs.tabletop.world import MAX_MOTION, Bools, Floats, vector

GAIN = 0.45  # share of the distance commanded a step; with the lag of the motion, more would overshoot
HOVER = 0.07  # metres above the object from which the gripper descends


def pick_cube_action(state: Floats, grasp_error: Floats, goal: Floats) -> Floats:
    """Hover over the object, descend, close, carry to the goal."""
    grasp_point = part_of_state(state, "object") + grasp_error
    grip, held = part_of_state(state, "grip"), part_of_state(state, "held") > 0.5
    aside = np.sqrt(np.square((grip - grasp_point)[:, :2]).sum(axis=1))
    target = grasp_point.copy()
    target[:, 2] += np.where(aside > 0.012, HOVER, -0.002)
    at_object = (aside < 0.012) & (np.abs(grip[:, 2] - grasp_point[:, 2]) < 0.012)
    target = np.where(held[:, None], grip + goal - part_of_state(state, "object"), target)
    return _towards(grip, target, close=held | at_object)


def peg_insertion_action(state: Floats, peg_error: Floats, hole: Floats) -> Floats:
    """Carry the held peg over the hole, lower it when it is centred."""
    grip, peg = part_of_state(state, "grip"), part_of_state(state, "object")
    hole = hole + peg_error
    aside = np.sqrt(np.square((peg - hole)[:, :2]).sum(axis=1))
    over = hole.copy()
    over[:, 2] += np.where(aside > 0.004, 0.065, -0.005)  # a little below the seat, so that it presses down
    return _towards(grip, grip + over - peg, close=np.ones(len(state), bool))


def _towards(grip: Floats, target: Floats, close: Bools) -> Floats:
    motion = np.clip(GAIN * (target - grip) / MAX_MOTION, -1, 1)
    fingers = np.where(close, -1.0, 1.0)[:, None]
    return np.concatenate([motion, fingers], axis=1, dtype=np.float32)


EXPERTS = {"PickCube": pick_cube_action, "PegInsertion": peg_insertion_action}


class TabletopExpert:
    """Solves the task from the state.

    With `mistakes`, about half of the episodes go wrong, each in one of the ways that robots and half-trained policies
    do; the others are merely shaky.
    """

    def __init__(self, table: TabletopVectorEnv, seed: int, mistakes: bool) -> None:
        self._table, self._expert = table, EXPERTS[table.task.name]
        num_envs = table.num_envs
        self.mistakes = mistakes
        # Not the environment's own stream: a mistake must not go along with where the object lies.
        self._rng = np.random.default_rng([seed, 1])
        self._step = np.zeros(num_envs, np.int64)
        self._goal_error = np.zeros((num_envs, 3), np.float32)
        self._aim_error = np.zeros((num_envs, 3), np.float32)  # sideways only
        self._lets_go_at = np.full(num_envs, np.iinfo(np.int64).max)
        self._shake = np.zeros(num_envs, np.float32)
        self.begin(np.ones(num_envs, bool))

    def begin(self, fresh: Bools) -> None:
        """Episodes start where `fresh`: choose what will go wrong in each."""
        ids = np.flatnonzero(fresh)
        self._step[ids] = 0
        if not self.mistakes:
            return
        n = len(ids)
        mistake = self._rng.choice(["none", "goal", "aim", "drop"], n, p=[0.42, 0.24, 0.14, 0.2])
        self._goal_error[ids] = np.where((mistake == "goal")[:, None], self._offset(n, 0.05, 0.12), 0)
        sideways = self._offset(n, 0.02, 0.06) * vector([1, 1, 0])
        self._aim_error[ids] = np.where((mistake == "aim")[:, None], sideways, 0)
        never = np.iinfo(np.int64).max
        self._lets_go_at[ids] = np.where(mistake == "drop", self._rng.integers(8, 40, n), never)
        self._shake[ids] = self._rng.uniform(0.05, 0.25, n)

    def _offset(self, n: int, shortest: float, longest: float) -> NDArray[np.float64]:
        direction = self._rng.standard_normal((n, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return direction * self._rng.uniform(shortest, longest, (n, 1))

    def act(self, observation: Any) -> Floats:
        """Return actions for the tables as they are now."""
        state = self._table.state
        goal = part_of_state(state, "goal") + self._goal_error
        action = self._expert(state, self._aim_error, goal)
        if self.mistakes:
            action += self._shake[:, None] * self._rng.standard_normal(action.shape, dtype=np.float32)
            action[self._step >= self._lets_go_at, 3] = 1.0
        self._step += 1
        return np.clip(action, -1, 1)
