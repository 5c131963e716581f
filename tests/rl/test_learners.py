"""What holds for every algorithm: resumed runs, seeds, gradients, refusal of NaN."""

import io
from typing import Any

import pytest
import torch
from rl_toys import DISCRETE, OPTIM, Case, make_dqn, make_ppo, make_sac, random_rollout, random_transitions
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.errors import DataError
from rewardlab.models.precision import bf16_speed


def tensors(state: Any, prefix: str = "") -> dict[str, Any]:
    """Everything in a nested state, flat."""
    if isinstance(state, dict):
        pairs = state.items()
    elif isinstance(state, (list, tuple)):
        pairs = enumerate(state)
    else:
        return {prefix: state}
    return {key: value for name, inner in pairs for key, value in tensors(inner, f"{prefix}.{name}").items()}


def same(first: Any, second: Any) -> bool:
    one, two = tensors(first), tensors(second)
    assert one.keys() == two.keys()
    return all(torch.equal(v, two[k]) if isinstance(v, Tensor) else v == two[k] for k, v in one.items())


def train(learner: Any, data: Any, seeds: range) -> None:
    for seed in seeds:
        learner.set_progress(seed, 10)
        learner.learn(data(learner, seed))


def test_a_resumed_run_equals_an_unbroken_one(case: Case) -> None:
    make, data = case
    unbroken = make(0)
    train(unbroken, data, range(3))
    file = io.BytesIO()
    torch.save(unbroken.state_dict(), file)
    file.seek(0)
    resumed = make(99)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert same(resumed.state_dict(), unbroken.state_dict())
    train(unbroken, data, range(3, 6))
    train(resumed, data, range(3, 6))
    assert same(resumed.state_dict(), unbroken.state_dict())


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(case: Case) -> None:
    make, data = case
    learners = [make(seed) for seed in (3, 3, 4)]
    for learner in learners:
        torch.manual_seed(id(learner) % 2**31)  # the global generator must not matter
        train(learner, data, range(2))
    assert same(learners[0].state_dict(), learners[1].state_dict())
    assert not same(learners[0].state_dict(), learners[2].state_dict())


def test_every_trainable_weight_is_trained(case: Case) -> None:
    make, data = case
    learner = make(0)
    networks = {name: part for name, part in vars(learner).items() if isinstance(part, nn.Module)}
    weights = {
        f"{name}.{key}": weight
        for name, network in networks.items()
        for key, weight in network.named_parameters()
        if weight.requires_grad
    }
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    train(learner, data, range(4))
    assert [name for name, weight in weights.items() if torch.equal(weight, before[name])] == []


@pytest.mark.skipif(bf16_speed(torch.device("cpu")) == 0, reason="this CPU does not compute in bf16")
@pytest.mark.parametrize("make", [make_ppo, make_sac, make_dqn])
def test_mixed_precision_learns_nearly_the_same_with_weights_in_float32(make: Any) -> None:
    learners = [make(0), make(0, precision="bf16")]
    data = {
        make_ppo: random_rollout(learners[0], 0),
        make_sac: random_transitions(0),
        make_dqn: random_transitions(0, DISCRETE),
    }[make]
    figures = [learner.learn(data) for learner in learners]
    assert figures[0] == pytest.approx(figures[1], rel=0.1, abs=0.02)
    one, other = (tensors(learner.policy.state_dict()) for learner in learners)
    assert {name: weight.dtype for name, weight in one.items()} == {
        name: weight.dtype for name, weight in other.items()
    }
    assert not same(one, other)


@pytest.mark.parametrize("key", ["reward", ("observation", "state"), ("observation", "desired_goal")])
def test_nan_is_refused_by_name_and_place_before_anything_changes(case: Case, key: Any) -> None:
    make, data = case
    learner = make(0)
    batch = data(learner, 0)
    on_policy = batch.batch_dims == 2
    batch["observation", "desired_goal"] = torch.zeros(*batch.batch_size, 2)
    batch[key][(4, 1) if on_policy else 4] = torch.nan
    before = io.BytesIO()
    torch.save(learner.state_dict(), before)
    before.seek(0)
    name = key if isinstance(key, str) else r"\.".join(key)
    with pytest.raises(DataError, match=rf"{name} is nan in {'step 5 of environment 1' if on_policy else 'row 4'}"):
        learner.learn(batch)
    assert same(learner.state_dict(), torch.load(before, weights_only=True))


