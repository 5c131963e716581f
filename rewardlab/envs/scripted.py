"""The policies `expert` and `noisy_expert` for every environment that has a `scripted_action()`.

`noisy_expert` collects data for success classifiers. A policy that is trained on a classifier visits states that no
expert visits, and is rewarded wherever the classifier errs. So half of the episodes go wrong, in the ways in which
learners do: they shake, aim beside the goal, stop short of it, wander off, undo what they did, or know nothing at all.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rewardlab.errors import ConfigError

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

USUAL_STEPS = 100  # length of an episode where an environment does not tell
NOISE = (0.0, 0.3, 1.0)  # standard deviations of a shaking hand, in halves of the range of an action

# What acts instead of the expert, in a part of the episode.
EXPERT, RANDOM, STILL, BACKWARDS = range(4)
# Kinds of episodes: (share, who acts first, who acts then). The change comes at a random step.
PLANS = (
    (0.34, EXPERT, EXPERT),
    (0.14, EXPERT, RANDOM),
    (0.14, EXPERT, STILL),
    (0.14, EXPERT, BACKWARDS),
    (0.10, RANDOM, EXPERT),
    (0.14, RANDOM, RANDOM),
)
BIASED = 0.35  # share of the episodes with a constant error of the actions


def has_scripted_action(env: VectorEnv[Any, Any, Any]) -> bool:
    """Return whether the copies of an environment, or the vector environment itself, say what an expert would do."""
    inner: Any = env.unwrapped
    if hasattr(inner, "scripted_action"):
        return True
    return hasattr(inner, "call") and all(inner.call("has_wrapper_attr", "scripted_action"))


class ScriptedExpert:
    """Does what the environments' `scripted_action()` says, whatever is observed."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env: Any = env.unwrapped

    def begin(self, fresh: Bools) -> None:
        """Do nothing: the environments know where their episodes are."""

    def act(self, observation: Any) -> NDArray[Any]:
        if hasattr(self._env, "scripted_action"):
            return np.asarray(self._env.scripted_action())
        return np.stack(self._env.call("scripted_action"))


class NoisyExpert:
    """The expert with the mistakes of learners; what goes wrong in an episode is drawn at its start.

    Each episode has a level of noise, perhaps a constant error, and a plan: who acts until a random step, and who acts
    after it. Backwards means that the actions so far are undone one by one.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        space = env.single_action_space
        if not isinstance(space, spaces.Box) or not space.is_bounded():
            raise ConfigError(
                f"policy 'noisy_expert': found actions {space}, expected numbers within limits (a Box); use 'expert' "
                "with data.collection.random_actions instead"
            )
        self._expert, self._shape = ScriptedExpert(env), space.shape
        self._low, self._high = space.low.astype(np.float32), space.high.astype(np.float32)
        self._middle, self._half = (self._high + self._low) / 2, (self._high - self._low) / 2
        spec = env.spec
        self._episode_steps = (spec.max_episode_steps if spec is not None else None) or USUAL_STEPS
        # Independent RNG stream, so that mistakes are uncorrelated with the scene.
        self._rng = np.random.default_rng([seed, 1])
        count = env.num_envs
        self._plan = np.zeros((count, 2), np.int64)
        self._change_at, self._step = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._shake, self._memory = np.zeros(count, np.float32), np.zeros(count, np.float32)
        self._bias = np.zeros((count, *self._shape), np.float32)
        self._wander = np.zeros((count, *self._shape), np.float32)
        self._done: list[list[Floats]] = [[] for _ in range(count)]
        self.begin(np.ones(count, bool))

    def begin(self, fresh: Bools) -> None:
        """Episodes start where `fresh`: choose what will go wrong in each."""
        ids, rng = np.flatnonzero(fresh), self._rng
        n = len(ids)
        shares = np.array([share for share, *_ in PLANS])
        self._plan[ids] = np.array([plan for _, *plan in PLANS])[rng.choice(len(PLANS), n, p=shares / shares.sum())]
        self._change_at[ids] = rng.integers(0, self._episode_steps, n, endpoint=True)
        self._shake[ids] = rng.choice(NOISE, n)
        self._memory[ids] = rng.choice([0.0, 0.9], n)
        biased = rng.random(n) < BIASED
        self._bias[ids] = self._normal(n) * np.where(biased, rng.uniform(0.2, 1.0, n), 0).reshape(self._column(n))
        self._wander[ids] = self._normal(n)
        self._step[ids] = 0
        for number in ids:
            self._done[number] = []

    def act(self, observation: Any) -> Floats:
        """Return actions for the environments as they are now."""
        count, column = len(self._step), self._column(len(self._step))
        # Of a constant spread at any memory: an Ornstein-Uhlenbeck process.
        fade = self._memory.reshape(column)
        fresh = np.sqrt(1 - fade**2, dtype=np.float32) * self._normal(count)
        self._wander = (fade * self._wander + fresh).astype(np.float32)
        who = np.where(self._step < self._change_at, self._plan[:, 0], self._plan[:, 1]).reshape(column)
        expert = (np.asarray(self._expert.act(observation), np.float32) - self._middle) / self._half
        expert += self._bias + self._shake.reshape(column) * self._wander
        chosen = np.select([who == EXPERT, who == RANDOM, who == BACKWARDS], [expert, self._wander, self._undone()])
        chosen = np.clip(chosen, -1, 1).astype(np.float32)
        for number, action in enumerate(chosen):
            if who.flat[number] != BACKWARDS:
                self._done[number].append(action)
        self._step += 1
        return np.clip(self._middle + chosen * self._half, self._low, self._high)

    def _undone(self) -> Floats:
        """Return the opposite of each environment's last action that has not been undone; 0 when none is left."""
        undone = np.zeros((len(self._step), *self._shape), np.float32)
        back = (self._step >= self._change_at) & (self._plan[:, 1] == BACKWARDS)
        for number in np.flatnonzero(back):
            if self._done[number]:
                undone[number] = -self._done[number].pop()
        return undone

    def _normal(self, n: int) -> Floats:
        return self._rng.standard_normal((n, *self._shape), dtype=np.float32)

    def _column(self, n: int) -> tuple[int, ...]:
        return (n, *[1] * len(self._shape))
