"""HER: goals that were reached by chance."""

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from zoo_toys import as_list, make_goals, make_rollout, new

from rewardlab.errors import ConfigError, DataError


def walk() -> TensorDict:
    """Two episodes on a line: 0 -> 1 -> 2 -> 3 and 10 -> 11, with a goal at 99."""
    before, after = torch.tensor([0.0, 1, 2, 10])[:, None], torch.tensor([1.0, 2, 3, 11])[:, None]
    goal = torch.full((4, 1), 99.0)
    columns = {
        "observation": {"achieved_goal": before, "desired_goal": goal},
        "next_observation": {"achieved_goal": after, "desired_goal": goal},
        "action": torch.zeros(4, dtype=torch.int64),
        "reward": torch.full((4,), -1.0),
        "terminated": torch.tensor([False, False, False, True]),
        "truncated": torch.tensor([False, False, True, False]),
    }
    return TensorDict(columns, batch_size=[4])


def test_the_final_goal_by_hand() -> None:
    model: Any = new("her", her_strategy="final", her_replay_k=1)
    episodes = walk()
    relabelled = model.relabel(episodes)
    for which in ("observation", "next_observation"):
        assert relabelled[which, "desired_goal"].flatten().tolist() == [3, 3, 3, 11]
    assert relabelled["reward"].tolist() == [-1, -1, 0, 0]
    assert relabelled["observation", "achieved_goal"].flatten().tolist() == [0, 1, 2, 10]
    assert episodes["observation", "desired_goal"].unique().tolist() == [99]


@pytest.mark.parametrize(
    ("strategy", "possible"),
    [("future", [{1, 2, 3}, {2, 3}, {3}, {11}]), ("episode", [{1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {11}])],
)
def test_goals_are_drawn_from_the_right_part_of_the_episode(strategy: str, possible: list[set[int]]) -> None:
    model: Any = new("her", her_strategy=strategy, her_replay_k=50)
    relabelled = model.relabel(walk(), torch.Generator().manual_seed(0))
    goals = relabelled["next_observation", "desired_goal"].view(4, 50).int()
    assert [set(row.tolist()) for row in goals] == possible
    reached = relabelled["next_observation", "achieved_goal"].flatten() == goals.flatten()
    assert torch.equal(relabelled["reward"], torch.where(reached, 0.0, -1.0))
    again = model.relabel(walk(), torch.Generator().manual_seed(0))
    assert (again == relabelled).all()


def test_a_rollout_is_relabelled_environment_by_environment() -> None:
    model: Any = new("her", her_strategy="final", her_replay_k=2)
    rollout = make_goals()
    relabelled = model.relabel(rollout)
    assert len(relabelled) == 2 * rollout.numel()
    last = rollout["next_observation", "achieved_goal"][9, 0]  # of the first episode of environment 0
    assert torch.equal(relabelled["observation", "desired_goal"][:20], last.expand(20, 2))


def test_estimate_rewards_the_goals_that_are_there() -> None:
    model: Any = new("her", distance_threshold=0.5)
    data = make_goals()
    distance = (data["next_observation", "achieved_goal"] - torch.tensor([1.0, 0.0])).norm(dim=-1)
    assert torch.equal(model.estimate(data)["reward"], -(distance > 0.5).float())
    flat = data[:, 0]
    listed = torch.stack([item["reward"] for item in model.estimate(as_list(flat))])
    assert torch.equal(listed, model.estimate(flat)["reward"])


def test_a_users_goal_reward_is_used_and_not_saved() -> None:
    model: Any = new("her", goal_reward=lambda achieved, desired: -(achieved - desired).abs().sum(-1))
    assert model.estimate(walk())["reward"].tolist() == [-98, -97, -96, -88]
    assert "goal_reward" not in model.settings()


def test_bad_settings_and_data_are_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown her_strategy 'futur'\. Did you mean 'future'"):
        new("her", her_strategy="futur")
    with pytest.raises(ConfigError, match="her_replay_k: found 0"):
        new("her", her_replay_k=0)
    with pytest.raises(DataError, match="no 'achieved_goal' in the arrival"):
        new("her").estimate(make_rollout())
