"""Episodes of somebody who knows the task, as transitions for an off-policy learner (RLPD)."""

from pathlib import Path

import torch
from tensordict import TensorDict

from rewardlab.data import read_episodes
from rewardlab.errors import DataError
from rewardlab.rewards.manager import RewardManager
from rewardlab.types import Batch


def read_demonstrations(path: str | Path, manager: RewardManager | None, *, with_images: bool) -> Batch:
    """All transitions below `path`, [n], with the rewards that the learner would have seen.

    With a reward model the demonstrations are scored like everything else: two rewards in one buffer would contradict
    each other. Their pictures are kept only if the policy looks at them.
    """
    episodes = read_episodes(path)
    return TensorDict.cat([_demonstration(e.load().transitions(), manager, with_images, e.path) for e in episodes])


def _demonstration(moves: Batch, manager: RewardManager | None, with_images: bool, source: Path) -> Batch:
    ended = moves["terminated"] | moves["truncated"]
    ended[-1] = True  # wherever a recording was cut, it ends
    reward = moves["env_reward"].float()
    if manager is not None:
        following = moves["next", "observation"]
        frames = following if manager.config.reward_mode == "per_step" else following[ended]
        reward = manager.rewards(reward, frames, ended)
    if "state" not in moves["observation"].keys():  # noqa: SIM118 - a TensorDict's `in` is something else
        raise DataError(f"{source}: its observations have no state; a demonstration needs what the policy sees")

    def seen(observation: TensorDict) -> TensorDict:
        return observation if with_images else observation.select("state")

    columns = {
        "observation": seen(moves["observation"]),
        "next_observation": seen(moves["next", "observation"]),
        "action": moves["action"],
        "reward": reward,
        "env_reward": moves["env_reward"].float(),
        "terminated": moves["terminated"],
        "truncated": ended & ~moves["terminated"],
        "success": moves["success"].to(torch.bool),
    }
    return TensorDict(columns, batch_size=moves.batch_size)