def test_ppo_refuses_a_value_it_would_bootstrap_from_and_reads_none_after_an_end() -> None:
    learner = make_ppo()
    rollout = random_rollout(learner, 0)
    rollout["next_value"][2, 1] = torch.inf
    rollout["terminated"][2, 1] = True
    learner.learn(rollout)
    rollout["terminated"][2, 1] = False
    with pytest.raises(DataError, match="next_value is inf in step 3 of environment 1"):
        learner.learn(rollout)


def test_figures_are_finite_numbers(case: Case) -> None:
    make, data = case
    learner = make(0)
    figures = learner.learn(data(learner, 0))
    assert figures
    assert all(isinstance(value, float) and abs(value) < 1e6 for value in figures.values())


def test_rates_follow_the_progress_of_the_run() -> None:
    learner = make_sac()
    learner.set_progress(50, 100)
    for optimizer in (learner.actor_optimizer, learner.critic_optimizer, learner.alpha_optimizer):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.55 * OPTIM.lr)


def test_ppo_measures_observations_only_after_its_epochs() -> None:
    learner = make_ppo()
    rollout = random_rollout(learner, 0)
    seen: list[Tensor] = []
    evaluate = learner.network.evaluate

    def spy(observation: TensorDict, action: Tensor) -> Any:
        assert learner.network.encoder.normalizer is not None
        seen.append(learner.network.encoder.normalizer.mean.clone())
        return evaluate(observation, action)

    learner.network.evaluate = spy  # type: ignore[method-assign]
    learner.learn(rollout)
    assert all(torch.equal(mean, torch.zeros(3).double()) for mean in seen)
    state = rollout["observation", "state"].reshape(-1, 3).double()
    assert torch.allclose(learner.state_dict()["network"]["encoder.normalizer.mean"], state.mean(0))


def test_ppo_sees_no_change_of_policy_in_its_first_minibatch() -> None:
    learner = make_ppo()
    learner.batch_size = 1000
    learner.learn(random_rollout(learner, 0))
    rollout = random_rollout(learner, 1)  # now with statistics of the first
    log_prob, _, value = learner.network.evaluate(rollout["observation"], rollout["action"])
    assert torch.allclose(log_prob, rollout["log_prob"], atol=1e-6)
    assert torch.allclose(value, rollout["value"], atol=1e-6)


def test_ppo_losses_by_hand() -> None:
    learner = make_ppo(value_clip=0.1)
    ratio, advantage = torch.tensor([1.5, 0.5, 1.0, 1.0]), torch.tensor([1.0, 1.0, -1.0, -1.0])
    scale = advantage.std()
    # 1.5 is clipped to 1.2 because its advantage is good; 0.5 is not, because clipping would help it.
    assert learner._policy_loss(ratio, advantage).item() == pytest.approx(float(-(1.2 + 0.5 - 2) / 4 / scale))
    loss = learner._value_loss(torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([3.0]))
    assert loss.item() == pytest.approx((1.1 - 3.0) ** 2)


def test_ppo_stops_early_when_the_policy_moved_too_far() -> None:
    learner = make_ppo(target_kl=1e-9)
    learner.learn(random_rollout(learner, 0))
    steps = {int(state["step"]) for state in learner.optimizer.state.values()}
    assert steps == {3}  # 21 samples in minibatches of at most 8: one epoch of the two


def test_ppo_scales_rewards_by_the_deviation_of_discounted_returns() -> None:
    learner = make_ppo(normalize_reward=True)
    assert learner.reward_scale is not None
    reward = torch.tensor([[1.0], [2.0], [4.0]])
    done = torch.tensor([[False], [True], [False]])
    scaled = learner.reward_scale(reward, done)
    discounted = torch.tensor([1.0, 2.9, 4.0])  # gamma 0.9; an episode starts at the third
    assert torch.allclose(scaled, reward / discounted.std(unbiased=False))


