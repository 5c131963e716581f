"""Episodes of an evaluation are counted fairly, however few copies run them."""

import itertools
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rewardlab.config.schema import EnvConfig
from rewardlab.envs import copies
from rewardlab.errors import DataError
from rewardlab.rl import evaluation
from rewardlab.rl.evaluation import Evaluation


class Lengths(gymnasium.Env[Any, Any]):
    """Episodes of the n-th copy that is made have the lengths of the n-th cycle; those of 9 steps are a success."""

    observation_space, action_space = spaces.Box(0, 9, (1,)), spaces.Discrete(2)
    made = 0

    def __init__(self, cycles: Sequence[Sequence[int]] = ((1, 9),)) -> None:
        self.lengths = itertools.cycle(cycles[Lengths.made % len(cycles)])
        Lengths.made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps, self.length = 0, next(self.lengths)
        return np.full(1, self.length, np.float32), {"success": False}

    def step(self, action: Any) -> Any:
        self.steps += 1
        done = self.steps == self.length
        return np.zeros(1, np.float32), 1.0, done, False, {"success": done and self.length == 9}


ID = "test-evaluation/Lengths-v0"
gymnasium.register(ID, Lengths)


@pytest.fixture(autouse=True)
def begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lengths, "made", 0)
    monkeypatch.setattr(copies, "CHECKED", {ID})  # the check of seeds would reset a copy once more


class Still(torch.nn.Module):
    def act(self, observation: Any, *_: Any, **__: Any) -> dict[str, torch.Tensor]:
        return {"action": torch.zeros(len(observation), dtype=torch.int64)}


def evaluate(episodes: int | None, num_envs: int, **options: Any) -> tuple[Evaluation, dict[str, float]]:
    cfg = EnvConfig(id=ID, num_envs=num_envs, processes=1, cameras=(), options=options)
    made = Evaluation(cfg, seed=0, episodes=episodes)
    return made, made.run(Still())


def test_each_copy_has_a_fixed_number_of_episodes() -> None:
    made, figures = evaluate(None, 3)
    assert (made.episodes, figures["length"]) == (3, 1)
    made, figures = evaluate(4, 3)  # of lengths 1 and 9, 1, 1
    assert figures == {"return": 3.0, "length": 3.0, "success_once": 0.25, "success_at_end": 0.25}


def test_short_episodes_are_not_favoured() -> None:
    """Of the first six episodes to end, five would be short."""
    assert evaluate(6, 2, cycles=[[9], [1]])[1]["length"] == 5


def test_there_are_never_more_copies_than_episodes() -> None:
    made, figures = evaluate(2, 200, cycles=[[9]])
    assert made.env.num_envs == 2
    assert figures["length"] == 9


def test_an_episode_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MOST_STEPS", 50)
    assert evaluate(20, 1)[1]["length"] == 5  # 100 steps in all
    with pytest.raises(DataError, match=r"did not end in 50 steps: set env\.eval\.max_episode_steps"):
        evaluate(1, 1, cycles=[[99]])


class Begins(Lengths):
    """A success from the first step on, which its resets report if they are told to."""

    def __init__(self, says: bool) -> None:
        super().__init__([[1, 2]])
        self.says = says

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, _ = super().reset(seed=seed)
        return observation, {"success": self.length == 2} if self.says else {}

    def step(self, action: Any) -> Any:
        *results, _ = super().step(action)
        return *results, {"success": True}


gymnasium.register("test-evaluation/Begins-v0", Begins)


def begins(says: bool) -> Evaluation:
    cfg = EnvConfig(id="test-evaluation/Begins-v0", num_envs=1, cameras=(), options={"says": says})
    return Evaluation(cfg, seed=0, episodes=4)


def test_episodes_that_begin_in_success_are_counted_and_warned_of_once() -> None:
    made = begins(says=True)
    with pytest.warns(UserWarning, match=r"50\.0% of the 4 evaluated episodes are a success at their reset already"):
        figures = made.run(Still())
    assert (figures["success_at_reset"], figures["success_once"]) == (0.5, 1.0)
    assert made.run(Still()) == figures
    assert made.unreported == ""


def test_a_success_in_the_first_step_is_none_at_the_reset() -> None:
    assert set(begins(says=False).run(Still())) == {"return", "length", "success_once", "success_at_end"}


def test_an_evaluation_without_success_says_what_was_looked_for() -> None:
    made = Evaluation(EnvConfig(id="CartPole-v1", num_envs=2, cameras=()), seed=0)
    assert set(made.run(Still())) == {"return", "length"}
    assert made.unreported == "the environment's infos have none of success, is_success, succeed, and nothing else"
