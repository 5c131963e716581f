"""Reads demonstrations: episodes of an expert, as transitions for an off-policy learner (RLPD)."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.vector.utils import batch_space
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data import read_episodes
from rewardlab.envs.cameras import resized
from rewardlab.errors import DataError
from rewardlab.observations import as_observation, to_batch
from rewardlab.types import Batch

Shapes = dict[str | tuple[str, ...], tuple[int, ...]]  # of the parts of one observation


def read_demonstrations(
    path: str | Path, observation_space: Space[Any], cameras: Collection[str] = ()
) -> tuple[Batch, dict[str, Tensor]]:
    """Return all transitions [n] below `path` in time order, and the frames [n, H, W, 3] after them by camera.

    The transitions have the parts of an observation that the policy sees.
    """
    example = to_batch(as_observation(batch_space(observation_space).sample()))
    shapes: Shapes = {key: tuple(part.shape[1:]) for key, part in example.items(include_nested=True, leaves_only=True)}
    batches, frames = [], []
    for stored in read_episodes(path):
        episode = stored.load()
        if episode.lacks_pictures and (cameras or any("images" in key for key in shapes)):
            who = "the reward model" if cameras else "the policy"
            raise DataError(f"{stored.path}: {who} looks at pictures{episode.explain_missing()}")
        transitions = episode.transitions()
        batches.append(_demonstration(transitions, shapes, stored.path))
        frames.append({camera: _frames(transitions, camera, stored.path) for camera in cameras})
    for camera in cameras:
        sizes = {f"{part[camera].shape[1]}x{part[camera].shape[2]}" for part in frames}
        if len(sizes) > 1:
            raise DataError(f"{path}: images of camera '{camera}' are {', '.join(sorted(sizes))}; expected one size")
    return TensorDict.cat(batches), {camera: torch.cat([part[camera] for part in frames]) for camera in cameras}


def _demonstration(transitions: Batch, shapes: Shapes, source: Path) -> Batch:
    terminated = _column(transitions, source, "terminated")
    truncated = _column(transitions, source, "truncated").clone()
    truncated[-1] = not terminated[-1]  # the end of a recording counts as the end of the episode
    columns = {
        "observation": _policy_observation(transitions["observation"], shapes, source),
        "next_observation": _policy_observation(transitions["next", "observation"], shapes, source),
        "action": _column(transitions, source, "action"),
        # Formats with one reward have the one that the environment gave, or that a learned reward replaced.
        "env_reward": _column(transitions, source, "env_reward", "reward").float(),
        "terminated": terminated,
        "truncated": truncated & ~terminated,
        "success": transitions["success"].to(torch.bool),
    }
    return TensorDict(columns, batch_size=transitions.batch_size)


def _column(transitions: Batch, source: Path, *names: str) -> Tensor:
    """Return the first of these columns that the episode has."""
    for name in names:
        if name in transitions.keys():  # noqa: SIM118 - a TensorDict's `in` is another
            return transitions[name]
    found = ", ".join(sorted(map(str, transitions.keys())))
    raise DataError(
        f"{source}: no {names[-1]} in it, which a demonstration needs; found {found}. "
        "Collect demonstrations as safetensors or pickle (data.collection.format)"
    )


def _policy_observation(observation: TensorDict, shapes: Shapes, source: Path) -> TensorDict:
    observation = _at_size(observation, shapes)
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


def _at_size(observation: TensorDict, shapes: Shapes) -> TensorDict:
    """Return an observation whose pictures are reduced to the size that the policy sees, as environments reduce them.

    Recordings are often larger than what a policy needs; pictures of another aspect or a smaller size are left alone.
    """
    observation = observation.copy()
    for key, (height, width, *_) in ((key, shape) for key, shape in shapes.items() if "images" in key):
        part = observation.get(key, None)
        if part is None or tuple(part.shape[1:3]) == (height, width):
            continue
        if part.shape[1] * width == part.shape[2] * height and part.shape[1] > height:
            pictures = [resized(picture, (height, width)) for picture in part.numpy()]
            observation[key] = torch.from_numpy(np.stack(pictures))
    return observation


def end_at_claims(rows: Batch, claims: Tensor, hold: int) -> tuple[Batch, Tensor]:
    """End each demonstration where `hold` rows in a row claim success, as episodes of the run end.

    Return the rows, of which those that end an episode so are `terminated`, and a mask of the rows that are left.
    """
    rows, kept, streak, over = rows.copy(), torch.ones(len(rows), dtype=torch.bool), 0, False
    terminated, truncated = rows["terminated"].clone(), rows["truncated"].clone()
    for row, claimed in enumerate(claims.tolist()):
        kept[row] = not over
        streak = streak + 1 if claimed else 0
        ended = bool(terminated[row] or truncated[row])
        if streak == hold and not over:
            terminated[row], truncated[row], over = True, False, True
        if ended:
            streak, over = 0, False
    rows["terminated"], rows["truncated"] = terminated, truncated
    return rows, kept


def _frames(transitions: Batch, camera: str, source: Path) -> Tensor:
    frames = transitions.get(("next", "observation", "images", camera), None)
    if frames is None:
        images = transitions.get(("next", "observation", "images"), None)
        found = "none" if images is None else ", ".join(sorted(images.keys()))
        raise DataError(
            f"{source}: no images of camera '{camera}', which the reward model looks at; found {found}. Collect the "
            f"demonstrations with it: env.train.cameras or data.collection.cameras must name '{camera}'"
        )
    return frames
