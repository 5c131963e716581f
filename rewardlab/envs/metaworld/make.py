"""Builds environments of the family `metaworld` from their part of a config."""

import dataclasses
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.make_copies import make_copies
from rewardlab.envs.metaworld.env import EPISODE_STEPS, FAMILY, MetaWorldEnv
from rewardlab.envs.metaworld.options import read_options
from rewardlab.envs.single import finish, policy_steps


def make_metaworld_vec_env(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Build `cfg.num_envs` copies of a task."""
    return make_copies(cfg, make_one, expensive=True)


def make_one(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    """Build one copy of the task `metaworld/<task>`."""
    options = read_options(cfg.id, cfg.options)
    task = cfg.id.removeprefix(f"{FAMILY}/")
    env = MetaWorldEnv(task, camera=options.camera, show_goal=options.show_goal)
    return finish(env, dataclasses.replace(cfg, max_episode_steps=policy_steps(cfg, EPISODE_STEPS)))
