"""T-REX and D-REX: rankings become rewards."""

from typing import Any

import numpy as np
import pytest
import torch
from zoo_toys import LENGTH, make_rollout, new, ranked_trajectories, spaces_of

from rewardlab.envs import make_vec_env
from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards import collect_noise_rollouts, in_order


def rightness(seed: int, share: float) -> Any:
    """A trajectory that goes right with a given probability."""
    rollout = make_rollout(seed, expert=True, steps=LENGTH)[:, 0]
    flip = torch.rand(LENGTH, generator=torch.Generator().manual_seed(seed)) > share
    step = torch.where(flip, -0.2, 0.2)
    rollout["next_observation"] = torch.stack([step.cumsum(0), torch.zeros(LENGTH)], 1)
    rollout["reward"] = rollout["next_observation"][:, 0]
    return rollout


def test_trex_ranks_trajectories_it_has_not_seen() -> None:
    model: Any = new("trex", update_per_collect=200).bind(*spaces_of())
    model.load_expert_data([rightness(seed, share) for seed in range(6) for share in (0.1, 0.5, 0.7)])
    model.train()
    held_out = [rightness(seed, share) for seed in range(20, 26) for share in (0.1, 0.5, 0.95)]
    true = torch.stack([trajectory["reward"].sum() for trajectory in held_out])
    given = torch.stack([model.estimate(trajectory)["reward"].sum() for trajectory in held_out])
    assert float(torch.corrcoef(torch.stack([true.argsort().argsort(), given.argsort().argsort()]).float())[0, 1]) > 0.9


def test_rewards_are_zero_for_the_worst_and_positive_for_better_ones() -> None:
    model: Any = new("trex", update_per_collect=200).bind(*spaces_of())
    worst, best = [rightness(s, 0.0) for s in range(2)], [rightness(s, 1.0) for s in range(2, 8)]
    model.load_expert_data(worst + best)
    model.train()
    rewards = [torch.cat([model.estimate(t)["reward"] for t in group]) for group in (worst, best)]
    assert abs(float(rewards[0].mean())) < 1e-4
    assert rewards[1].mean() > 1
    assert float(torch.cat(rewards).std(correction=0)) == pytest.approx(1, abs=1e-3)


def test_pairs_that_someone_compared_and_the_order_of_checkpoints() -> None:
    left, right = rightness(0, 0.0), rightness(1, 1.0)
    models: list[Any] = [new("trex", update_per_collect=100).bind(*spaces_of()) for _ in range(2)]
    models[0].load_preferences([left, right], [(1, 0)])  # this judge likes the left
    models[1].load_expert_data(in_order([[right], [left]]))  # and these checkpoints learned to go left
    for model in models:
        model.train()
        assert model.estimate(left)["reward"].mean() > model.estimate(right)["reward"].mean()
    with pytest.raises(DataError, match="name the trajectories 0 to 2 of 2"):
        models[0].load_preferences([left, right], [(0, 2)])
    with pytest.raises(DataError, match=r"shape \[0\]"):
        models[0].load_preferences([left, right], [])


def test_rankings_that_rank_nothing_are_an_error() -> None:
    model = new("trex").bind(*spaces_of())
    with pytest.raises(DataError, match="2 trajectories, all of rank"):
        model.load_expert_data([rightness(0, 1.0), rightness(0, 1.0)])
    with pytest.raises(DataError, match="have neither a 'rank' nor a 'reward'"):
        model.load_expert_data([rightness(0, 1.0).exclude("reward"), rightness(1, 0.0)])
    with pytest.raises(DataError, match="have neither a 'rank' nor a 'noise_level'"):
        new("drex").load_expert_data([rightness(0, 1.0)])
    with pytest.raises(ConfigError, match="min_snippet_length: found 60, expected 1 to max_snippet_length"):
        new("trex", min_snippet_length=60)


def test_snippets_of_a_pair_are_equally_long_and_inside_their_trajectories() -> None:
    model: Any = new("trex", min_snippet_length=3, max_snippet_length=8, batch_size=500).bind(*spaces_of())
    short = rightness(0, 0.0)[:4]
    model.load_expert_data([short, rightness(1, 1.0)])
    rows, snippet, pairs = model._snippets()
    counts = torch.bincount(snippet, minlength=2 * pairs).view(pairs, 2)
    assert torch.equal(counts[:, 0], counts[:, 1])
    assert set(counts.flatten().tolist()) == {3, 4}  # 8 would be longer than the shorter one
    worse = rows[snippet % 2 == 0]
    assert worse.unique().tolist() == [0, 1, 2, 3]
    assert rows[snippet % 2 == 1].unique().tolist() == list(range(4, 4 + LENGTH))
    together = torch.stack([rows[snippet == k].diff().eq(1).all() for k in range(50)])
    assert together.all()


def test_drex_prefers_less_noise() -> None:
    model: Any = new("drex", update_per_collect=100).bind(*spaces_of())
    model.load_expert_data([t.exclude("reward") for t in ranked_trajectories()])
    model.train()
    good, bad = (model.estimate(make_rollout(30, expert=e))["reward"].mean() for e in (True, False))
    assert good > bad


class TestNoiseRollouts:
    def test_whole_episodes_of_every_level_with_true_last_observations(self) -> None:
        env = make_vec_env("CartPole-v1", num_envs=2)

        def balance(observation: Any) -> Any:
            return (observation[:, 2] + observation[:, 3] > 0).astype(np.int64)

        rollouts = collect_noise_rollouts(balance, env, (0.0, 1.0), episodes_per_level=4, seed=1)
        env.close()
        assert [float(r["noise_level"][0]) for r in rollouts] == [0.0] * 4 + [1.0] * 4
        for rollout in rollouts:
            ends = rollout["terminated"] | rollout["truncated"]
            assert ends.nonzero().flatten().tolist() == [len(rollout) - 1]
            assert torch.equal(rollout["next_observation", "state"][:-1], rollout["observation", "state"][1:])
            if rollout["terminated"][-1]:
                assert rollout["next_observation", "state"][-1, 2].abs() > 0.2  # fallen: not a reset frame
        lengths = [len(rollout) for rollout in rollouts]
        assert min(lengths[:4]) > max(lengths[4:])
        model: Any = new("drex", update_per_collect=60)
        model.bind(env.single_observation_space, env.single_action_space)
        model.load_expert_data(rollouts)
        model.train()
        good, bad = (torch.cat([model.estimate(r)["reward"] for r in part]) for part in (rollouts[:4], rollouts[4:]))
        assert good.mean() > bad.mean() + 0.5

    def test_levels_are_probabilities(self) -> None:
        env = make_vec_env("CartPole-v1", num_envs=1)
        with pytest.raises(ConfigError, match=r"noise_levels: found \[2\.0\]"):
            collect_noise_rollouts(lambda o: o, env, (2.0,))
        env.close()
