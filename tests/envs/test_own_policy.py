"""Policies of a user's own, without a decorator."""

from typing import Any

import numpy as np
import pytest

from rewardlab.envs import make_vec_env
from rewardlab.envs.policies import make_policy
from rewardlab.errors import ConfigError, DataError


@pytest.fixture
def env() -> Any:
    return make_vec_env("own_envs:Rail", num_envs=3)


@pytest.mark.parametrize("name", ["Right", "Steady", "go_right", "make_right"])
def test_a_class_and_a_function_act(name: str, env: Any) -> None:
    observation, _ = env.reset(seed=0)
    policy = make_policy(f"own_envs:{name}", env, 0)
    policy.begin(np.ones(3, bool))
    assert policy.act(observation).tolist() == [[1], [1], [1]]


def test_a_class_gets_environment_and_seed(env: Any) -> None:
    first, again, other = (make_policy("own_envs:Mixed", env, seed) for seed in (0, 0, 1))
    drawn = [[policy.act(None) for _ in range(9)] for policy in (first, again, other)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("go_rihgt", r"unknown policy of own_envs 'go_rihgt'\. Did you mean 'go_right'"),
        ("number", r"is of type int, without a method act\(observations\); expected a function of the observations"),
        ("Rail", r"is of type Rail, without a method act\(observations\)"),
    ],
)
def test_what_cannot_act_says_why(name: str, message: str, env: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        make_policy(f"own_envs:{name}", env, 0)


def test_each_environment_needs_an_action(env: Any) -> None:
    policy = make_policy("own_envs:one_action", env, 0)
    with pytest.raises(DataError, match=r"actions of shape \[1\]; expected \[3, 1\], an action for each environment"):
        policy.act(np.zeros((3, 2)))
