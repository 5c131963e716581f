"""Checks what an environment returns, so that an error names the environment, the step and what is wrong with it."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rewardlab.errors import DataError, RewardlabError, user_traceback

STEP = "observation, reward, terminated, truncated, info"
RESET = "observation, info"
MOST_STEPS = 100_000  # of an episode without a time limit; one of Atari's may have 27,000 and says so nowhere


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Passes on what a single environment returns, or raises an error that names it. It changes no value.

    An episode of an environment without a time limit may never end, and those who wait for its end would wait forever:
    one that goes on after MOST_STEPS is an error, unless `limited` says that there is a limit.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, *, limited: bool = False) -> None:
        super().__init__(env)
        self._name, self._steps, self._limited = name, 0, limited

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        with errors_of_environment(self._name, "reset"):
            result = self.env.reset(seed=seed, options=options)
        observation, info = read_reset(result, self._name, self.observation_space)
        self._check_finite("observation", observation, "reset")
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        with errors_of_environment(self._name, self._step):
            result = self.env.step(action)
        observation, reward, *ends = read_step(result, self._name, self._step, self.observation_space)
        self._check_finite("reward", reward, self._step)
        self._check_finite("observation", observation, self._step)
        if self._steps == MOST_STEPS and not self._limited and not (ends[0] or ends[1]):
            raise DataError(
                f"environment '{self._name}' names no time limit, and an episode did not end in {MOST_STEPS:,} steps; "
                "expected an end: set env.train.max_episode_steps (a higher number, if its episodes are that long)"
            )
        return (observation, reward, *ends)

    def _check_finite(self, title: str, value: Any, when: str) -> None:
        """Raise if a NaN or an infinity is among numbers: a policy or a reward would be NaN from then on."""
        if isinstance(value, Mapping):
            for key, part in value.items():
                self._check_finite(f"{title}[{key!r}]", part, when)
        elif (bad := _not_finite(value)) is not None:
            raise _wrong(self._name, when, f"{title} is {bad}", "finite numbers")

    @property
    def _step(self) -> str:
        return f"step {self._steps} after its reset"


@contextmanager
def errors_of_environment(name: str, when: str) -> Iterator[None]:
    """Name the environment in errors that others raise because of what it returned; errors of its own stay as they are.

    Wrappers of Gymnasium fail in many ways when the environment inside of them returns something unexpected.
    """
    try:
        yield
    except RewardlabError:
        raise
    except Exception as error:
        if user_traceback(error) is not None:
            raise
        expected = RESET if when == "reset" else STEP
        raise DataError(
            f"environment '{name}', {when}: {type(error).__name__}: {error}. Expected it to return {expected}, as its "
            "spaces say"
        ) from error


def read_reset(result: Any, name: str, space: spaces.Space[Any]) -> tuple[Any, dict[str, Any]]:
    """Return the two values of `reset`, or raise if they are something else."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise _wrong(name, "reset", f"reset() returned {_kind(result)}", RESET)
    observation, info = result
    _check_info(info, name, "reset")
    _check_observation(observation, space, name, "reset")
    return observation, info


def read_step(
    result: Any, name: str, when: str, space: spaces.Space[Any], num_envs: int | None = None
) -> tuple[Any, Any, Any, Any, Any]:
    """Return the five values of `step`, or raise if they are something else; `num_envs` of a vector environment."""
    if not isinstance(result, (tuple, list)) or len(result) != 5:
        older = "; the older gym had four: its `done` is terminated or truncated" if _length(result) == 4 else ""
        raise _wrong(name, when, f"step() returned {_kind(result)}", STEP + older)
    observation, *values, info = result
    _check_info(info, name, when)
    for title, value in zip(("reward", "terminated", "truncated"), values, strict=True):
        shape = _shape(value)
        if shape is None or (math.prod(shape) != 1 if num_envs is None else shape != (num_envs,)):
            expected = "a number" if title == "reward" else "true or false"
            expected += "" if num_envs is None else f" for each of the {num_envs} environments"
            raise _wrong(name, when, f"{title} is {_kind(value)}", expected)
    _check_observation(observation, space, name, when)
    reward, terminated, truncated = values if num_envs is not None else map(_alone, values)
    return observation, reward, terminated, truncated, info


def check_vector_step(result: Any, env: VectorEnv[Any, Any, Any], steps: int) -> tuple[Any, Any, Any, Any, Any]:
    """Return the five values of a vector environment's `step`, or raise if they are something else."""
    spec = env.spec
    name = type(env.unwrapped).__name__ if spec is None else spec.id
    return read_step(result, name, f"step {steps}", env.observation_space, env.num_envs)


def _check_info(info: Any, name: str, when: str) -> None:
    if not isinstance(info, Mapping):
        raise _wrong(name, when, f"info is {_kind(info)}", "a dictionary, which may be empty")


def _check_observation(observation: Any, space: spaces.Space[Any], name: str, when: str, part: str = "") -> None:
    title = f"observation{part}"
    if isinstance(space, spaces.Dict):
        missing = list(space) if not isinstance(observation, Mapping) else [k for k in space if k not in observation]
        if missing:
            raise _wrong(name, when, f"{title} is {_kind(observation)}", f"a dictionary with {', '.join(missing)}")
        for key, inner in space.items():
            _check_observation(observation[key], inner, name, when, f"{part}[{key!r}]")
    elif isinstance(space, spaces.Box) and _shape(observation) != space.shape:
        found = f"{title} is {_kind(observation)}"
        raise _wrong(name, when, found, f"numbers of shape {space.shape}, as its space says")


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape of numbers, without copying a tensor from its device; None for everything else."""
    if isinstance(value, (float, bool, int)):
        return ()
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        try:
            value = np.asarray(value)
        except (TypeError, ValueError, RuntimeError):
            return None
    numeric = value.dtype.kind in "biuf" if isinstance(value.dtype, np.dtype) else True
    return tuple(value.shape) if numeric else None


def _not_finite(value: Any) -> Any:
    """Return the first NaN or infinity among numbers; None if there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    numbers = np.asarray(value)
    if numbers.dtype.kind != "f" or (numbers.ndim == 1 and math.isfinite(numbers.dot(numbers))):  # the usual, quickly
        return None
    bad = numbers[~np.isfinite(numbers)]
    return bad[0] if len(bad) else None


def _alone(value: Any) -> Any:
    """Return the number of a list or an array of one number; Gymnasium cannot store the list."""
    if _shape(value) == ():
        return value
    return np.asarray(value).item() if isinstance(value, (list, tuple)) else value.item()


def _wrong(name: str, when: str, found: str, expected: str) -> DataError:
    return DataError(f"environment '{name}', {when}: {found}; expected {expected}")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (tuple, list)) else -1


def _kind(value: Any) -> str:
    """Describe a value in a few words."""
    if value is None:
        return "None"
    if isinstance(value, (tuple, list)) and not (isinstance(value, list) and _shape(value) is not None):
        return f"a {type(value).__name__} of {len(value)} values"
    if isinstance(value, Mapping):
        return f"a dictionary with {', '.join(map(str, list(value)[:5])) or 'nothing'}"
    if isinstance(value, (str, bytes)):
        return f"the text {value[:20]!r}"
    shape = _shape(value)
    return f"a {type(value).__name__}" + (f" of shape {shape}" if shape else "")
