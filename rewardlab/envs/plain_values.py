"""Environments that return tensors, or a batch of one: what they return becomes that of a single Gymnasium environment.

Simulators that run on a GPU return torch tensors with a leading axis, also for one environment.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rewardlab.errors import ConfigError
from rewardlab.observations import to_numpy

_PLAIN = (bool, int, float, str)
Step = tuple[Any, Any, Any, Any, dict[str, Any]]


class PlainValues(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Converts tensors to NumPy arrays, which can be sent to other processes, and removes the axis of a batch of one.

    Results of another form are passed on as they are, so that the check around it can say what is wrong.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], name: str) -> None:
        super().__init__(env)
        inner: Any = env.unwrapped
        self._is_batch = hasattr(inner, "num_envs") and hasattr(inner, "single_observation_space")
        if self._is_batch and inner.num_envs != 1:
            raise ConfigError(
                f"environment '{name}' is a batch of {inner.num_envs} environments; expected one: env.train.num_envs "
                "says how many of them there are, not its options"
            )
        if self._is_batch:
            self.observation_space, self.action_space = inner.single_observation_space, inner.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result: Any = self.env.reset(seed=seed, options=options)
        if not isinstance(result, tuple) or len(result) != 2:
            return result
        observation, info = result
        return self._observation(observation), _without_tensors(info, self._is_batch)

    def step(self, action: Any) -> Step:
        result: Any = self.env.step(action)
        if not isinstance(result, tuple) or len(result) != 5:
            return result
        observation, reward, terminated, truncated, info = result
        observation, info = self._observation(observation), _without_tensors(info, self._is_batch)
        return observation, _number(reward), _number(terminated), _number(truncated), info

    def _observation(self, observation: Any) -> Any:
        space = self.observation_space
        if isinstance(space, spaces.Box) and isinstance(observation, np.ndarray) and not self._is_batch:
            return observation[0] if observation.shape == (1, *space.shape) else observation  # the usual case, quickly
        return _fit(_without_tensors(observation, self._is_batch), space)


def _number(value: Any) -> Any:
    """Return the number of a tensor or an array of one; anything else as it is."""
    if isinstance(value, _PLAIN):
        return value
    one = hasattr(value, "item") and int(np.prod(value.shape)) == 1
    return value.item() if one else _without_tensors(value, False)


def _without_tensors(value: Any, batched: bool) -> Any:
    """Return nested values with arrays in the place of tensors; `batched`: without their leading axis of 1."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {key: _without_tensors(part, batched) for key, part in value.items()}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_without_tensors(part, batched) for part in value)
    if hasattr(value, "detach"):
        value = to_numpy(value)
    if batched and isinstance(value, np.ndarray) and value.ndim and len(value) == 1:
        value = value[0]
    return value.item() if isinstance(value, np.bool_) else value  # Gymnasium batches Python's booleans only


def _fit(value: Any, space: spaces.Space[Any]) -> Any:
    """Return an observation without a leading axis of 1 that its space does not have."""
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        return {key: _fit(part, space.spaces[key]) if key in space.spaces else part for key, part in value.items()}
    if isinstance(space, spaces.Box) and isinstance(value, np.ndarray) and value.shape == (1, *space.shape):
        return value[0]
    return value
