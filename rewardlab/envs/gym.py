"""Builds any Gymnasium environment by its id, as a vector environment that resets in the same step."""

import re
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.from_module import errors_of_constructor, may_draw, unknown_environment
from rewardlab.envs.make_copies import make_copies
from rewardlab.envs.single import NO_LIMIT, finish
from rewardlab.registry import import_named


def make_gym_vec_env(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Build `cfg.num_envs` copies of the environment `cfg.id`."""
    return make_copies(cfg, make_one)


def make_one(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    """Build one environment by its Gymnasium id, with `render_mode="rgb_array"` if it can be drawn."""
    options = dict(cfg.options)
    if cfg.max_episode_steps is not None:
        options["max_episode_steps"] = NO_LIMIT  # `finish` counts the steps of the policy
    with errors_of_constructor(cfg):
        try:
            env = _make(cfg.id, options)
        except gymnasium.error.UnregisteredEnv as error:
            raise unknown_environment(cfg.id) from error
    return finish(env, cfg)


def _make(env_id: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    if "render_mode" in options or not _may_draw(env_id):
        return gymnasium.make(env_id, **options)
    try:
        return gymnasium.make(env_id, render_mode="rgb_array", **options)
    except TypeError as error:  # a function, which does not say whether it draws, or a class that says so wrongly
        if "render_mode" not in str(error):
            raise
        return gymnasium.make(env_id, **options)


def _may_draw(env_id: str) -> bool:
    """Return False if the class of an environment says that it has no render_mode 'rgb_array'."""
    module, _, name = env_id.rpartition(":")
    if module:
        import_named(module, f"environment '{env_id}'")
    spec = gymnasium.registry.get(_with_version(name))
    if spec is None or spec.entry_point is None:
        return False
    return may_draw(load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point)


def _with_version(name: str) -> str:
    """Return an id with the version that Gymnasium takes if it has none."""
    if name in gymnasium.registry:
        return name
    versions = [i for i in gymnasium.registry if re.fullmatch(re.escape(name) + r"-v\d+", i)]
    return max(versions, key=lambda one: int(one.rpartition("-v")[2]), default=name)
