"""What every registered reward model promises, whatever it computes."""

import builtins
import copy
import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from zoo_toys import (
    ALL_MODELS,
    CLASSIFIERS,
    EPISODIC,
    EXPERT_MODELS,
    NOVELTY_MODELS,
    TRANSITION_MODELS,
    as_list,
    data_for,
    feed,
    make_rollout,
    new,
    ranked_trajectories,
    spaces_of,
    trained,
)

from rewardlab.envs import make_vec_env
from rewardlab.errors import ConfigError, DataError
from rewardlab.observations import as_observation
from rewardlab.rewards import BaseRewardModel, create_reward_model, load_reward_model
from rewardlab.rewards.base import REWARD_MODELS
from rewardlab.rewards.zoo.transition_model import TransitionRewardModel
from rewardlab.rewards.zoo.transitions import Rows


def snapshot(model: BaseRewardModel) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_toys_cover_the_whole_registry() -> None:
    assert set(ALL_MODELS) == {*CLASSIFIERS, *TRANSITION_MODELS, "her"}


@pytest.mark.parametrize("name", ALL_MODELS)
def test_estimating_twice_gives_the_same_and_changes_neither_data_nor_model(name: str) -> None:
    model, data = trained(name), data_for(name)
    state, before = snapshot(model), data.clone()
    first, second = model.estimate(data), model.estimate(data)
    assert torch.equal(first["reward"], second["reward"])
    assert torch.equal(model.estimate(first)["reward"], first["reward"])
    assert first["reward"].dtype == torch.float32
    assert first["reward"].isfinite().all()
    assert not first["reward"].requires_grad
    assert torch.equal(first["env_reward"], before["reward"])
    assert (data == before).all()
    assert data.keys() == before.keys()
    assert same(snapshot(model), state)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_train_with_data_collects_it_first(name: str) -> None:
    data = data_for(name)
    models = [copy.deepcopy(trained(name)), copy.deepcopy(trained(name))]
    models[0].collect_data(data)
    models[0].train()
    models[1].train(data)
    assert same(snapshot(models[0]), snapshot(models[1]))


def test_a_class_whose_train_asks_for_data_is_given_what_was_collected() -> None:
    class Asks(BaseRewardModel):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def estimate(self, data: Any) -> Any: ...
        def collect_data(self, data: Any) -> None: ...
        def clear_data(self, iter: int) -> None: ...
        def train(self, data: Any) -> None:
            self.seen.append(data)

    model = Asks()
    model.cotrain([1, 2], iter=0)
    model.train([3])
    assert model.seen == [[1, 2], [3]]


@pytest.mark.parametrize("name", ALL_MODELS)
def test_saved_and_loaded_it_estimates_the_same(name: str, tmp_path: Path) -> None:
    model, data = trained(name), data_for(name)
    loaded = load_reward_model(model.save(tmp_path / "model"))
    assert type(loaded) is type(model)
    assert torch.equal(loaded.estimate(data)["reward"], model.estimate(data)["reward"])
    assert same(snapshot(loaded), snapshot(model))
    other = new(name)
    other.load(tmp_path / "model")
    assert torch.equal(other.estimate(data)["reward"], model.estimate(data)["reward"])


@pytest.mark.parametrize("name", ALL_MODELS)
def test_a_constructor_reads_no_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new(name)  # what it imports late is imported now

    def refuse(*arguments: object, **keywords: object) -> None:
        raise AssertionError(f"opened {arguments}")

    for place, function in ((builtins, "open"), (io, "open"), (os, "open")):
        monkeypatch.setattr(place, function, refuse)
    settings = {"expert_data_path": "/nowhere"} if name in EXPERT_MODELS else {}
    assert isinstance(REWARD_MODELS[name](**settings), BaseRewardModel)


