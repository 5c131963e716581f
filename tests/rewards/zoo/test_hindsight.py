"""HER: goals that were reached by chance."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from zoo_toys import as_list, make_goals, make_rollout, new

from rewardlab.config.schema import DQNConfig, EnvConfig, OptimConfig, PolicyModelConfig
from rewardlab.data.episode_replay import EpisodeReplay
from rewardlab.errors import ConfigError, DataError
from rewardlab.models.policy_networks import make_q_network
from rewardlab.rewards.zoo.hindsight import HERRewardModel
from rewardlab.rl import DQN
from rewardlab.rl.evaluation import Evaluation
from rewardlab.workers.env import EnvWorker
from rewardlab.workers.rollout import RolloutWorker


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


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def replay_of(rows: TensorDict) -> EpisodeReplay:
    replay = EpisodeReplay(100)
    replay.add(rows)
    return replay


def test_the_share_of_new_goals_is_k_in_k_plus_one() -> None:
    model: Any = new("her", her_strategy="final", her_replay_k=3)
    drawn = model.sample(replay_of(walk()), 40, dice())
    last = torch.where(drawn["next_observation", "achieved_goal"] > 3, 11, 3)
    for which in ("observation", "next_observation"):
        goal = drawn[which, "desired_goal"]
        assert torch.equal(goal[:30], last[:30])
        assert (goal[30:] == 99).all()
    assert torch.equal(drawn["observation", "achieved_goal"], (drawn["next_observation", "achieved_goal"] - 1))
    assert (drawn["reward"] == -1).all()  # of the goal that was set; `estimate` knows the new ones
    reached = model.estimate(drawn)["reward"] == 0
    assert torch.equal(reached[:30], (drawn["next_observation", "achieved_goal"] == last).flatten()[:30])
    assert not reached[30:].any()


@pytest.mark.parametrize(
    ("strategy", "possible"),
    [
        ("final", [{3}, {3}, {3}, {11}]),
        ("future", [{1, 2, 3}, {2, 3}, {3}, {11}]),
        ("episode", [{1, 2, 3}] * 3 + [{11}]),
    ],
)
def test_goals_are_drawn_from_the_right_part_of_the_episode(strategy: str, possible: list[set[int]]) -> None:
    model: Any = new("her", her_strategy=strategy, her_replay_k=10**6)
    replay = replay_of(walk())
    drawn = model.sample(replay, 500, dice())
    for before, goals in zip((0, 1, 2, 10), possible, strict=True):
        here = drawn["observation", "achieved_goal"].flatten() == before
        assert set(drawn["observation", "desired_goal"][here].flatten().tolist()) == goals
    assert (model.sample(replay, 500, dice()) == drawn).all()
    assert (replay.state_dict()["rows"]["observation"]["desired_goal"] == 99).all()  # nothing is written back


def test_what_follows_a_new_goal_by_hand() -> None:
    """Rows that end: at no goal (a fall), at the old one; rows that go on. Each with a goal it reaches and one not."""
    achieved = torch.tensor([5.0, 5, 7, 7, 8, 8, 7, 8])[:, None]
    old = torch.full((8, 1), 7.0)
    rows = TensorDict(
        {
            "observation": {"achieved_goal": achieved - 1, "desired_goal": old},
            "next_observation": {"achieved_goal": achieved, "desired_goal": old},
            "terminated": torch.tensor([True, True, True, True, False, False, False, True]),
        },
        batch_size=[8],
    )
    goal = torch.tensor([5.0, 6, 7, 6, 8, 6, 7, 7])[:, None]
    model: Any = new("her")
    ends = model.with_goals(rows, goal)
    # The last two keep their goal, and with it what the environment said: here that it goes on, and that it ended.
    assert ends["terminated"].tolist() == [True, True, True, False, True, False, False, True]
    model = new("her", goal_ends_episode=False)
    goes_on = model.with_goals(rows, goal)
    assert torch.equal(goes_on["terminated"], rows["terminated"])
    for which in ("observation", "next_observation"):
        assert torch.equal(ends[which, "desired_goal"], goal)
        assert torch.equal(rows[which, "desired_goal"], old)


def test_in_bitflip_a_relabelled_transition_ends_where_its_goal_is_reached() -> None:
    worker = EnvWorker(EnvConfig(id="toy/BitFlip", num_envs=8, options={"bits": 3}), seed=0, keep_next=True)
    worker.begin(0)
    random = np.random.default_rng(0)
    for _ in range(60):
        worker.step(random.integers(0, 3, 8))
    rollout = worker.fetch().unpack()
    rollout["reward"] = rollout["env_reward"]
    model: Any = new("her")
    assert torch.equal(model.estimate(rollout)["reward"], rollout["env_reward"])
    replay = EpisodeReplay(1000)
    replay.add_rollout(rollout)
    drawn = model.estimate(model.sample(replay, 400, dice()))
    assert (drawn["next_observation", "desired_goal"] == drawn["observation", "desired_goal"]).all()
    assert torch.equal(drawn["terminated"], drawn["reward"] == 0)
    assert 0.3 < drawn["terminated"].float().mean() < 0.8  # by chance a third or less of them reached their goal


@pytest.mark.parametrize("with_hindsight", [True, False])
def test_dqn_flips_eight_bits_with_hindsight_and_not_without(with_hindsight: bool) -> None:
    config = EnvConfig(id="toy/BitFlip", num_envs=8, options={"bits": 8})
    worker = EnvWorker(config, seed=0, keep_next=True)
    arrival = worker.begin(0)
    network = make_q_network(*worker.spaces(), PolicyModelConfig(hidden_sizes=(256,)), seed=0)
    settings = DQNConfig(epsilon_start=0.2, epsilon_end=0.2, target_update_interval=1, tau=0.05)
    learner = DQN(network, settings, OptimConfig(lr=3e-3, schedule="constant"), gamma=0.98, seed=0)
    learner.set_progress(0, 1)
    actor = RolloutWorker(network, worker.spaces()[1], seed=0)
    model, replay, generator = new("her"), EpisodeReplay(10_000), dice()
    assert isinstance(model, HERRewardModel)
    for iteration in range(30):
        actor.begin(iteration)
        for _ in range(8):
            arrival = worker.step(actor.act(arrival))
        rollout = actor.fetch(arrival).update(worker.fetch().unpack())
        rollout["reward"] = rollout["env_reward"]
        replay.add_rollout(rollout)
        for _ in range(20):
            drawn = model.sample(replay, 128, generator) if with_hindsight else replay.sample(128, generator)
            learner.learn(model.estimate(drawn))
    success = Evaluation(dataclasses.replace(config, num_envs=200), seed=1).run(network)["success_once"]
    assert success > 0.9 if with_hindsight else success < 0.2


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
    with pytest.raises(ConfigError, match="goal_ends_episode: found 'no', expected true or false"):
        new("her", goal_ends_episode="no")
    with pytest.raises(DataError, match="no 'achieved_goal' in the arrival"):
        new("her").estimate(make_rollout())
    model: Any = new("her")
    with pytest.raises(DataError, match=r"no 'next_observation\.achieved_goal' in the replay buffer"):
        model.sample(replay_of(make_rollout()[:10, 0]), 4, dice())
