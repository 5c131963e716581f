"""Builds environments of the family `metaworld` from their part of a config."""

import dataclasses
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.make_copies import make_copies
from rewardlab.envs.metaworld.drawing import read_camera
from rewardlab.envs.metaworld.env import EPISODE_STEPS, FAMILY, MetaWorldEnv
from rewardlab.envs.single import finish, policy_steps
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

OPTIONS = ("camera", "show_goal")


def make_metaworld_vec_env(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Build `cfg.num_envs` copies of a task."""
    return make_copies(cfg, make_one, expensive=True)


def make_one(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    """Build one copy of the task `metaworld/<task>`."""
    for name in cfg.options:
        if name not in OPTIONS:
            raise ConfigError(unknown_name(f"option of '{cfg.id}'", name, OPTIONS))
    show_goal = cfg.options.get("show_goal", False)
    if not isinstance(show_goal, bool):
        raise ConfigError(f"options.show_goal: found {show_goal!r}, expected true or false")
    camera = read_camera(cfg.options.get("camera", {}))
    env = MetaWorldEnv(cfg.id.removeprefix(f"{FAMILY}/"), camera=camera, show_goal=show_goal)
    return finish(env, dataclasses.replace(cfg, max_episode_steps=policy_steps(cfg, EPISODE_STEPS)))