@pytest.mark.parametrize("name", sorted({*TRANSITION_MODELS} - {"pwil", "pdeil"}))
@pytest.mark.parametrize("view", ["state", "state+images"])
def test_every_trainable_parameter_gets_a_gradient(name: str, view: Any) -> None:
    model = trained(name, view=view, update_per_collect=1)
    assert isinstance(model, TransitionRewardModel)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert trainable
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in trainable)


@pytest.mark.parametrize("name", sorted({*ALL_MODELS} - {*EPISODIC}))
def test_a_transition_has_one_reward_whatever_batch_it_is_in(name: str) -> None:
    model, data = trained(name), data_for(name).flatten()
    together = model.estimate(data)["reward"]
    alone = torch.cat([model.estimate(data[i : i + 1])["reward"] for i in range(len(data))])
    assert torch.allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("name", EPISODIC)
def test_an_episode_has_one_reward_whatever_batch_it_is_in(name: str) -> None:
    model, data = trained(name), data_for(name)
    together = model.estimate(data)["reward"]
    for environment in range(data.batch_size[1]):
        apart = model.estimate(data[:, environment])["reward"]
        assert torch.allclose(together[:, environment], apart, atol=1e-5)
        assert torch.allclose(apart[:10], model.estimate(data[:10, environment])["reward"], atol=1e-5)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_a_list_of_dictionaries_gives_the_numbers_of_the_batch(name: str) -> None:
    model, data = trained(name), data_for(name)
    flat = data.reshape(-1) if name in CLASSIFIERS else data[:, 0]  # in time order; `done` has no truncation
    if name not in CLASSIFIERS:
        assert flat["terminated"].any()
    estimated = model.estimate(as_list(flat))
    assert isinstance(estimated, list)
    expected = model.estimate(flat)["reward"]
    assert torch.allclose(torch.stack([item["reward"] for item in estimated]), expected, atol=1e-6)
    assert all("obs" in item and "env_reward" in item for item in estimated)


@pytest.mark.parametrize("name", TRANSITION_MODELS)
def test_arrays_and_lists_train_the_same_model_as_a_batch(name: str) -> None:
    plain, listed = (new(name).bind(*spaces_of()) for _ in range(2))
    feed(plain)
    data = data_for(name)[:, 0]
    plain.collect_data(data)
    feed(listed)
    listed.collect_data([{k: v.numpy() for k, v in item.items()} for item in as_list(data)])
    assert same(snapshot(plain), snapshot(listed))


@pytest.mark.parametrize("name", sorted({*NOVELTY_MODELS, "gail", "guided_cost", "pdeil"}))
def test_clear_data_counts_the_iterations_it_is_given(name: str) -> None:
    model = trained(name, clear_buffer_per_iters=3)
    for iteration in (1, 2, 4):
        model.clear_data(iteration)
        model.train()
    model.clear_data(6)
    with pytest.raises(DataError, match=f"'{name}' has no transitions to train on: call collect_data"):
        model.train()


@pytest.mark.parametrize("name", TRANSITION_MODELS)
@pytest.mark.parametrize("view", ["images", "state+images"])
def test_images_of_any_size_and_dictionaries(name: str, view: Any) -> None:
    model, data = trained(name, view=view, update_per_collect=2), data_for(name, view=view)
    rewards = model.estimate(data)["reward"]
    assert rewards.isfinite().all()
    assert rewards.std() > 0


@pytest.mark.parametrize("name", TRANSITION_MODELS)
def test_continuous_actions(name: str) -> None:
    model, data = trained(name, discrete=False), data_for(name, discrete=False)
    assert model.estimate(data)["reward"].std() > 0


@pytest.mark.parametrize("name", sorted({*TRANSITION_MODELS} - {"rnd", "trex", "drex"}))
def test_actions_of_the_other_kind_are_an_error(name: str) -> None:
    with pytest.raises(DataError, match=r"'action' is float32 \[\d+, 2\]; .* built for 2 discrete actions"):
        trained(name).estimate(data_for(name, discrete=False))
    third = data_for(name)
    third["action"][0, 0] = 2
    with pytest.raises(DataError, match="'action' is 0 to 2; expected 0 to 1"):
        trained(name).estimate(third)
    with pytest.raises(DataError, match=r"'action' is int64 \[\d+\]; .* built for continuous actions of shape \[2\]"):
        trained(name, discrete=False).estimate(data_for(name))


