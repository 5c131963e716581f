"""Episodes of somebody who knows the task, as transitions for an off-policy learner (RLPD)."""

from pathlib import Path
from typing import Any

import torch
from gymnasium import Space
from gymnasium.vector.utils import batch_space
from tensordict import TensorDict

from rewardlab.data import read_episodes
from rewardlab.errors import DataError
from rewardlab.observations import as_observation, to_batch
from rewardlab.rewards.manager import RewardManager
from rewardlab.types import Batch

Shapes = dict[str | tuple[str, ...], tuple[int, ...]]  # of the parts of one observation


def read_demonstrations(path: str | Path, manager: RewardManager | None, observation_space: Space[Any]) -> Batch:
    """All transitions below `path`, [n], with what the policy sees and the rewards that the learner would have seen.

    With a reward model the demonstrations are scored like everything else: two rewards in one buffer would contradict
    each other.
    """
    example = to_batch(as_observation(batch_space(observation_space).sample()))
    shapes: Shapes = {key: tuple(part.shape[1:]) for key, part in example.items(include_nested=True, leaves_only=True)}
    episodes = read_episodes(path)
    return TensorDict.cat([_demonstration(e.load().transitions(), manager, shapes, e.path) for e in episodes])


def _demonstration(moves: Batch, manager: RewardManager | None, shapes: Shapes, source: Path) -> Batch:
    ended = moves["terminated"] | moves["truncated"]
    ended[-1] = True  # wherever a recording was cut, it ends
    reward = moves["env_reward"].float()
    if manager is not None:
        following = moves["next", "observation"]
        frames = following if manager.config.reward_mode == "per_step" else following[ended]
        reward = manager.rewards(reward, frames, ended)
    columns = {
        "observation": _seen(moves["observation"], shapes, source),
        "next_observation": _seen(moves["next", "observation"], shapes, source),
        "action": moves["action"],
        "reward": reward,
        "env_reward": moves["env_reward"].float(),
        "terminated": moves["terminated"],
        "truncated": ended & ~moves["terminated"],
        "success": moves["success"].to(torch.bool),
    }
    return TensorDict(columns, batch_size=moves.batch_size)


def _seen(observation: TensorDict, shapes: Shapes, source: Path) -> TensorDict:
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
