"""RND, ICM and NGU: what is seen often becomes worth less."""

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from zoo_toys import data_for, make_rollout, new, observed, spaces_of, trained

from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards.zoo import novelty


def places(x: float, count: int = 60, seed: int = 0) -> dict[str, Any]:
    """Transitions around (x, 0)."""
    position = torch.tensor([x, 0.0]) + 0.1 * torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return {"observation": position, "next_observation": position, "action": torch.zeros(count, dtype=torch.int64)}


@pytest.mark.parametrize("view", ["state", "images"])
def test_rnd_rewards_unseen_states_more_than_visited_ones(view: Any) -> None:
    model: Any = new("rnd", update_per_collect=200).bind(*spaces_of(view=view))
    visited, unseen = (observed(places(x, seed=1)["observation"], view) for x in (-1.0, 2.0))
    model.collect_data({"observation": observed(places(-1.0)["observation"], view)})
    model.collect_data({"observation": observed(places(-1.5)["observation"], view)})
    model.train()
    seen, new_ones = (model.intrinsic(TensorDict({"observation": o}, [60])).mean() for o in (visited, unseen))
    assert new_ones > 3 * seen


def test_rnd_judges_what_the_action_led_to() -> None:
    model, data = trained("rnd"), data_for("rnd")
    elsewhere = data.clone()
    elsewhere["observation"] += 100
    assert torch.equal(model.estimate(elsewhere)["reward"], model.estimate(data)["reward"])
    arrivals = data.exclude("next_observation")
    arrivals["observation"] = data["next_observation"]
    assert torch.equal(model.estimate(arrivals)["reward"], model.estimate(data)["reward"])


@pytest.mark.parametrize("name", ["rnd", "icm", "ngu"])
def test_the_bonus_is_weighted_and_added_to_the_environments_reward(name: str) -> None:
    data = data_for(name)
    model: Any = trained(name, intrinsic_reward_weight=0.5)
    bonus = model.intrinsic(data)
    assert torch.allclose(model.estimate(data)["reward"], data["reward"] + 0.5 * bonus)
    model.intrinsic_reward_type = "assign"
    assert torch.allclose(model.estimate(data)["reward"], 0.5 * bonus)
    model.intrinsic_reward_weight = 1000.0
    assert torch.allclose(model.estimate(data)["reward"], 1000 * bonus)


@pytest.mark.parametrize("name", ["rnd", "icm", "ngu"])
def test_the_bonus_has_a_mean_square_of_one_over_what_was_collected(name: str) -> None:
    model: Any = new(name).bind(*spaces_of())
    data = make_rollout(2)
    model.collect_data(data)
    assert float(model.intrinsic(data).square().mean()) == pytest.approx(1, rel=0.01)
    model.intrinsic_reward_norm = False
    assert float(model.intrinsic(data).square().mean()) != pytest.approx(1, rel=0.01)


def test_an_unknown_way_to_combine_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown intrinsic_reward_type 'new'"):
        new("rnd", intrinsic_reward_type="new")


@pytest.mark.parametrize("discrete", [True, False])
def test_icm_learns_which_action_was_taken_and_what_it_does(discrete: bool) -> None:
    model: Any = new("icm", update_per_collect=300, learning_rate=3e-3).bind(*spaces_of(discrete=discrete))
    model.collect_data(make_rollout(2, discrete=discrete))
    data = make_rollout(9, discrete=discrete)
    rows = model._read(data)
    with torch.no_grad():
        before = model.network(rows.columns).mean() / rows_energy(model, rows)
        model_train(model)
        after = model.network(rows.columns).mean() / rows_energy(model, rows)
        dynamics = model.network.dynamics
        features = [dynamics(rows.columns, which) for which in ("observation", "next_observation")]
        predicted = dynamics.predicted_action(*features)
    assert after < 0.3 * before
    if discrete:
        assert (predicted.argmax(1) == data["action"].flatten()).float().mean() > 0.95
    else:
        assert torch.nn.functional.mse_loss(predicted, data["action"].flatten(0, 1)) < 0.2 * data["action"].var()


def rows_energy(model: Any, rows: Any) -> torch.Tensor:
    """The spread of the features, without which a smaller error means nothing."""
    return model.network.dynamics(rows.columns, "next_observation").var(0).sum()


def model_train(model: Any) -> None:
    with torch.enable_grad():
        model.train()


def test_the_episodic_part_of_ngu_falls_with_revisits_and_starts_anew_in_the_next_episode() -> None:
    model: Any = new("ngu", intrinsic_reward_type="assign").bind(*spaces_of())
    model.collect_data(make_rollout(2))
    here = torch.tensor([0.3, 0.0])
    path = torch.stack([torch.tensor([0.1 * t, 0.0]) for t in range(8)])
    stays, moves = here.expand(8, 2), path
    embed = model.network.embedding
    with torch.no_grad():
        first, still = (embed({"observation.state": x}, "observation") for x in (here[None] - 2, stays))
        walking = embed({"observation.state": moves}, "observation")
    fallen = model.episodic(first, still)
    assert (fallen.diff() < 0).all()
    assert fallen[-1] < 0.5 * model.episodic(first, walking)[-1]
    # By hand: the k-th revisit has k neighbours at distance 0 and one far away, each with the kernel 1 or nearly 0.
    assert float(fallen[4]) == pytest.approx(1 / (4**0.5 + 0.001), rel=0.01)
    assert torch.equal(model.episodic(first, still), fallen)


