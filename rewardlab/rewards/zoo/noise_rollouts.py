"""Rollouts of a policy into whose actions more and more random ones are mixed, for D-REX."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from tensordict import TensorDict

from rewardlab.errors import ConfigError
from rewardlab.observations import copy_observation, final_rows, to_numpy
from rewardlab.rewards.zoo.transitions import Rows

Policy: TypeAlias = Callable[[Any], Any]  # a batch of observations to a batch of actions
Env: TypeAlias = VectorEnv[Any, Any, Any]


def collect_noise_rollouts(
    policy: Policy,
    env: Env,
    noise_levels: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    episodes_per_level: int = 5,
    seed: int = 0,
) -> list[TensorDict]:
    """Whole episodes with their `noise_level`: the chance that a step's action is drawn from the action space.

    `policy` maps a batch of observations to a batch of actions. Every environment gives the same number of episodes
    at each level, because the first ones to end would be the short ones; so there may be a few more than asked for.
    """
    if env.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
        raise ConfigError("noise rollouts need a vector environment that resets in the same step, as make_vec_env's do")
    bad = [level for level in noise_levels if not 0 <= level <= 1]
    if bad or not len(noise_levels):
        raise ConfigError(f"noise_levels: found {list(noise_levels)}, expected probabilities")
    rng = np.random.default_rng(seed)
    env.action_space.seed(seed)
    quota = -(-episodes_per_level // env.num_envs)
    found: list[TensorDict] = []
    for number, level in enumerate(noise_levels):
        rollout = _roll(policy, env, level, quota, rng, seed + number)
        rollout["noise_level"] = torch.full(rollout.batch_size, float(level))
        found += _whole_episodes(rollout, quota)
    return found


def _roll(policy: Policy, env: Env, level: float, quota: int, rng: np.random.Generator, seed: int) -> TensorDict:
    """[T, N] until every environment has ended `quota` episodes."""
    observation, _ = env.reset(seed=seed)
    ended = np.zeros(env.num_envs, int)
    steps = []
    while ended.min() < quota:
        action = np.array(to_numpy(policy(observation)))
        noisy = rng.random(env.num_envs) < level
        action[noisy] = to_numpy(env.action_space.sample())[noisy]
        before = copy_observation(observation)
        observation, reward, terminated, truncated, infos = env.step(action)
        done = to_numpy(terminated) | to_numpy(truncated)
        after = copy_observation(observation)
        if done.any():
            rows = np.flatnonzero(done)
            after[torch.from_numpy(rows)] = copy_observation(final_rows(infos["final_obs"], rows))
        columns = {
            "observation": before,
            "next_observation": after,
            "action": torch.from_numpy(action),
            "reward": torch.as_tensor(to_numpy(reward), dtype=torch.float32),
            "terminated": torch.as_tensor(to_numpy(terminated), dtype=torch.bool),
            "truncated": torch.as_tensor(to_numpy(truncated), dtype=torch.bool),
        }
        steps.append(TensorDict(columns, batch_size=[env.num_envs]))
        ended += done
    return TensorDict.stack(steps)


def _whole_episodes(rollout: TensorDict, quota: int) -> list[TensorDict]:
    """Return the first `quota` episodes of each environment."""
    flat, shape = rollout.flatten(), tuple(rollout.batch_size)
    episodes = Rows({name: flat[name] for name in ("terminated", "truncated")}, shape).episodes()
    of_environments = itertools.groupby(episodes, key=lambda rows: int(rows[0]) % shape[1])
    return [flat[rows] for _, mine in of_environments for rows in itertools.islice(mine, quota)]
