"""The policies `expert` and `noisy_expert` of any environment that says what an expert would do."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rewardlab.envs.copies import CopiesVectorEnv
from rewardlab.envs.policies import make_policy
from rewardlab.errors import ConfigError

STEPS = 20


class Walk(gymnasium.Env[Any, Any]):
    """A point on a line, from 0 to the goal at 1; its expert walks there and stays. Actions are from 0 to 10."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Box(0, 10, (2,), np.float32)
    spec = EnvSpec("Walk-v0", max_episode_steps=STEPS)

    def __init__(self) -> None:
        self.place, self.steps = 0.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.steps = 0.0, 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.place += 0.03 * (float(action[0]) - 5)
        self.steps += 1
        return self._observe(), 0.0, False, self.steps == STEPS, {"success": abs(self.place - 1) < 0.1}

    def scripted_action(self) -> Any:
        return np.array([np.clip(5 + (1 - self.place) / 0.03, 0, 10), 7], np.float32)

    def _observe(self) -> Any:
        return np.array([self.place], np.float32)


class Buttons(Walk):
    action_space = spaces.Discrete(2)


def play(name: str, copies: int, seed: int = 0, episodes: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return actions [T, N, 2], places [T, N, 1] and success [T, N]."""
    env = CopiesVectorEnv([Walk] * copies)
    observation, _ = env.reset(seed=0)
    policy = make_policy(name, env, seed)
    rows = []
    for _ in range(STEPS * episodes):
        action = policy.act(observation)
        observation, _, terminated, truncated, infos = env.step(action)
        ended = terminated | truncated
        last = infos["final_info"]["success"] if ended.all() else infos["success"]
        place = np.stack(infos["final_obs"]) if ended.all() else observation
        rows.append((action, place, last))
        policy.begin(ended)
    return tuple(np.stack(column) for column in zip(*rows, strict=True))  # type: ignore[return-value]


def test_the_expert_does_what_the_environments_say() -> None:
    actions, _, success = play("expert", 3)
    assert success[-1].all()
    assert (actions[..., 1] == 7).all()


def test_the_noisy_expert_acts_within_limits_and_fails_in_about_half_of_the_episodes() -> None:
    actions, _, success = play("noisy_expert", 200)
    assert actions.dtype == np.float32
    assert actions.min() >= 0
    assert actions.max() <= 10
    assert 0.3 < success.any(axis=0).mean() < 0.75


def test_mistakes_are_drawn_anew_for_each_episode() -> None:
    actions, _, _ = play("noisy_expert", 4, episodes=2)
    assert not np.array_equal(actions[:STEPS], actions[STEPS:])


def test_episodes_of_the_noisy_expert_go_wrong_in_each_of_its_ways() -> None:
    actions, places, success = play("noisy_expert", 300)
    untouched = success.all(axis=0) | (np.abs(actions[:, :, 1] - 7) < 1e-5).all(axis=0)
    stands_still = (actions[-3:] == 5).all(axis=(0, 2)) & (np.abs(places[-1, :, 0] - 1) > 0.1)
    undone = success.any(axis=0) & ~success[-1] & (places[-1, :, 0] < 0.5)
    lost_from_the_start = (actions[:6, :, 0] < 5).any(axis=0) & ~success.any(axis=0)
    counts = [int(kind.sum()) for kind in (untouched, stands_still, undone, lost_from_the_start)]
    assert min(counts) >= 5, counts


def test_what_it_does_depends_on_the_seed_only() -> None:
    first, again, other = (play("noisy_expert", 3, seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_environment_without_an_expert_is_named_with_the_choices() -> None:
    env = CopiesVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    with pytest.raises(ConfigError, match=r"scripted_action\(\): 'CartPole-v1' has none. Use 'random'"):
        make_policy("noisy_expert", env, 0)


def test_the_noisy_expert_wants_actions_within_limits() -> None:
    with pytest.raises(ConfigError, match=r"found actions Discrete\(2\), expected numbers within limits"):
        make_policy("noisy_expert", CopiesVectorEnv([Buttons]), 0)
