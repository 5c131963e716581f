"""Networks that act: distributions against torch's, randomness, running statistics, the spaces they refuse."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import distributions

from rewardlab.config.schema import PolicyModelConfig, SACConfig
from rewardlab.errors import ConfigError
from rewardlab.models.critics import make_critics
from rewardlab.models.encoders import make_encoder
from rewardlab.models.image_shift import random_shift
from rewardlab.models.policy_networks import make_actor_critic, make_q_network, make_squashed_actor
from rewardlab.models.running_stats import RunningMeanStd

STATE = spaces.Box(-1, 1, (3,), np.float32)
BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 1], np.float32))
DISCRETE = spaces.Discrete(4)
SMALL = PolicyModelConfig(hidden_sizes=(8,))


def pictures(height: int, width: int, *cameras: str) -> spaces.Dict:
    box = spaces.Box(0, 255, (height, width, 3), np.uint8)
    return spaces.Dict({"images": spaces.Dict({camera: box for camera in cameras})})


def states(count: int = 5) -> TensorDict:
    state = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    return TensorDict({"state": state}, batch_size=[count])


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_gaussian_probabilities_and_entropy_are_those_of_torch() -> None:
    network = make_actor_critic(STATE, BOX, PolicyModelConfig(hidden_sizes=(8,), init_std=0.3), seed=0)
    answer = network.act(states(), dice())
    log_prob, entropy, value = network.evaluate(states(), answer["action"])
    mean = network.actor(network.encoder(states()))
    expected = distributions.Independent(distributions.Normal(mean, torch.tensor(0.3)), 1)
    assert torch.allclose(log_prob, expected.log_prob(answer["action"]), atol=1e-5)
    assert torch.allclose(entropy, expected.entropy(), atol=1e-5)
    assert torch.allclose(log_prob, answer["log_prob"])
    assert torch.equal(value, network.value(states()))


def test_categorical_actions_come_as_often_as_they_should() -> None:
    network = make_actor_critic(STATE, DISCRETE, SMALL, seed=0)
    with torch.no_grad():
        network.actor[-1].bias.copy_(torch.tensor([0.5, 0.25, 0.2, 0.05]).log())
        network.actor[-1].weight.zero_()
    answer = network.act(states(20_000), dice())
    often = answer["action"].bincount(minlength=4) / 20_000
    assert often.tolist() == pytest.approx([0.5, 0.25, 0.2, 0.05], abs=0.015)
    assert torch.allclose(answer["log_prob"].exp(), torch.tensor([0.5, 0.25, 0.2, 0.05])[answer["action"]])
    assert network.act(states(), dice(), explore=False)["action"].tolist() == [0] * 5


def test_squashed_probabilities_are_those_of_torch_and_actions_stay_in_their_box() -> None:
    actor = make_squashed_actor(STATE, BOX, SMALL, seed=0)
    with torch.no_grad():
        actor.head[-1].bias.copy_(torch.tensor([2.0, -3.0, 0.5, 0.5]))  # far into the tanh
    features = actor.encoder(states(500))
    action, log_prob = actor.sample(features, dice())
    mean, log_std = actor.head(features).chunk(2, dim=-1)
    squash = distributions.TanhTransform()
    expected = distributions.TransformedDistribution(distributions.Normal(mean, log_std.exp()), [squash])
    unit = actor.action_range.to_unit(action).clamp(-1 + 1e-6, 1 - 1e-6)
    inside = (unit.abs() < 0.999).all(-1)  # beyond it torch's way back through tanh has lost its digits
    assert inside.sum() > 50
    assert torch.allclose(log_prob[inside], expected.log_prob(unit).sum(-1)[inside], atol=1e-2)
    assert (action >= torch.tensor(BOX.low)).all()
    assert (action <= torch.tensor(BOX.high)).all()
    best = actor.act(states(500), dice(), explore=False)["action"]
    assert torch.allclose(best, torch.tensor([0.0, 0.5]) + torch.tensor([2.0, 0.5]) * mean.tanh(), atol=1e-6)


def test_acting_depends_on_the_generator_alone() -> None:
    for network in (
        make_actor_critic(STATE, BOX, SMALL, 0),
        make_actor_critic(STATE, DISCRETE, SMALL, 0),
        make_squashed_actor(STATE, BOX, SMALL, 0),
        make_q_network(STATE, DISCRETE, SMALL, 0),
    ):
        before = torch.get_rng_state()
        first, again, other = (network.act(states(50), dice(seed))["action"] for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert torch.equal(torch.get_rng_state(), before)
        greedy = [network.act(states(50), dice(seed), explore=False)["action"] for seed in (1, 2)]
        assert torch.equal(*greedy)


def test_epsilon_is_the_share_of_random_actions_and_travels_with_the_weights() -> None:
    network = make_q_network(STATE, DISCRETE, SMALL, 0)
    greedy = network.act(states(10_000), dice(), explore=False)["action"]
    network.epsilon.fill_(0.4)
    differ = (network.act(states(10_000), dice())["action"] != greedy).float().mean()
    assert differ.item() == pytest.approx(0.4 * 3 / 4, abs=0.02)
    other = make_q_network(STATE, DISCRETE, SMALL, 1)
    other.load_state_dict(network.state_dict())
    assert other.epsilon.item() == pytest.approx(0.4)


@pytest.mark.parametrize("size", [(32, 32), (64, 48), (84, 84), (128, 200)])
def test_pictures_of_any_size_and_number_of_cameras(size: tuple[int, int]) -> None:
    space = spaces.Dict({"state": STATE, **pictures(*size, "hand", "base_camera").spaces})
    network = make_actor_critic(space, BOX, PolicyModelConfig(kind="cnn", hidden_sizes=(8,)), 0)
    images = {c: torch.randint(0, 256, (2, 3, *size, 3), dtype=torch.uint8) for c in ("base_camera", "hand")}
    observation = TensorDict({"state": torch.randn(2, 3, 3), "images": images}, batch_size=[2, 3])
    value = network.value(observation)
    assert value.shape == (2, 3)
    assert torch.allclose(network.value(observation[1]), value[1], atol=1e-5)
    swapped = TensorDict(
        {**observation, "images": {"hand": images["base_camera"], "base_camera": images["hand"]}}, [2, 3]
    )
    assert not torch.allclose(network.value(swapped), value)


@pytest.mark.parametrize("name", ["state", "observation"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_policy_sees_the_goal_beside_the_state_and_not_what_is_achieved(name: str, normalize: bool) -> None:
    goal = spaces.Box(-1, 1, (2,), np.float32)
    space = spaces.Dict({name: STATE, "achieved_goal": goal, "desired_goal": goal})
    encoder = make_encoder(space, "mlp", normalize)
    parts = {"state": torch.randn(50, 3), "achieved_goal": torch.randn(50, 2), "desired_goal": 9 + torch.randn(50, 2)}
    encoder.update_statistics(TensorDict(parts, batch_size=[50]))
    features = encoder(TensorDict(parts, batch_size=[50]))
    seen = torch.cat([parts["state"], parts["desired_goal"]], -1)
    expected = (seen - seen.mean(0)) / seen.std(0, unbiased=False) if normalize else seen
    assert encoder.size == 5
    assert torch.allclose(features, expected, atol=1e-4)


def test_an_ensemble_is_its_members_side_by_side() -> None:
    actor = make_squashed_actor(STATE, BOX, SMALL, 0)
    critics = make_critics(actor, SMALL, SACConfig(num_critics=3, critic_layer_norm=True), seed=1)
    features, action = torch.randn(7, 3), torch.rand(7, 2)
    together = critics(features, action)
    first, norm, _, last = critics.layers
    inputs = torch.cat([features, action / torch.tensor([2.0, 0.5]) - torch.tensor([0.0, 1.0])], -1)
    for k in range(3):
        hidden = inputs @ first.weight[k] + first.bias[k]
        hidden = torch.nn.functional.layer_norm(hidden, (8,)) * norm.weight[k] + norm.bias[k]
        alone = (hidden.relu() @ last.weight[k] + last.bias[k]).squeeze(-1)
        assert torch.allclose(together[k], alone, atol=1e-6)
    assert not torch.allclose(together[0], together[1])


def test_running_statistics_are_those_of_all_rows_whatever_the_pieces_and_are_saved() -> None:
    rows = 1e4 + torch.randn(1000, 3, generator=dice())
    stats = RunningMeanStd((3,))
    for piece in rows.split([1, 400, 0, 599]):
        stats.update(piece)
    assert torch.allclose(stats.mean, rows.double().mean(0))
    assert torch.allclose(stats.variance, rows.double().var(0, unbiased=False))
    other = RunningMeanStd((3,))
    other.load_state_dict(stats.state_dict())
    assert torch.equal(other(rows), stats(rows))
    assert stats(rows + 1e6).max() == 10


def test_a_shift_moves_a_picture_and_repeats_its_border() -> None:
    images = torch.arange(64.0).reshape(1, 8, 8, 1).repeat(200, 1, 1, 1)
    moved = random_shift(images, dice())
    by_hand = set()
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            rows = (torch.arange(8) + down).clamp(0, 7)
            columns = (torch.arange(8) + right).clamp(0, 7)
            by_hand.add(tuple(images[0][rows][:, columns].flatten().tolist()))
    assert {tuple(picture.flatten().tolist()) for picture in moved} == by_hand


@pytest.mark.parametrize(
    ("space", "kind", "words"),
    [
        (STATE, "cnn", "actor.model.kind: found 'cnn', expected 'mlp'"),
        (pictures(32, 32, "hand"), "mlp", "expected 'cnn', because the observations are images of hand"),
        (pictures(16, 64, "hand"), "cnn", r"camera 'hand' have shape \[16, 64, 3\]; expected .* at least 32"),
        (spaces.Dict({"position": STATE}), "mlp", "expected states, pictures, or a dictionary"),
        (spaces.Dict({"state": STATE, "desired_goal": DISCRETE}), "mlp", "expected states, pictures, or a dictionary"),
        (spaces.Dict({"achieved_goal": STATE, "desired_goal": STATE}), "mlp", "neither a state nor images"),
    ],
)
def test_observations_that_do_not_fit_are_refused(space: Any, kind: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_actor_critic(space, BOX, PolicyModelConfig(kind=kind), 0)


def test_actions_that_an_algorithm_cannot_take_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"sac needs actions with finite bounds; .* Use ppo"):
        make_squashed_actor(STATE, spaces.Box(-np.inf, np.inf, (2,), np.float32), SMALL, 0)
    with pytest.raises(ConfigError, match=r"sac needs a Box of actions"):
        make_squashed_actor(STATE, DISCRETE, SMALL, 0)
    with pytest.raises(ConfigError, match=r"dqn needs a Discrete action space; .* Use sac or ppo"):
        make_q_network(STATE, BOX, SMALL, 0)
    with pytest.raises(ConfigError, match=r"ppo needs a Box of actions"):
        make_actor_critic(STATE, spaces.MultiBinary(3), SMALL, 0)
