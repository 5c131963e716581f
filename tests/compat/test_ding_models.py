"""Reward model classes that are written for DI-engine behave as reward models of this package."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from rewardlab.compat.ding_models import DingRewardModel, accepted_keys, adapted, is_ding_class, make
from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards.base import REWARD_MODELS, BaseRewardModel, register_reward_model
from rewardlab.rewards.zoo.novelty import RNDRewardModel


class Balance(BaseRewardModel):
    """As it would be written for DI-engine: rewards an upright pole."""

    model_type = "balance"
    looks_at = "episodes"

    def __init__(self, config: Any, device: str, tb_logger: Any) -> None:
        self.cfg, self.device, self.tb_logger = config, device, tb_logger
        self.train_data: list[dict[str, Any]] = []
        self.trained_on: list[int] = []
        self.net = nn.Linear(1, 1)

    def collect_data(self, data: list[dict[str, Any]]) -> None:
        self.train_data.extend(data)

    def train(self) -> None:
        self.trained_on.append(len(self.train_data))
        self.tb_logger.add_scalar("reward_model/seen", len(self.train_data), 1)

    def clear_data(self, iter: int) -> None:
        if self.time_to_clear(iter):
            self.train_data.clear()

    def estimate(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**item, "reward": -self.cfg.slope * item["next_obs"][2].abs()} for item in data]


class Imitation(Balance):
    clear_buffer_per_iters = 2

    def load_expert_data(self, data: Any) -> None:
        self.expert = data

    def training_state(self) -> dict[str, Any]:
        return {**super().training_state(), "trained_on": self.trained_on}

    def load_training_state(self, state: Any) -> None:
        self.trained_on = state["trained_on"]


class Scalars:
    def __init__(self) -> None:
        self.said: list[tuple[str, float]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.said.append((tag, scalar_value))


def batch(*shape: int, **more: Any) -> TensorDict:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn((2, *shape, 4), generator=generator)
    return TensorDict(
        {
            "observation": TensorDict({"state": states[0]}, batch_size=shape),
            "next_observation": TensorDict({"state": states[1]}, batch_size=shape),
            "action": torch.arange(torch.Size(shape).numel()).reshape(shape),
            "terminated": torch.zeros(shape, dtype=torch.bool),
            "truncated": torch.arange(torch.Size(shape).numel()).reshape(shape) == 1,
            **more,
        },
        batch_size=shape,
    )


def balance(cls: type[BaseRewardModel] = Balance) -> Any:
    return adapted(make(cls, {"slope": 2.0}, "cpu", Scalars()))


def test_only_such_classes_are_adapted() -> None:
    assert is_ding_class(Balance)
    assert not is_ding_class(RNDRewardModel)
    model = RNDRewardModel()
    assert adapted(model) is model
    assert isinstance(balance(), DingRewardModel)
    assert adapted(balance()).__class__ is DingRewardModel  # not adapted twice


def test_the_config_has_keys_and_attributes() -> None:
    config = balance().model.cfg
    assert (config.slope, config["slope"], dict(config)) == (2.0, 2.0, {"slope": 2.0})
    with pytest.raises(AttributeError, match="slop"):
        _ = config.slop


def test_keys_that_a_type_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REWARD_MODELS, "_entries", dict(REWARD_MODELS._entries))
    register_reward_model("ding_test_balance")(Balance)
    assert accepted_keys("ding_test_balance") is None
    assert "learning_rate" in (accepted_keys("rnd") or ())


@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_rewards_of_a_batch_have_its_shape(shape: tuple[int, ...]) -> None:
    data = batch(*shape, reward=torch.full(shape, 7.0))
    scored = balance().estimate(data)
    expected = -2.0 * data["next_observation", "state"][..., 2].abs()
    assert torch.equal(scored["reward"], expected)
    assert torch.equal(scored["env_reward"], data["reward"])
    assert (data["reward"] == 7).all()
    assert "env_reward" not in data
    assert balance().estimate(batch(*shape))["reward"].shape == shape


def test_items_are_in_time_order_and_in_the_form_of_ding() -> None:
    model, data = balance(), batch(3, 2)
    model.collect_data(data)
    items = model.model.train_data
    assert [int(item["action"]) for item in items] == list(range(6))
    assert set(items[0]) == {"obs", "next_obs", "action", "reward", "done"}
    assert torch.equal(items[3]["obs"], data["observation", "state"][1, 1])
    assert [bool(item["done"]) for item in items] == [False, True, False, False, False, False]
    assert all(float(item["reward"]) == 0 for item in items)


def test_observations_of_several_parts_keep_their_names() -> None:
    data = batch(2)
    for key in ("observation", "next_observation"):
        data[key, "goal"] = torch.ones(2, 1)
    model = balance()
    model.collect_data(data)
    assert set(model.model.train_data[1]["obs"].keys()) == {"state", "goal"}


def test_lists_pass_as_they_are() -> None:
    items = [{"next_obs": torch.tensor([0.0, 0.0, -3.0])}]
    assert [float(item["reward"]) for item in balance().estimate(items)] == [-6.0]


def test_a_wrong_number_of_rewards_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Balance, "estimate", lambda self, data: data[1:])
    with pytest.raises(DataError, match="reward model 'balance': 5 rewards for 6 transitions"):
        balance().estimate(batch(6))


def test_learning_goes_through() -> None:
    model = balance(Imitation)
    model.cotrain(batch(4), 1)
    model.cotrain(batch(4), 2)
    assert model.model.trained_on == [4, 8]  # cleared after every second iteration
    assert model.model.train_data == []
    assert model.tb_logger.said == [("reward_model/seen", 4), ("reward_model/seen", 8)]
    model.tb_logger = None
    assert model.model.tb_logger is None
    assert (model.model_type, model.looks_at, model.can_train()) == ("balance", "episodes", True)


def test_expert_data_is_for_classes_that_take_it() -> None:
    model = balance(Imitation)
    model.load_expert_data("expert")
    assert model.model.expert == "expert"
    assert (model.learns_from_expert, balance().learns_from_expert) == (True, False)
    with pytest.raises(ConfigError, match="'balance' does not learn from expert data"):
        balance().load_expert_data("expert")


def test_the_state_is_the_whole_model() -> None:
    one, other = balance(Imitation), balance(Imitation)
    one.model.memory = {"seen": 3}
    other.load_state_dict(pickle.loads(pickle.dumps(one.state_dict())))
    assert other.model.memory == {"seen": 3}
    assert other.model is not one.model
    assert torch.equal(other.model.net.weight, one.model.net.weight)


def test_resuming_says_what_is_lost() -> None:
    one, other = balance(), balance()
    with pytest.warns(UserWarning, match="'balance' is resumed with its networks alone"):
        other.load_training_state(one.training_state())
    assert torch.equal(other.model.net.weight, one.model.net.weight)


def test_a_class_with_a_training_state_resumes_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    one, other = balance(Imitation), balance(Imitation)
    one.model.trained_on = [5]
    other.load_training_state(one.training_state())
    assert other.model.trained_on == [5]
    assert not recwarn.list


def test_a_checkpoint_is_that_of_the_model(tmp_path: Path) -> None:
    one, other = balance(), balance()
    other.load(one.save(tmp_path / "model"))
    assert torch.equal(other.model.net.weight, one.model.net.weight)
