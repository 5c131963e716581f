"""Demonstrations: episodes of an expert, as transitions for an off-policy learner (RLPD)."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from gymnasium import Space
from gymnasium.vector.utils import batch_space
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data import read_episodes
from rewardlab.errors import DataError
from rewardlab.observations import as_observation, to_batch
from rewardlab.types import Batch

Shapes = dict[str | tuple[str, ...], tuple[int, ...]]  # of the parts of one observation


def read_demonstrations(
    path: str | Path, observation_space: Space[Any], cameras: Collection[str] = ()
) -> tuple[Batch, dict[str, Tensor]]:
    """All transitions below `path`, [n] in time order, with the observations that the policy would have had; and by
    camera the frame [n, H, W, 3] that followed each."""
    example = to_batch(as_observation(batch_space(observation_space).sample()))
    shapes: Shapes = {key: tuple(part.shape[1:]) for key, part in example.items(include_nested=True, leaves_only=True)}
    episodes = read_episodes(path)
    batches, frames = [], []
    for episode in episodes:
        moves = episode.load().transitions()
        batches.append(_demonstration(moves, shapes, episode.path))
        frames.append({camera: _frames(moves, camera, episode.path) for camera in cameras})
    return TensorDict.cat(batches), {camera: torch.cat([part[camera] for part in frames]) for camera in cameras}


def _demonstration(moves: Batch, shapes: Shapes, source: Path) -> Batch:
    truncated = moves["truncated"].clone()
    truncated[-1] = not moves["terminated"][-1]  # wherever a recording was cut, it ends
    columns = {
        "observation": _observation(moves["observation"], shapes, source),
        "next_observation": _observation(moves["next", "observation"], shapes, source),
        "action": moves["action"],
        "env_reward": moves["env_reward"].float(),
        "terminated": moves["terminated"],
        "truncated": truncated & ~moves["terminated"],
        "success": moves["success"].to(torch.bool),
    }
    return TensorDict(columns, batch_size=moves.batch_size)


def _observation(observation: TensorDict, shapes: Shapes, source: Path) -> TensorDict:
    for key, shape in shapes.items():
        part = observation.get(key, None)
        found = "none" if part is None else list(part.shape[1:])
        if part is None or tuple(part.shape[1:]) != shape:
            name = key if isinstance(key, str) else ".".join(key)
            raise DataError(
                f"{source}: the policy sees {name} of shape {list(shape)}, found {found}; demonstrations must have "
                "been collected with the env.train.obs_mode, cameras and image_size of this run"
            )
    return observation.select(*shapes)


def _frames(moves: Batch, camera: str, source: Path) -> Tensor:
    frames = moves.get(("next", "observation", "images", camera), None)
    if frames is None:
        raise DataError(f"{source}: no images of camera '{camera}', which the reward model looks at")
    return frames