@pytest.mark.parametrize("backup_entropy", [True, False])
def test_sac_target_by_hand(backup_entropy: bool) -> None:
    learner = make_sac(num_critics=3, backup_entropy=backup_entropy)
    batch = random_transitions(0)
    generator = torch.Generator()
    generator.set_state(learner._generator.get_state())
    target = learner.target(batch["reward"], batch["terminated"], batch["next_observation"])
    features = learner.actor.encoder(batch["next_observation"])
    with torch.no_grad():
        action, log_prob = learner.actor.sample(features, generator)
        q = learner.target_critics(features, action)
    for i in range(len(batch)):
        following = min(float(q[k, i]) for k in range(3)) - backup_entropy * 1.0 * float(log_prob[i])
        expected = float(batch["reward"][i]) + (0 if batch["terminated"][i] else 0.9 * following)
        assert float(target[i]) == pytest.approx(expected, abs=1e-5)


def test_sac_draws_a_new_subset_of_critics_for_each_target() -> None:
    learner = make_sac(num_critics=4, critic_subset=1)
    with torch.no_grad():
        last = learner.target_critics.layers[-1]
        last.weight.zero_()
        last.bias.copy_(torch.arange(4.0)[:, None, None])
        learner.log_alpha.fill_(-50.0)  # no entropy in the target
    follows, alive = random_transitions(0)["next_observation"], torch.zeros(12, dtype=torch.bool)
    drawn = {round(float(learner.target(torch.zeros(12), alive, follows)[0]) / 0.9) for _ in range(40)}
    assert drawn == {0, 1, 2, 3}


def test_sac_tunes_its_temperature_towards_the_target_entropy() -> None:
    learner = make_sac()
    start = learner.log_alpha.item()
    figures = learner.learn(random_transitions(0))
    assert (figures["entropy"] > learner.target_entropy) == (learner.log_alpha.item() < start)
    assert learner.target_entropy == -2.0


def test_sac_moves_the_actor_once_per_policy_delay() -> None:
    learner = make_sac(utd_ratio=3.0)
    has_actor = ["actor_loss" in learner.learn(random_transitions(seed)) for seed in range(6)]
    assert has_actor == [False, False, True, False, False, True]


def test_sac_targets_follow_at_the_speed_tau() -> None:
    learner = make_sac(tau=0.25)
    before = [p.clone() for p in learner.target_critics.layers.parameters()]
    learner.learn(random_transitions(0))
    for old, now, online in zip(
        before, learner.target_critics.layers.parameters(), learner.critics.layers.parameters(), strict=True
    ):
        assert torch.allclose(now, 0.75 * old + 0.25 * online, atol=1e-7)


def test_dqn_target_by_hand() -> None:
    learner = make_dqn()
    batch = random_transitions(0, DISCRETE)
    for parameter in learner.network.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    online, frozen = learner.network(batch["next_observation"]), learner.target_network(batch["next_observation"])
    assert not torch.equal(online.argmax(-1), frozen.argmax(-1))  # or the test could not tell double Q from Q
    target = learner.target(batch["reward"], batch["terminated"], batch["next_observation"])
    for i in range(len(batch)):
        following = float(frozen[i, int(online[i].argmax())])
        expected = float(batch["reward"][i]) + (0 if batch["terminated"][i] else 0.9 * following)
        assert float(target[i]) == pytest.approx(expected, abs=1e-5)


def test_dqn_explores_less_as_the_run_goes_on_and_copies_its_target_in_time() -> None:
    learner = make_dqn(epsilon_start=0.8, epsilon_end=0.2, epsilon_steps=100)
    for env_steps, epsilon in ((0, 0.8), (50, 0.5), (100, 0.2), (1000, 0.2)):
        learner.set_progress(env_steps, 1000)
        assert learner.policy.epsilon.item() == pytest.approx(epsilon)
    start = learner.target_network.head[0].weight.clone()
    learner.learn(random_transitions(0, DISCRETE))
    assert torch.equal(learner.target_network.head[0].weight, start)
    learner.learn(random_transitions(1, DISCRETE))
    assert torch.equal(learner.target_network.head[0].weight, learner.network.head[0].weight)