@pytest.mark.parametrize("name", TRANSITION_MODELS)
def test_one_environment_and_one_transition_are_enough(name: str) -> None:
    model = trained(name)
    one = data_for(name)[:1, :1]
    model.collect_data(one)
    model.train()
    assert model.estimate(one)["reward"].isfinite().all()
    assert model.estimate(data_for(name)[:0])["reward"].shape == (0, 3)


@pytest.mark.parametrize("name", EXPERT_MODELS)
def test_estimating_before_learning_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' does not know its task: call bind"):
        new(name).estimate(data_for(name))
    with pytest.raises(DataError, match=f"'{name}' has .*call load_expert_data"):
        new(name).bind(*spaces_of()).estimate(data_for(name))


@pytest.mark.parametrize("name", TRANSITION_MODELS)
def test_expert_data_before_the_task_is_known_is_kept_for_later(name: str) -> None:
    early, late = new(name), new(name)
    if name in EXPERT_MODELS:
        expert = ranked_trajectories() if name in ("trex", "drex") else make_rollout(1, expert=True)
        early.load_expert_data(expert)
        early.bind(*spaces_of())
        early.collect_data(make_rollout(2))
        early.train()
        assert same(snapshot(early), snapshot(feed(late)))
    else:
        with pytest.raises(ConfigError, match="does not learn from expert data"):
            early.load_expert_data([])


@pytest.mark.parametrize("name", TRANSITION_MODELS)
def test_losses_are_logged_under_the_models_name(name: str) -> None:
    class Log:
        def __init__(self) -> None:
            self.tags: dict[str, int] = {}

        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            self.tags[tag] = self.tags.get(tag, 0) + 1

    log = Log()
    model = new(name, update_per_collect=3)
    model.tb_logger = log
    feed(model)
    assert log.tags.get(f"reward_model/{name}_loss") == (None if name in ("pwil", "pdeil") else 3)


@pytest.mark.parametrize("name", TRANSITION_MODELS)
def test_nan_and_foreign_shapes_are_named(name: str) -> None:
    model, data = trained(name), data_for(name)
    wrong = data.clone()
    wrong["observation"] = wrong["next_observation"] = torch.zeros(*data.batch_size, 5)
    with pytest.raises(DataError, match=r"has shape \[5\] per row; the reward model was built for \[2\]"):
        model.estimate(wrong)
    with pytest.raises(DataError, match=r"no '.*' in the transitions; found reward"):
        model.estimate(data.select("reward"))
    if name in (*NOVELTY_MODELS, "gail", "guided_cost", "pdeil"):
        broken = data.clone()
        broken["observation"][1, 0, 0] = broken["next_observation"][1, 0, 0] = float("nan")
        with pytest.raises(DataError, match=r"\.state' is nan at row 3"):
            model.collect_data(broken)
    with pytest.raises(DataError, match="found a NoneType"):
        model.estimate(None)


def test_bind_refuses_another_task_and_unknown_spaces() -> None:
    model = trained("gail")
    with pytest.raises(ConfigError, match="was built for observations"):
        model.bind(*spaces_of(discrete=False))
    with pytest.raises(ConfigError, match="expected Discrete or Box"):
        new("gail").bind(spaces_of()[0], spaces.MultiDiscrete([2, 2]))
    with pytest.raises(ConfigError, match=r"expected states, pictures, or a dictionary .* each of them a Box"):
        new("gail").bind(spaces.Discrete(3), spaces.Discrete(3))
    assert new("gail", obs_shape=2, action_shape=2).bind(*spaces_of())
    with pytest.raises(ConfigError, match="obs_shape: found 'x'"):
        new("gail", obs_shape="x", action_shape=2)


