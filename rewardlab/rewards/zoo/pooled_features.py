"""Transitions as plain vectors, for models that compare numbers and train no network."""

import torch
from torch import Tensor
from torch.nn import functional

from rewardlab.models.encoders import channels_first, pixels_to_floats
from rewardlab.observations import is_image
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transitions import Columns, observation_of

_SIDE = 4  # of the picture that any image is averaged to: 48 numbers of three colours


def observation_features(columns: Columns, task: Task) -> Tensor:
    """Each observation as float64 [B, F]: its vectors, and its images averaged over a coarse grid."""
    observation = observation_of(columns, "observation")
    parts = []
    for name, shape in task.observation.items():
        values = observation[name]
        if is_image(shape):
            values = functional.adaptive_avg_pool2d(channels_first(pixels_to_floats(values), shape), _SIDE)
        parts.append(values.flatten(1).double())
    return torch.cat(parts, dim=1)


def feature_count(task: Task) -> int:
    """Return the F of `observation_features`."""
    empty = {f"observation.{name}": torch.zeros(1, *shape) for name, shape in task.observation.items()}
    return observation_features(empty, task).shape[1]
