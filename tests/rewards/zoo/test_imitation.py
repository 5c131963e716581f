"""Models that imitate: GAIL, guided cost, RED, PWIL and PDEIL prefer what is like the expert."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from zoo_toys import make_rollout, new, spaces_of, trained

from rewardlab.errors import ConfigError
from rewardlab.rewards.zoo.coupling import couple
from rewardlab.rewards.zoo.imitation import Gaussian


@pytest.mark.parametrize("name", ["gail", "guided_cost", "red", "pwil", "pdeil"])
@pytest.mark.parametrize("discrete", [True, False])
def test_the_expert_gets_more_than_a_wanderer(name: str, discrete: bool) -> None:
    model = trained(name, discrete=discrete, update_per_collect=200)
    expert = model.estimate(make_rollout(11, expert=True, discrete=discrete))["reward"]
    wanderer = model.estimate(make_rollout(12, discrete=discrete))["reward"]
    assert expert.mean() > wanderer.mean() + 0.1 * wanderer.std()
    assert float((expert.flatten()[:, None] > wanderer.flatten()).float().mean()) > 0.6


@pytest.mark.parametrize("name", ["gail", "guided_cost", "pdeil"])
def test_images_alone_tell_the_expert_apart(name: str) -> None:
    model = trained(name, view="images", update_per_collect=60)
    expert = model.estimate(make_rollout(11, expert=True, view="images"))["reward"]
    assert expert.mean() > model.estimate(make_rollout(12, view="images"))["reward"].mean()


class TestGAIL:
    def test_the_discriminator_separates_expert_from_policy(self) -> None:
        model: Any = trained("gail", update_per_collect=200, reward_form="logit")
        expert, policy = (
            model.estimate(make_rollout(seed, expert=e))["reward"] for seed, e in ((11, True), (12, False))
        )
        right = policy[make_rollout(12)["action"] == 1]  # what the expert does too
        wrong = policy[make_rollout(12)["action"] == 0]
        assert (expert > 0).float().mean() > 0.8
        assert (wrong < 0).float().mean() > 0.95
        assert right.mean() > wrong.mean()

    def test_the_forms_of_the_reward(self) -> None:
        data = make_rollout(2)  # what the policy collected
        model: Any = trained("gail", reward_form="logit")
        logit = model.estimate(data)["reward"]
        model.reward_form = "neg_log"
        positive = model.estimate(data)["reward"]
        assert torch.allclose(positive, -torch.log(1 - torch.sigmoid(logit)), atol=1e-5)
        with pytest.raises(ConfigError, match=r"unknown reward_form 'neglog'\. Did you mean 'neg_log'"):
            new("gail", reward_form="neglog")

    def test_the_centered_reward_pays_for_the_action_and_never_for_the_state(self) -> None:
        model: Any = trained("gail")
        data, flipped = make_rollout(5), make_rollout(5)
        flipped["action"] = 1 - flipped["action"]
        rewards, opposite = model.estimate(data)["reward"], model.estimate(flipped)["reward"]
        assert torch.allclose(rewards, -opposite, atol=1e-5)  # nothing is left of what both have: being there
        model.reward_form = "logit"
        logits = model.estimate(data)["reward"], model.estimate(flipped)["reward"]
        assert torch.allclose(rewards, (logits[0] - logits[1]) / 2, atol=1e-5)

    def test_continuous_actions_are_compared_with_some_of_the_policys(self) -> None:
        model: Any = trained("gail", discrete=False)
        reference = model.discriminator.reference
        taken = make_rollout(2, discrete=False)["action"].flatten(0, 1)
        assert all((taken == action).all(1).any() for action in reference)
        data = make_rollout(5, discrete=False)
        rewards = model.estimate(data)["reward"]
        model.reward_form = "logit"
        mean = torch.zeros(data.batch_size)
        for action in reference:
            other = data.clone()
            other["action"] = action.expand(*data.batch_size, 2).clone()
            mean += model.estimate(other)["reward"] / len(reference)
        assert torch.allclose(rewards, model.estimate(data)["reward"] - mean, atol=1e-4)

    def test_shaping_uses_the_next_observation_but_not_after_the_end(self) -> None:
        model: Any = trained("gail", airl_shaping=True, discount=0.5, reward_form="logit")
        data = make_rollout(5)
        elsewhere = data.clone()
        elsewhere["next_observation"] += 1
        changed = model.estimate(elsewhere)["reward"] != model.estimate(data)["reward"]
        assert torch.equal(changed, ~data["terminated"])
        rows = model._read(data)
        with torch.no_grad():
            bare = super(type(model.discriminator), model.discriminator).forward(rows.columns)
            potential = [
                model.discriminator.potential(model.discriminator.norm({"state": data[which].flatten(0, 1)})).squeeze(1)
                for which in ("observation", "next_observation")
            ]
        expected = bare + 0.5 * potential[1] * ~rows.columns["terminated"] - potential[0]
        assert torch.allclose(model.estimate(data)["reward"].flatten(), expected, atol=1e-6)


def test_guided_cost_weighs_by_the_policys_probability() -> None:
    model: Any = new("guided_cost").bind(*spaces_of())
    expert, policy = ({"observation.state": torch.full((2, 2), x), "action": torch.tensor([0, 1])} for x in (1.0, -1.0))
    with torch.no_grad():
        theirs, ours = model.network(expert), model.network(policy)
        policy["log_prob"] = torch.log(torch.tensor([0.25, 0.5]))
        total = (ours.exp() * torch.tensor([4.0, 2.0])).sum() + theirs.exp().sum()
        assert torch.allclose(model.network.learn(expert, policy), -theirs.mean() + torch.log(total / 4))


class TestRED:
    def test_the_mean_error_of_the_expert_gets_nine_tenths_and_it_is_fitted_once(self) -> None:
        model: Any = trained("red")
        expert = make_rollout(1, expert=True)
        rewards = model.estimate(expert)["reward"].flatten()
        assert math.exp(float(rewards.log().mean())) == pytest.approx(0.9, abs=0.01)
        model.train()
        assert torch.equal(model.estimate(expert)["reward"].flatten(), rewards)
        model.load_expert_data(make_rollout(3))
        model.train()
        assert not torch.equal(model.estimate(expert)["reward"].flatten(), rewards)

    def test_sigma_can_be_given(self) -> None:
        assert float(trained("red", sigma=2.5).network.sigma) == 2.5  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match="sigma: found 0"):
            new("red", sigma=0)


def line(positions: list[float], actions: list[float] | None = None) -> TensorDict:
    count = len(positions)
    columns = {
        "observation": torch.tensor(positions)[:, None],
        "action": torch.tensor(actions or [0.0] * count)[:, None],
        "terminated": torch.arange(count) == count - 1,
    }
    return TensorDict(columns, batch_size=[count])


class TestPWIL:
    def model(self, expert: list[float], **settings: Any) -> Any:
        model = new("pwil", obs_shape=1, action_shape=[1], **settings)
        model.load_expert_data(line(expert))
        return model

    def test_rewards_by_hand(self) -> None:
        """Two atoms at -1 and 1 (standardised as they are), half the mass of the episode a step."""
        model = self.model([-1.0, 1.0])
        beta_t_over_root = 5 * 2 / math.sqrt(2)
        rewards = model.estimate(line([1.0, 1.0]))["reward"]
        # The second step finds its atom used up: it must go to the other, at distance 2, with the mass 1/2.
        assert rewards.tolist() == pytest.approx([5.0, 5 * math.exp(-beta_t_over_root * 0.5 * 2)], rel=1e-5)
        rewards = model.estimate(line([1.0, -1.0]))["reward"]
        assert rewards.tolist() == pytest.approx([5.0, 5.0])

    def test_equal_values_are_equal_whoever_holds_them(self) -> None:
        model = self.model([-1.0, 1.0])
        batch = line([-1.0, 1.0])
        assert torch.equal(model.estimate(batch)["reward"], model.estimate(batch.clone())["reward"])
        assert model.estimate(batch)["reward"].tolist() == pytest.approx([5, 5])

    def test_a_step_may_take_several_atoms_or_a_part_of_one(self) -> None:
        """Four atoms, two steps: each takes the two nearest. One atom, two steps: each takes half."""
        model = self.model([-3.0, -1.0, 1.0, 3.0], horizon=2)
        std = math.sqrt(5)
        near, far = (0.25 * 1 / std + 0.25 * 1 / std, 0.25 * 3 / std + 0.25 * 3 / std)
        scale = 5 * 2 / math.sqrt(2)
        rewards = model.estimate(line([0.0, 0.0]))["reward"]
        assert rewards.tolist() == pytest.approx([5 * math.exp(-scale * near), 5 * math.exp(-scale * far)], rel=1e-5)
        assert self.model([2.0], horizon=2).estimate(line([2.0, 2.0]))["reward"].tolist() == pytest.approx([5, 5])

    def test_after_the_last_atom_there_is_nothing(self) -> None:
        model = self.model([-1.0, 1.0])
        assert model.estimate(line([1.0, -1.0, 0.0]))["reward"].tolist() == pytest.approx([5, 5, 0])

    def test_each_episode_of_a_batch_has_all_atoms(self) -> None:
        model = self.model([-1.0, 1.0])
        one, two = line([1.0, 1.0]), line([-1.0, 1.0])
        joined = model.estimate(torch.cat([one, two]))["reward"]
        assert torch.equal(joined, torch.cat([model.estimate(one)["reward"], model.estimate(two)["reward"]]))
        rollout = torch.stack([one, two], dim=1)
        assert torch.equal(model.estimate(rollout)["reward"].T.flatten(), joined)


def coupled_step_by_step(points: Any, atoms: Any, owed: float, mass: Any) -> list[float]:
    """The definition: go through all atoms in the order of their distance, and take what is left of each."""
    costs = []
    for point in points:
        due, cost = owed, 0.0
        distance = np.sqrt(np.square(atoms - point).sum(1))
        for atom in np.argsort(distance):
            taken = min(due, mass[atom])
            mass[atom] -= taken
            due -= taken
            cost += taken * distance[atom]
        costs.append(cost if due < 1e-12 else math.inf)
    return costs


class TestCoupling:
    @pytest.mark.parametrize(("atoms", "horizon"), [(40, 40), (200, 20), (7, 40), (90, 37)])
    @pytest.mark.parametrize("spread", [0.0, 0.1, 3.0])
    def test_costs_are_those_of_the_definition(self, atoms: int, horizon: int, spread: float) -> None:
        """With points at one place, on a path, and anywhere; the last ones find no mass left."""
        rng = np.random.default_rng(0)
        expert = rng.normal(size=(atoms, 3))
        points = rng.normal(size=3) + spread * rng.normal(size=(horizon + 5, 3))
        mass, expected_mass = np.full(atoms, 1 / atoms), np.full(atoms, 1 / atoms)
        costs = couple(points, expert, 1 / horizon, mass)
        expected = coupled_step_by_step(points, expert, 1 / horizon, expected_mass)
        np.testing.assert_allclose(costs, expected, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(mass, expected_mass, atol=1e-12)
        assert np.isinf(costs).sum() == 5

    def test_rollouts_one_after_the_other_get_the_rewards_of_whole_episodes(self) -> None:
        model: Any = trained("pwil")
        data = make_rollout(5)  # episodes of 10 steps, cut within and at their ends
        carried, rewards = None, []
        for piece in data.split([4, 6, 13, 17]):
            estimated, carried = model.estimate_next(piece, carried)
            rewards.append(estimated["reward"])
            assert carried.shape == (3, 120)  # what is left of the atoms, however long the episodes are
        torch.testing.assert_close(torch.cat(rewards), model.estimate(data)["reward"])


class TestPDEIL:
    def test_a_constant_action_is_not_singular(self) -> None:
        model = new("pdeil", obs_shape=1, action_shape=[1])
        model.load_expert_data(line([0.1, 0.2, 0.3, 0.4], [0.5] * 4))
        same, other = (model.estimate(line([0.25], [a]))["reward"] for a in (0.5, 0.9))
        assert float(same) == pytest.approx(2, rel=0.01)
        assert float(other) == pytest.approx(0, abs=1e-6)

    def test_an_action_that_the_expert_never_took_is_improbable(self) -> None:
        model: Any = new("pdeil").bind(*spaces_of())
        model.load_expert_data(make_rollout(1, expert=True))  # always 1
        data = make_rollout(1, expert=True)
        taken = model.estimate(data)["reward"]
        data["action"] = torch.zeros_like(data["action"])
        assert model.estimate(data)["reward"].mean() < 0.05 * taken.mean()

    def test_the_ratio_of_densities_by_hand(self) -> None:
        """Expert around 0, policy around 1, both of variance 1; a is certain: r = pe / (pe/2 + pp/2)."""
        model: Any = new("pdeil", obs_shape=1, action_shape=1, ridge=1e-9)
        states = [-1.0, 1.0]
        expert = TensorDict({"observation": torch.tensor(states)[:, None], "action": torch.zeros(2).long()}, [2])
        policy = expert.clone()
        policy["observation"] += 1
        model.load_expert_data(expert)
        model.collect_data(policy)
        model.train()
        reward = float(
            model.estimate(TensorDict({"observation": torch.zeros(1, 1), "action": torch.zeros(1).long()}, [1]))[
                "reward"
            ]
        )
        pe, pp = math.exp(0), math.exp(-0.5)
        assert reward == pytest.approx(pe / (0.5 * pe + 0.5 * pp), rel=1e-5)

    def test_densities_agree_with_torch(self) -> None:
        rows = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        gaussian = Gaussian(3, ridge=1e-3)
        gaussian.fit(rows)
        covariance = torch.cov(rows.T, correction=0) + 1e-3 * torch.eye(3)
        expected = torch.distributions.MultivariateNormal(rows.mean(0), covariance).log_prob(rows)
        assert torch.allclose(gaussian(rows), expected)


def test_a_broken_observation_is_not_hidden_and_takes_nothing_from_the_steps_after_it() -> None:
    rng = np.random.default_rng(0)
    points, atoms, mass = rng.normal(size=(6, 2)), rng.normal(size=(20, 2)), np.full(20, 1 / 20)
    points[2] = np.nan
    costs = couple(points, atoms, 1 / 20, mass)
    assert np.isnan(costs[2])
    assert np.isfinite(np.delete(costs, 2)).all()
    assert mass.sum() == pytest.approx(1 - 5 / 20)
