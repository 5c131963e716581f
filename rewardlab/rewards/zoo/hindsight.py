"""Hindsight Experience Replay: what was reached instead of the goal becomes the goal."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from gymnasium import Space
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from rewardlab.config.schema import AlgorithmConfig, RewardConfig
from rewardlab.data.episode_replay import EpisodeReplay, Strategy
from rewardlab.errors import ConfigError, DataError
from rewardlab.keys import ACHIEVED_GOAL, DESIRED_GOAL
from rewardlab.observations import read_parts, space_shapes
from rewardlab.rewards.base import BaseRewardModel, register_reward_model, with_rewards
from rewardlab.rewards.zoo.settings import check_settings
from rewardlab.rewards.zoo.transitions import find, leading_shape
from rewardlab.types import Batch

GoalReward = Callable[[Tensor, Tensor], Tensor]


@register_reward_model("her")
@dataclasses.dataclass(kw_only=True, eq=False)
class HERRewardModel(BaseRewardModel):
    """Hindsight Experience Replay (Andrychowicz et al. 2017), at sample time.

        r(s') = 0 if |achieved_goal(s') - desired_goal| <= distance_threshold else -1

    Use it off-policy in tasks whose observations have an `achieved_goal` and a `desired_goal`, as
    Gymnasium-Robotics'. `sample` draws transitions of which `her_replay_k` in `her_replay_k + 1` get a goal that was
    reached in their episode: the last (`final`), one reached at this step or later (`future`), or any (`episode`).
    `estimate` gives the rewards of transitions for the goals they have. There is nothing to train. DI-engine relabels
    inside `estimate`.

    With `goal_ends_episode`, nothing follows a goal that was reached: of a transition with a new goal, `terminated`
    says whether it is reached, or whether the episode ended there for another reason than the old one. That is so in
    tasks that end at their goal. It also is right in tasks that go on there, if a policy can stay: it would be
    rewarded with 0 for ever, which is the value of an end. Turn it off where it cannot stay, or where `goal_reward`
    is not 0 at the goal; then `terminated` remains as it was.
    """

    hindsight: ClassVar[bool] = True

    her_strategy: Strategy = "future"
    her_replay_k: PositiveInt = 4  # transitions with a goal that was reached, for one with its own
    distance_threshold: NonNegativeFloat = 0.05  # Euclidean, within which a goal is reached
    goal_ends_episode: bool = True
    goal_reward: GoalReward | None = None  # (achieved, desired) -> reward; null = 0 or -1. Not saved in checkpoints
    clear_buffer_per_iters: int = 1

    def __post_init__(self) -> None:
        check_settings(self)

    def bind(self, observation_space: Space[Any], action_space: Space[Any]) -> Self:
        if not space_shapes(observation_space).keys() >= {ACHIEVED_GOAL, DESIRED_GOAL}:
            raise ConfigError(
                f"reward model 'her': the environment's observations are {observation_space}; expected a Dict with "
                f"'{ACHIEVED_GOAL}' and '{DESIRED_GOAL}'"
            )
        return self

    def check_run(self, reward: RewardConfig, algorithm: AlgorithmConfig) -> None:
        if algorithm.off_policy is None:
            raise ConfigError(
                f"reward.model.model_type: her learns from stored episodes, which {algorithm.name} does not keep; set "
                "algorithm.name to dqn or sac"
            )
        if reward.combine_mode != "replace":
            raise ConfigError(
                f"reward.combine_mode: found {reward.combine_mode}, expected replace, because the environment's reward "
                "is not of the goals that her sets"
            )

    def reached(self, achieved: Tensor, desired: Tensor) -> Tensor:
        return (achieved - desired).norm(dim=-1) <= self.distance_threshold

    def reward(self, achieved: Tensor, desired: Tensor) -> Tensor:
        if self.goal_reward is not None:
            return self.goal_reward(achieved, desired).float()
        return self.reached(achieved, desired).float() - 1

    def estimate(self, data: Any) -> Any:
        achieved = _goal(data, "arrival", ACHIEVED_GOAL)
        desired = _goal(data, "arrival", DESIRED_GOAL)
        return with_rewards(data, self.reward(achieved, desired).reshape(leading_shape(data)))

    def sample(self, replay: EpisodeReplay, batch_size: int, generator: torch.Generator) -> Batch:
        """Transitions [batch_size], the first of them with new goals; their rewards are for `estimate` to make.

        What the environment said of them, `reward`, `env_reward` and `success`, is of the goal it had set.
        """
        key = ("next_observation", ACHIEVED_GOAL)
        batch, goal = replay.sample_with(key, batch_size, self.her_strategy, generator)
        count = round(batch_size * self.her_replay_k / (self.her_replay_k + 1))
        own = _goal(batch, "next_observation", DESIRED_GOAL)
        return self.with_goals(batch, torch.cat([goal[:count], own[count:]]))

    def with_goals(self, batch: Batch, goal: Tensor) -> Batch:
        """A copy of transitions [B] that were to reach `goal`; one that has this goal already stays as it is."""
        achieved = _goal(batch, "next_observation", ACHIEVED_GOAL)
        previous = _goal(batch, "next_observation", DESIRED_GOAL)
        copy: Batch = batch.copy()
        for which in ("observation", "next_observation"):
            copy[which] = batch[which].copy().update({DESIRED_GOAL: goal})
        if self.goal_ends_episode:
            elsewhere = batch["terminated"] & ~self.reached(achieved, previous)
            ended = elsewhere | self.reached(achieved, goal)
            copy["terminated"] = torch.where((goal == previous).all(-1), batch["terminated"], ended)
        return copy

    def collect_data(self, data: Any) -> None:
        """Nothing: there is nothing to learn."""

    def train(self) -> None:
        """Nothing: there is nothing to learn."""

    def clear_data(self, iter: int) -> None:
        """Nothing: nothing was kept."""

    def settings(self) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(self) if field.name != "goal_reward"]
        return {name: getattr(self, name) for name in names}


def _goal(data: Any, which: str, key: str) -> Tensor:
    observation = find(data, which)
    goal = None if observation is None else read_parts(observation).get(key)
    if goal is None:
        raise DataError(f"no '{key}' in the {which} of the transitions; her needs observations with it")
    return torch.as_tensor(goal).float()
