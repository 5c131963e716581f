"""The reward the learner sees, by hand for every mode; and which frames are scored at all."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from reward_toys import make_batch, make_frames, small_resnet
from tensordict import TensorDict
from torch import Tensor

from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards import BaseRewardModel, ResNetRewardModel, RewardManager, compute_reward
from rewardlab.rewards.base import with_rewards
from rewardlab.rewards.loading import named_models
from rewardlab.rewards.manager import RewardRule, RewardTerm, place_estimates


class Scripted(ResNetRewardModel):
    """Says the probabilities it is told to: the value of the top left pixel, in [0, 1]."""

    def __init__(self) -> None:
        super().__init__(arch="resnet10", image_size=(3, 32, 32), hidden_dim=4, width=8)
        self.scored = 0

    def probabilities(self, observation: Any) -> Tensor:
        self.scored += len(observation)
        return observation[..., 0, 0, 0]


class Counter(BaseRewardModel):
    """A model over transitions that says twice the number of each row."""

    def estimate(self, data: Any) -> Any:
        return with_rewards(data, torch.arange(len(data)) * 2.0)

    def train(self) -> None: ...
    def collect_data(self, data: Any) -> None: ...
    def clear_data(self, iter: int) -> None: ...


class Late(Counter):
    looks_at = "episodes"


def frames(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).view(-1, 1, 1, 1).expand(-1, 32, 32, 3)


def manager(**config: Any) -> RewardManager:
    return RewardManager(Scripted(), RewardConfig(**config))


def batch_of(env_reward: Tensor, ended: Tensor | None = None, **estimates: list[float]) -> TensorDict:
    """A batch whose models said `estimates`; None of its steps ends an episode unless `ended` says so."""
    ended = torch.zeros_like(env_reward, dtype=torch.bool) if ended is None else ended
    columns = {"env_reward": env_reward, "terminated": ended & False, "truncated": ended}
    said = {name: torch.tensor(values) for name, values in estimates.items()}
    return TensorDict({**columns, "estimate": said}, batch_size=env_reward.shape)


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
    batch = batch_of(ENV, resnet_reward=[0.125, 0.5, 0.75])
    assert compute_reward(manager(**config).rule, batch).tolist() == expected


def test_terms_are_weighted_summed_and_then_combined() -> None:
    config = RewardConfig(combine_mode="add", reward_weight=10.0, model=(RewardModelConfig(), RewardModelConfig()))
    wanted = {"seen": RewardModelConfig(weight=2.0), "novel": RewardModelConfig(weight=0.5)}
    rule = RewardManager({"seen": Scripted(), "novel": Counter()}, config, wanted).rule
    batch = batch_of(ENV, seen=[0.9, 0.1, 0.9], novel=[1.0, 2.0, 3.0])
    assert compute_reward(rule, batch).tolist() == [1 + 10 * 2.5, 2 + 10 * 1.0, 4 + 10 * 3.5]
    assert compute_reward(RewardRule(), batch).tolist() == ENV.tolist()  # no term: the environment's own


def test_a_step_that_a_model_was_not_asked_about_earns_nothing_from_it() -> None:
    made = manager(fail_reward=-1.0, combine_mode="add")
    batch = batch_of(ENV, resnet_reward=[0.9, math.nan, 0.1])
    assert compute_reward(made.rule, batch).tolist() == [2.0, 2.0, 3.0]


def test_claims_that_end_no_episode_earn_nothing_where_claims_end_episodes() -> None:
    """Three steps that claim success; an episode ends after the second (held) and after the third (its time limit)."""
    made = RewardManager(
        {"seen": Scripted()}, RewardConfig(fail_reward=-1.0), {"seen": RewardModelConfig(ends_episode=True)}
    )
    batch = batch_of(ENV, seen=[0.9, 0.9, 0.9])
    batch["terminated"], batch["truncated"] = torch.tensor([False, True, False]), torch.tensor([False, False, True])
    assert compute_reward(made.rule, batch).tolist() == [-1.0, 1.0, -1.0]


class TestTerminal:
    ended = torch.tensor([False, True, True])

    def test_only_last_steps_count(self) -> None:
        made = manager(reward_mode="terminal", combine_mode="add", reward_weight=10.0, fail_reward=-1.0)
        said = [math.nan, 0.9, 0.1]
        assert compute_reward(made.rule, batch_of(ENV, self.ended, resnet_reward=said)).tolist() == [1.0, 12.0, -6.0]

    def test_estimates_from_before_an_alarm_do_not_count_either(self) -> None:
        batch = batch_of(ENV, self.ended, resnet_reward=[0.9, 0.9, 0.1])
        per_step = manager(fail_reward=-1.0).rule
        assert compute_reward(per_step, batch).tolist() == [1.0, 1.0, -1.0]
        assert compute_reward(per_step.at_last_steps_only(), batch).tolist() == [0.0, 1.0, -1.0]

    def test_a_whole_rollout(self) -> None:
        ended = torch.tensor([[False, True], [True, False]])
        column = place_estimates(torch.tensor([0.9, 0.8]), ended)
        batch = batch_of(torch.zeros(2, 2), ended, resnet_reward=column.tolist())
        rewards = compute_reward(manager(reward_mode="terminal").rule, batch)
        assert rewards.tolist() == [[0.0, 1.0], [1.0, 0.0]]

    def test_wrong_numbers_of_estimates(self) -> None:
        with pytest.raises(DataError, match="3 estimates for 2 steps"):
            place_estimates(torch.rand(3), self.ended)


def test_null_threshold_is_the_models_and_applied_once() -> None:
    made = manager()
    made.model.threshold = 0.7  # type: ignore[attr-defined]
    assert made.compute_rewards(frames(0.6, 0.8)).tolist() == [0.0, 1.0]
    made = manager(reward_type="continuous")
    made.model.threshold = 0.7  # type: ignore[attr-defined]
    assert made.compute_rewards(frames(0.25, 0.75)).tolist() == [0.25, 0.75]


def test_a_term_says_what_its_model_needs_and_when_it_is_asked() -> None:
    (term,) = manager(reward_mode="terminal", relabel="sample").terms
    assert (term.looks_at, term.cameras, term.scored, term.rescored) == (
        "frames",
        ("base_camera",),
        "last_step",
        "never",
    )
    again = {}
    for relabel in ("changed", "sample"):
        for cotrain in (True, False):
            config = RewardConfig(relabel=relabel, cotrain=cotrain)
            made = RewardManager({"seen": Scripted(), "novel": Counter(), "late": Late()}, config, off_policy=True)
            again[relabel, cotrain] = [term.rescored for term in made.terms]
    assert again == {
        ("changed", True): ["when_changed", "when_sampled", "never"],
        ("changed", False): ["never", "when_sampled", "never"],
        ("sample", True): ["when_sampled", "when_sampled", "never"],
        ("sample", False): ["when_sampled", "when_sampled", "never"],
    }


def test_two_terms_of_one_name_are_refused_and_unnamed_ones_are_numbered() -> None:
    rnd = RewardModelConfig(model_type="rnd")
    config = RewardConfig(model=(replace(rnd, name="new"), replace(rnd, name="new")))
    with pytest.raises(ConfigError, match=r"reward.model.name: found 'new' twice"):
        named_models(config)
    config = RewardConfig(model=(rnd, replace(rnd, name="rnd_2"), rnd, RewardModelConfig(model_type="icm")))
    assert list(named_models(config)) == ["rnd", "rnd_2", "rnd_3", "icm"]


def test_unknown_modes_are_errors() -> None:
    for key in ("reward_mode", "reward_type"):
        with pytest.raises(ValidationError):
            RewardConfig(**{key: "sometimes"})
        config = SimpleNamespace(**{**vars(RewardConfig()), key: "sometimes", "cotrains": lambda model: False})
        config.models = RewardConfig().models
        with pytest.raises(ConfigError, match=f"unknown {key} 'sometimes'"):
            RewardManager(small_resnet(), config)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Did you mean 'add'"):
        compute_reward(RewardRule((RewardTerm("seen"),), combine_mode="addd"), batch_of(ENV, seen=[0.0, 0.0, 0.0]))


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
    made = RewardManager(Counter(), RewardConfig(combine_mode="add", reward_weight=10.0))
    batch = batch_of(ENV)
    assert made.estimate(batch) == {"": pytest.approx(torch.tensor([0.0, 2.0, 4.0]))}
    assert made.score("", [{"obs": 0, "reward": 1.0}, {"obs": 0, "reward": 1.0}]).tolist() == [0.0, 2.0]
