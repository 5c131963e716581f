"""Builds any Gymnasium environment by its id, as a vector environment that resets in the same step."""

import os
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.make_copies import make_copies
from rewardlab.envs.missing import is_of_vulkan, missing_vulkan_driver
from rewardlab.envs.opengl import is_of_opengl, unusable_backend
from rewardlab.envs.single import NO_LIMIT, finish
from rewardlab.errors import ConfigError, user_traceback
from rewardlab.registry import import_named, unknown_name

SMALLEST = 10_000  # bytes that a copy of the smallest environment takes


def make_gym_vec_env(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Build `cfg.num_envs` copies of the environment `cfg.id`."""
    needed, memory = cfg.num_envs * SMALLEST, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"num_envs: found {cfg.num_envs}, but so many of '{cfg.id}' need at least {needed / 1e9:,.0f} GB, and this "
            f"machine has {memory / 1e9:,.0f} GB; expected fewer"
        )
    return make_copies(cfg, make_one)


def unregistered(env_id: str) -> ConfigError:
    """Return the error for an id that Gymnasium does not know."""
    hint = "" if ":" in env_id else ". If it comes from a package, name the package too: package:Id"
    known = unknown_name("environment", env_id.rpartition(":")[2], gymnasium.registry).partition(" Choices:")[0]
    return ConfigError(f"{known.removesuffix('.')}{hint}")


def make_one(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    """Build one environment by its Gymnasium id, with `render_mode="rgb_array"` if it can be drawn."""
    options = dict(cfg.options)
    if cfg.max_episode_steps is not None:
        options["max_episode_steps"] = NO_LIMIT  # `finish` counts the steps of the policy
    try:
        env = _make(cfg.id, options)
    except ConfigError:
        raise
    except gymnasium.error.UnregisteredEnv as error:
        raise unregistered(cfg.id) from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigError(f"environment '{cfg.id}' needs a package that is not installed: {error}") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"environment '{cfg.id}': {error}") from error
    except Exception as error:
        if is_of_opengl(error):
            raise unusable_backend(cfg.id, error) from error
        if is_of_vulkan(error):
            raise missing_vulkan_driver(cfg.id, str(error)) from error
        if user_traceback(error) is not None:  # in its constructor
            raise
        what = "does not take these options" if isinstance(error, TypeError) else f"fails with {type(error).__name__}"
        raise ConfigError(f"environment '{cfg.id}' {what}: {error}") from error
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
    spec = gymnasium.registry.get(name)
    if spec is None or spec.entry_point is None:
        return False
    entry = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    metadata = getattr(entry, "metadata", None)
    return not isinstance(metadata, dict) or "rgb_array" in metadata.get("render_modes", ())
