"""The reward the learner sees, by hand for every mode; and which frames are scored at all."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from reward_toys import make_batch, make_frames, small_resnet
from torch import Tensor

from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards import BaseRewardModel, ResNetRewardModel, RewardManager, combine_rewards, map_probability
from rewardlab.rewards.base import with_rewards


class Scripted(ResNetRewardModel):
    """Says the probabilities it is told to: the value of the top left pixel, in [0, 1]."""

    def __init__(self) -> None:
        super().__init__(arch="resnet10", image_size=(3, 32, 32), hidden_dim=4, width=8)
        self.scored = 0

    def probabilities(self, observation: Any) -> Tensor:
        self.scored += len(observation)
        return observation[..., 0, 0, 0]


def frames(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).view(-1, 1, 1, 1).expand(-1, 32, 32, 3)


def manager(**config: Any) -> RewardManager:
    return RewardManager(Scripted(), RewardConfig(**config))


ENV = torch.tensor([1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [0.0, 0.0, 1.0]),  # 0.5 is not above the threshold 0.5
        ({"reward_threshold": 0.2}, [0.0, 1.0, 1.0]),
        ({"reward_threshold": 0.95}, [0.0, 0.0, 0.0]),
        ({"success_reward": 5.0, "fail_reward": -1.0}, [-1.0, -1.0, 5.0]),
        ({"reward_type": "continuous"}, [0.125, 0.5, 0.75]),
        ({"reward_type": "continuous", "success_reward": 3.0, "fail_reward": -1.0}, [-0.5, 1.0, 2.0]),
        ({"reward_weight": 10.0}, [0.0, 0.0, 10.0]),
        ({"combine_mode": "add"}, [1.0, 2.0, 5.0]),
        ({"combine_mode": "add", "reward_weight": 10.0, "env_reward_weight": 9.0}, [1.0, 2.0, 14.0]),
        ({"combine_mode": "weighted", "reward_weight": 10.0, "env_reward_weight": 0.5}, [0.5, 1.0, 12.0]),
        ({"combine_mode": "weighted"}, [0.0, 0.0, 1.0]),
    ],
)
def test_every_mode_by_hand(config: dict[str, Any], expected: list[float]) -> None:
    assert manager(**config).rewards(ENV, frames(0.125, 0.5, 0.75)).tolist() == expected


def test_null_threshold_is_the_models_and_applied_once() -> None:
    made = manager()
    made.model.threshold = 0.7  # type: ignore[attr-defined]
    assert made.compute_rewards(frames(0.6, 0.8)).tolist() == [0.0, 1.0]
    made = manager(reward_type="continuous")
    made.model.threshold = 0.7  # type: ignore[attr-defined]
    assert made.compute_rewards(frames(0.25, 0.75)).tolist() == [0.25, 0.75]


class TestTerminal:
    ended = torch.tensor([False, True, True])

    def test_only_final_frames_are_scored(self) -> None:
        made = manager(reward_mode="terminal", combine_mode="add", reward_weight=10.0, fail_reward=-1.0)
        assert made.rewards(ENV, frames(0.9, 0.1), self.ended).tolist() == [1.0, 12.0, -6.0]
        assert made.model.scored == 2  # type: ignore[attr-defined]

    def test_zero_elsewhere(self) -> None:
        made = manager(reward_mode="terminal", fail_reward=-1.0)
        assert made.rewards(ENV, frames(0.9, 0.1), self.ended).tolist() == [0.0, 1.0, -1.0]

    def test_nothing_ended_nothing_scored(self) -> None:
        made = manager(reward_mode="terminal", combine_mode="weighted", env_reward_weight=2.0)
        assert made.rewards(ENV, None, torch.zeros(3, dtype=torch.bool)).tolist() == [2.0, 4.0, 8.0]
        assert made.model.scored == 0  # type: ignore[attr-defined]

    def test_a_whole_rollout(self) -> None:
        made = manager(reward_mode="terminal")
        ended = torch.tensor([[False, True], [True, False]])
        rewards = made.rewards(torch.zeros(2, 2), frames(0.9, 0.8), ended)
        assert rewards.tolist() == [[0.0, 1.0], [1.0, 0.0]]

    def test_wrong_numbers_of_frames(self) -> None:
        made = manager(reward_mode="terminal")
        with pytest.raises(DataError, match="3 final frames for 2 episodes"):
            made.rewards(ENV, frames(0.1, 0.2, 0.3), self.ended)
        with pytest.raises(DataError, match="needs `ended`"):
            made.rewards(ENV, frames(0.1))
        with pytest.raises(DataError, match="2 frames for 3 rewards"):
            manager().rewards(ENV, frames(0.1, 0.2))


def test_unknown_modes_are_errors() -> None:
    for key in ("reward_mode", "reward_type", "combine_mode"):
        with pytest.raises(ValidationError):
            RewardConfig(**{key: "sometimes"})
        config = SimpleNamespace(**{**vars(RewardConfig()), key: "sometimes"})
        with pytest.raises(ConfigError, match=f"unknown {key} 'sometimes'"):
            RewardManager(small_resnet(), config)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Did you mean 'add'"):
        combine_rewards(ENV, ENV, combine_mode="addd", reward_weight=1.0, env_reward_weight=1.0)
    with pytest.raises(ConfigError, match="Choices: binary, continuous"):
        map_probability(ENV, reward_type="", threshold=0.5, success_reward=1.0, fail_reward=0.0)


def test_shapes_that_would_broadcast_are_refused() -> None:
    with pytest.raises(DataError, match=r"\[3\].*\[3, 1\]"):
        combine_rewards(ENV, ENV[:, None], combine_mode="add", reward_weight=1.0, env_reward_weight=1.0)


def test_nan_names_the_row() -> None:
    with pytest.raises(DataError, match=r"NaN for row 1 of 3 \(2 in all\)"):
        manager().compute_rewards(frames(0.5, float("nan"), float("nan")))


def test_a_real_model_and_a_batch(tmp_path: Any) -> None:
    model = small_resnet()
    batch = make_batch(5)
    made = RewardManager(model, RewardConfig(reward_type="continuous")).to_device("cpu")
    assert torch.equal(made.compute_rewards(batch), model.probabilities(batch))
    path = str(model.save(tmp_path / "m"))
    loaded = RewardManager.from_config(
        RewardConfig(reward_type="continuous", model=RewardModelConfig(checkpoint_path=path))
    )
    assert torch.equal(loaded.compute_rewards(make_frames(5)[0]), made.compute_rewards(make_frames(5)[0]))
    with pytest.raises(ConfigError, match="checkpoint_path: found null"):
        RewardManager.from_config(RewardConfig())


def test_any_reward_model_will_do() -> None:
    class Counter(BaseRewardModel):
        def estimate(self, data: Any) -> Any:
            return with_rewards(data, torch.arange(len(data)) * 2.0)

        def train(self) -> None: ...
        def collect_data(self, data: Any) -> None: ...
        def clear_data(self, iter: int) -> None: ...

    made = RewardManager(Counter(), RewardConfig(combine_mode="add", reward_weight=10.0))
    batch = make_batch(3)
    assert made.rewards(batch["reward"], batch).tolist() == [0.0, 21.0, 42.0]
    items = [{"obs": 0, "reward": 1.0}, {"obs": 0, "reward": 1.0}]
    assert made.rewards(torch.ones(2), items).tolist() == [1.0, 21.0]