def test_the_same_seed_gives_the_same_model_and_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first = feed(new("gail", seed=4))
    assert torch.equal(torch.rand(1), expected)
    assert same(snapshot(first), snapshot(feed(new("gail", seed=4))))
    assert not same(snapshot(first), snapshot(feed(new("gail", seed=5))))


@pytest.mark.parametrize("key", ["batch_size", "update_per_collect", "clear_buffer_per_iters", "learning_rate"])
def test_impossible_settings_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: found 0, expected a number above 0"):
        new("rnd", **{key: 0})


def test_fewer_transitions_than_a_batch_are_all_used() -> None:
    model = trained("rnd", batch_size=10_000, update_per_collect=1)
    assert model.estimate(data_for("rnd"))["reward"].isfinite().all()


def test_a_nan_loss_stops_and_keeps_the_weights() -> None:
    model: Any = trained("gail")
    with torch.no_grad():
        model.network.network.perceptron[-1].bias.fill_(float("nan"))
    before = model.network.network.perceptron[0].weight.clone()
    with pytest.raises(DataError, match="loss is nan at update 20"):
        model.train()
    assert torch.equal(model.network.network.perceptron[0].weight, before)


def test_a_rollout_and_the_same_rows_flat_are_cut_into_the_same_episodes() -> None:
    ends = torch.tensor([[0, 1], [1, 0], [0, 0]], dtype=torch.bool)
    episodes = Rows({"terminated": ends.flatten()}, (3, 2)).episodes()
    assert [rows.tolist() for rows in episodes] == [[0, 2], [4], [1], [3, 5]]
    flat = Rows({"truncated": torch.tensor([False, True, False])}, (3,)).episodes()
    assert [rows.tolist() for rows in flat] == [[0, 1], [2]]


@pytest.mark.parametrize("name", ALL_MODELS)
def test_a_model_can_be_copied_and_sent_to_another_process(name: str) -> None:
    model, data = trained(name), data_for(name)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.estimate(data)["reward"], model.estimate(data)["reward"])


def test_a_continuous_action_of_one_number_needs_no_axis() -> None:
    model = new("red", obs_shape=1, action_shape=[1], update_per_collect=2)
    data = {"observation": torch.randn(5, 1), "action": torch.randn(5, 1)}
    model.load_expert_data(data)
    model.train()
    batch = TensorDict(data, [5])
    expected = model.estimate(batch)["reward"]
    batch["action"] = batch["action"].squeeze(1)
    assert torch.equal(model.estimate(batch)["reward"], expected)


def test_unknown_types_and_keys_are_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown reward model 'trexx'\. Did you mean 'trex'"):
        create_reward_model({"type": "trexx"})
    with pytest.raises(ConfigError, match=r"key of reward model 'rnd' 'obs_nrom'\. Did you mean 'obs_norm'"):
        create_reward_model({"type": "rnd", "obs_nrom": True})


@pytest.mark.parametrize("name", NOVELTY_MODELS)
def test_novelty_reads_the_goals_of_an_environment_and_of_a_batch_alike(name: str) -> None:
    env = make_vec_env("toy/BitFlip", num_envs=4, options={"bits": 5})
    model = new(name).bind(env.single_observation_space, env.single_action_space)
    obs, _ = env.reset(seed=0)
    following, reward, *_ = env.step(np.arange(4))
    rows: dict[str, Any] = {"action": torch.arange(4), "reward": torch.from_numpy(reward)}
    straight, travelled = (
        TensorDict({**rows, "observation": form(obs), "next_observation": form(following)}, batch_size=[4])
        for form in (dict, as_observation)
    )
    assert torch.equal(model.estimate(straight)["reward"], model.estimate(travelled)["reward"])
    travelled = travelled.clone()
    travelled["next_observation", "state"][0] += 1
    assert not torch.equal(model.estimate(straight)["reward"], model.estimate(travelled)["reward"])
