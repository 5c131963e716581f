"""RND, ICM and NGU: what is seen often becomes worth less."""

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from zoo_toys import data_for, make_rollout, new, observed, spaces_of, trained

from rewardlab.errors import ConfigError


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
