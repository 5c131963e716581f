"""Hindsight Experience Replay: what was reached instead of the goal becomes the goal."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rewardlab.errors import ConfigError, DataError
from rewardlab.registry import unknown_name
from rewardlab.rewards.base import BaseRewardModel, register_reward_model, with_rewards
from rewardlab.rewards.zoo.transitions import Rows, find, leading_shape

GoalReward = Callable[[Tensor, Tensor], Tensor]
_STRATEGIES = ("final", "future", "episode")


@register_reward_model("her")
@dataclasses.dataclass(kw_only=True, eq=False)
class HERRewardModel(BaseRewardModel):
    """Hindsight Experience Replay (Andrychowicz et al. 2017), at sample time.

        r(s') = 0 if |achieved_goal(s') - desired_goal| <= distance_threshold else -1

    Use it off-policy in tasks whose observations have an `achieved_goal` and a `desired_goal`, as
    Gymnasium-Robotics'. `estimate` gives the reward of transitions for the goals they have; `relabel` makes new
    transitions from whole episodes with goals that were reached: the last of the episode (`final`), one reached at
    this step or later (`future`), or any of the episode. `terminated` stays as it was. There is nothing to train.
    DI-engine relabels inside `estimate`.
    """

    her_strategy: Literal["final", "future", "episode"] = "future"
    her_replay_k: int = 4  # relabelled copies of each transition
    distance_threshold: float = 0.05  # Euclidean, within which a goal is reached
    goal_reward: GoalReward | None = None  # (achieved, desired) -> reward; null = 0 or -1. Not saved in checkpoints
    clear_buffer_per_iters: int = 1

    def __post_init__(self) -> None:
        if self.her_strategy not in _STRATEGIES:
            raise ConfigError(unknown_name("her_strategy", str(self.her_strategy), _STRATEGIES))
        if type(self.her_replay_k) is not int or self.her_replay_k < 1:
            raise ConfigError(f"her_replay_k: found {self.her_replay_k!r}, expected a positive whole number")

    def reward(self, achieved: Tensor, desired: Tensor) -> Tensor:
        if self.goal_reward is not None:
            return self.goal_reward(achieved, desired).float()
        return -((achieved - desired).norm(dim=-1) > self.distance_threshold).float()

    def estimate(self, data: Any) -> Any:
        achieved = _goal(data, "arrival", "achieved_goal")
        desired = _goal(data, "arrival", "desired_goal")
        return with_rewards(data, self.reward(achieved, desired).reshape(leading_shape(data)))

    def relabel(self, episodes: TensorDictBase, generator: torch.Generator | None = None) -> TensorDict:
        """`her_replay_k` copies of each transition with goals reached in its episode, and their rewards, flat.

        `episodes` are whole ones in time order, [B] or [T, N], with their ends in `terminated` and `truncated`.
        """
        achieved = _goal(episodes, "next_observation", "achieved_goal").flatten(0, episodes.ndim - 1)
        flat = episodes.flatten()
        ends = {key: flat[key].reshape(-1).bool() for key in ("terminated", "truncated") if key in flat}
        rows, goals = [], []
        for episode in Rows(ends, tuple(episodes.batch_size)).episodes():
            rows.append(episode.repeat_interleave(self.her_replay_k))
            goals.append(episode[self._chosen(len(episode), generator)])
        relabelled = flat[torch.cat(rows)]
        goal = achieved[torch.cat(goals)]
        for which in ("observation", "next_observation"):
            relabelled[which, "desired_goal"] = goal
        if "env_reward" in relabelled:
            del relabelled["env_reward"]  # it is of another goal
        relabelled["reward"] = self.reward(achieved[torch.cat(rows)], goal)
        return relabelled

    def _chosen(self, length: int, generator: torch.Generator | None) -> Tensor:
        """The steps whose achievement becomes the goal, for each step `her_replay_k` times."""
        step = torch.arange(length).repeat_interleave(self.her_replay_k)
        if self.her_strategy == "final":
            return torch.full_like(step, length - 1)
        first = step if self.her_strategy == "future" else torch.zeros_like(step)
        # In double precision: rounded up, the product would be the length itself.
        share = torch.rand(len(step), dtype=torch.float64, generator=generator)
        return first + (share * (length - first)).long()

    def collect_data(self, data: Any) -> None:
        """Nothing: there is nothing to learn."""

    def train(self) -> None:
        """Nothing: there is nothing to learn."""

    def clear_data(self, iter: int) -> None:
        """Nothing: nothing was kept."""

    def settings(self) -> dict[str, Any]:
        named = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del named["goal_reward"]
        return named


def _goal(data: Any, which: str, key: str) -> Tensor:
    observation = find(data, which)
    goal = None if observation is None or isinstance(observation, Tensor) else observation.get(key, None)
    if goal is None:
        raise DataError(f"no '{key}' in the {which} of the transitions; her needs observations with it")
    return torch.as_tensor(goal).float()