def test_ngu_gives_more_to_what_is_new_over_the_whole_training() -> None:
    model: Any = new("ngu", update_per_collect=200).bind(*spaces_of())
    model.collect_data(make_rollout(2))
    model.train()
    model.collect_data(make_rollout(3))
    data = make_rollout(4)
    far = data.clone()
    far["observation"] += 5
    far["next_observation"] += 5
    with torch.no_grad():
        errors = [model.network(model._read(d).columns)[2].mean() for d in (data, far)]
    assert errors[1] > 2 * errors[0]
    assert model.error_statistics.count == 240


def endless(steps: int, seed: int = 0) -> TensorDict:
    """A rollout of three environments whose episodes never end."""
    data = make_rollout(seed, steps=steps)
    for name in ("terminated", "truncated"):
        data[name] = torch.zeros_like(data[name])
    return data


def in_pieces(model: Any, data: TensorDict, sizes: list[int]) -> torch.Tensor:
    carried, rewards = None, []
    for piece in data.split(sizes):
        estimated, carried = model.estimate_next(piece, carried)
        rewards.append(estimated["reward"])
    return torch.cat(rewards)


class TestMemoryOfNGU:
    def test_rollouts_one_after_the_other_get_the_rewards_of_whole_episodes(self) -> None:
        model: Any = trained("ngu", nearest_neighbors=3, memory_size=7)
        data = make_rollout(5)  # episodes of 10 steps, cut within and at their ends
        whole = model.estimate(data)["reward"]
        torch.testing.assert_close(in_pieces(model, data, [4, 6, 13, 17]), whole)
        torch.testing.assert_close(in_pieces(model, endless(40), [1, 9, 30]), model.estimate(endless(40))["reward"])

    def test_the_memory_holds_the_latest_observations(self) -> None:
        """A place that was left behind is new again; with a memory as long as the episode it is not."""
        small: Any = new("ngu", memory_size=3, nearest_neighbors=1, intrinsic_reward_type="assign").bind(*spaces_of())
        large: Any = new("ngu", memory_size=99, nearest_neighbors=1, intrinsic_reward_type="assign").bind(*spaces_of())
        x = torch.tensor([0.0, 1, 2, 3, 4, 5, 0])[:, None] * torch.tensor([1.0, 0])
        data = TensorDict({"observation": x[:-1], "next_observation": x[1:], "action": torch.zeros(6).long()}, [6])
        few, all_ = (model.intrinsic(data) for model in (small, large))
        torch.testing.assert_close(few[:3], all_[:3])
        assert few[-1] > 5 * all_[-1]

    def test_distances_are_those_of_all_pairs(self) -> None:
        model: Any = new("ngu", memory_size=20, nearest_neighbors=4).bind(*spaces_of())
        generator = torch.Generator().manual_seed(0)
        earlier, after = (torch.randn(count, 16, generator=generator) for count in (5, 50))
        after[30:33] = after[29]  # equal places have the distance 0 exactly
        found = model._nearest(earlier, after)
        memory = torch.cat([earlier, after])
        for step in range(len(after)):
            before = memory[max(0, step + 5 - 20) : step + 5]
            expected = (before - after[step]).square().sum(1).sort().values[:4]
            torch.testing.assert_close(found[step], expected, rtol=1e-5, atol=1e-12)
        assert (found[30:33, 0] == 0).all()

    def test_the_cost_of_a_rollout_does_not_depend_on_the_length_of_its_episodes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model: Any = trained("ngu", memory_size=30)
        counts = {"embedded": 0, "compared": 0}
        forward, nearest = novelty.ObservationNetwork.forward, novelty._nearest_squared

        def counted_forward(self: Any, observation: Any, *rest: Any) -> Any:
            counts["embedded"] += len(next(iter(observation.values())))
            return forward(self, observation, *rest)

        def counted_nearest(points: Any, memory: Any, *rest: Any) -> Any:
            counts["compared"] += len(points) * len(memory)
            return nearest(points, memory, *rest)

        monkeypatch.setattr(novelty.ObservationNetwork, "forward", counted_forward)
        monkeypatch.setattr(novelty, "_nearest_squared", counted_nearest)
        carried, costs = None, []
        for seed in range(12):
            counts.update(embedded=0, compared=0)
            _, carried = model.estimate_next(endless(10, seed), carried)
            costs.append(dict(counts))
            assert all(len(memory) <= 30 for memory in carried)
        assert len({tuple(cost.values()) for cost in costs[3:]}) == 1  # once the memory is full
        assert costs[-1]["compared"] == 3 * 10 * (30 + 9)
        assert costs[-1]["embedded"] == 3 * (10 * 4 + 30)

    def test_an_end_empties_the_memory_of_its_environment_alone(self) -> None:
        model: Any = trained("ngu")
        data = endless(10)
        data["terminated"][-1, 1] = True
        _, carried = model.estimate_next(data, None)
        assert [len(memory) for memory in carried] == [11, 0, 11]
        with pytest.raises(DataError, match="the rollout has 2 environments, the one before it had 3"):
            model.estimate_next(data[:, :2], carried)
