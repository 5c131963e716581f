"""The shapes of a task's observations and actions: what a reward model's networks are built for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.nn import functional

from rewardlab.errors import ConfigError, DataError
from rewardlab.observations import Shapes, is_image, part_name, read_parts, space_shapes

# n, [n], [height, width, colours], or a mapping of the parts of an observation to these.
ObsShape: TypeAlias = int | Sequence[int] | Mapping[str, Any]
# The number of discrete actions, or the shape of a continuous one as a list.
ActionShape: TypeAlias = int | Sequence[int]

_ROUNDING = 1e-4  # tolerance for actions that were scaled and scaled back


@dataclass(frozen=True)
class Task:
    """The shapes of observations, such as {"state": (4,), "images.base_camera": (64, 64, 3)}, and of actions.

    `action` is the number of discrete actions or the shape of a continuous one; None if it is not known.
    """

    observation: Shapes
    action: int | tuple[int, ...] | None = None
    bounds: tuple[Tensor, Tensor] | None = field(default=None, compare=False)

    @classmethod
    def from_shapes(cls, obs_shape: ObsShape, action_shape: ActionShape | None) -> "Task":
        return cls(_observation_shapes(obs_shape), _action_shape(action_shape))

    @classmethod
    def from_spaces(cls, observation_space: Space[Any], action_space: Space[Any]) -> "Task":
        """Read the spaces of one environment; a vector environment has them as `single_*_space`."""
        observation = space_shapes(observation_space)
        if isinstance(action_space, spaces.Discrete):
            if action_space.start != 0:
                raise ConfigError(f"action space: {action_space} starts at {action_space.start}; expected 0")
            return cls(observation, int(action_space.n))
        if isinstance(action_space, spaces.Box):
            bounds = (torch.as_tensor(action_space.low).flatten(), torch.as_tensor(action_space.high).flatten())
            return cls(observation, tuple(action_space.shape), bounds)
        raise ConfigError(f"action space: found {action_space}, expected Discrete or Box")

    @property
    def has_images(self) -> bool:
        return any(map(is_image, self.observation.values()))

    @property
    def discrete(self) -> bool:
        return isinstance(self.action, int)

    @property
    def action_width(self) -> int:
        """Width of what `action_vectors` gives."""
        if self.action is None:
            raise ConfigError("action_shape: found null, expected the number of actions, or the shape of an action")
        return self.action if isinstance(self.action, int) else math.prod(self.action)

    def action_vectors(self, action: Tensor) -> Tensor:
        """Return what `read_action` gave as floats [B, action_width]: one-hot if actions are discrete."""
        return functional.one_hot(action, self.action_width).float() if self.discrete else action

    def read_action(self, action: Tensor) -> Tensor:
        """Return actions [B, ...] as int64 [B] or float32 [B, action_width]; raise a DataError if they are neither."""
        integers = not (action.is_floating_point() or action.dtype == torch.bool)
        width = math.prod(action.shape[1:])
        if integers != self.discrete or width != (1 if self.discrete else self.action_width):
            raise DataError(
                f"'action' is {str(action.dtype).removeprefix('torch.')} {list(action.shape)}; the reward model was "
                f"built for {self.describe_action()}"
            )
        if not self.discrete:
            return action.float().reshape(len(action), width)
        if len(action) and not 0 <= int(action.min()) <= int(action.max()) < self.action_width:
            found = f"{int(action.min())} to {int(action.max())}"
            raise DataError(f"'action' is {found}; expected 0 to {self.action_width - 1}")
        return action.reshape(-1).long()

    def check_bounds(self, action: Tensor) -> None:
        """Raise unless continuous actions are within the action space, as an expert's should be."""
        if self.bounds is not None:
            low, high = self.bounds
            beyond = (action.cpu() < low - _ROUNDING) | (action.cpu() > high + _ROUNDING)
            if beyond.any():
                row, column = beyond.nonzero()[0].tolist()
                raise DataError(
                    f"'action' is {float(action[row, column]):g} at row {row}, number {column}; expected "
                    f"{float(low[column]):g} to {float(high[column]):g}"
                )

    def describe_action(self) -> str:
        if self.discrete:
            return f"{self.action} discrete actions (integers)"
        return f"continuous actions of shape {list(self.action)} (floats)"  # type: ignore[arg-type]


def _observation_shapes(obs_shape: ObsShape) -> Shapes:
    if not isinstance(obs_shape, Mapping):
        sizes = _sizes(obs_shape, "obs_shape")
        return {part_name(sizes): sizes}
    parts = read_parts(obs_shape)
    if not parts:
        raise ConfigError("obs_shape: found an empty dictionary, expected the parts of an observation")
    return {name: _sizes(part, f"obs_shape.{name}") for name, part in sorted(parts.items())}


def _action_shape(action_shape: ActionShape | None) -> int | tuple[int, ...] | None:
    if action_shape is None:
        return None
    sizes = _sizes(action_shape, "action_shape")
    return sizes[0] if isinstance(action_shape, int) else sizes


def _sizes(value: Any, key: str) -> tuple[int, ...]:
    sizes = (value,) if isinstance(value, int) else tuple(value) if isinstance(value, (list, tuple)) else ()
    if not sizes and value not in ((), []):
        raise ConfigError(f"{key}: found {value!r}, expected a number or a list of numbers")
    if any(type(n) is not int or n < 1 for n in sizes):
        raise ConfigError(f"{key}: found {value!r}, expected positive whole numbers")
    return sizes
