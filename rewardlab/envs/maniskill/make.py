"""Builds environments of the family `maniskill` from their part of a config."""

import dataclasses
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.make_copies import make_copies
from rewardlab.envs.maniskill.env import ManiSkillEnv
from rewardlab.envs.maniskill.options import read_options
from rewardlab.envs.maniskill.simulator import find_task
from rewardlab.envs.single import finish, policy_steps


def make_maniskill_vec_env(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Build `cfg.num_envs` copies of the task `maniskill/<id>`, or ManiSkill's own batch on a GPU."""
    if (options := read_options(cfg.id, cfg.options)).sim_backend == "gpu":
        from rewardlab.envs.maniskill.gpu_batch import make_gpu_batch  # takes seconds: torch

        return make_gpu_batch(cfg, options)
    return make_copies(cfg, make_one, expensive=True)


def make_one(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    """Build one copy. Its episodes end at the time limit: success does not end them."""
    env = ManiSkillEnv(cfg.id, read_options(cfg.id, cfg.options))
    steps = policy_steps(cfg, find_task(cfg.id).max_episode_steps)
    return finish(env, dataclasses.replace(cfg, max_episode_steps=steps))
