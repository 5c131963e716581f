"""Builds any Gymnasium environment by its id, as a vector environment that resets in the same step."""

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.cameras import draw_cameras
from rewardlab.envs.checked import CheckedEnv
from rewardlab.envs.make_copies import make_copies
from rewardlab.errors import ConfigError, user_traceback
from rewardlab.observations import IMAGE_PART, VECTOR_PARTS, read_parts
from rewardlab.registry import unknown_name

SMALLEST = 10_000  # bytes that a copy of the smallest environment takes


def make_gym_vec_env(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Build `cfg.num_envs` copies of the environment `cfg.id`."""
    needed, memory = cfg.num_envs * SMALLEST, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"num_envs: found {cfg.num_envs}, but so many of '{cfg.id}' need at least {needed / 1e9:,.0f} GB, and this "
            f"machine has {memory / 1e9:,.0f} GB; expected fewer"
        )
    return make_copies(cfg, _make_one)


def _make_one(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    if cfg.obs_mode == "proprio+images":
        raise ConfigError(f"obs_mode: '{cfg.id}' does not say what a robot knows of itself; use state+images or images")
    needs_pictures = cfg.obs_mode != "state"
    options = dict(cfg.options)
    if needs_pictures:
        options["render_mode"] = "rgb_array"
    if cfg.max_episode_steps is not None:
        options["max_episode_steps"] = cfg.max_episode_steps
    try:
        env = gymnasium.make(cfg.id, **options)
    except gymnasium.error.UnregisteredEnv as error:
        raise ConfigError(unknown_name("environment", cfg.id, gymnasium.registry)) from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigError(f"environment '{cfg.id}' needs a package that is not installed: {error}") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"environment '{cfg.id}': {error}") from error
    except Exception as error:
        if user_traceback(error) is not None:  # in its constructor
            raise
        what = "does not take these options" if isinstance(error, TypeError) else f"fails with {type(error).__name__}"
        raise ConfigError(f"environment '{cfg.id}' {what}: {error}") from error
    space = env.observation_space
    names = set(read_parts(space)) if isinstance(space, spaces.Dict) else set()
    # Beside pictures, goals are numbers of the state.
    has_goals = names == {*VECTOR_PARTS} and not needs_pictures
    has_images = any(name.startswith(IMAGE_PART) for name in names)
    if not isinstance(space, spaces.Box) and not has_images and not has_goals:
        env = gymnasium.wrappers.FlattenObservation(env)
    return CheckedEnv(RenderedObservation(env, cfg) if needs_pictures else env, cfg.id)


class RenderedObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Adds the rendered picture to the observation, under the name of the one camera that such environments have."""

    def __init__(self, env: gymnasium.Env[Any, Any], cfg: EnvConfig) -> None:
        super().__init__(env)
        if len(cfg.cameras) != 1:
            raise ConfigError(f"cameras: '{cfg.id}' has one picture, its render(); found {len(cfg.cameras)} cameras")
        self.camera = cfg.cameras[0]
        self.size = cfg.frame_size
        self.with_state = cfg.obs_mode == "state+images"
        images = spaces.Dict({self.camera: spaces.Box(0, 255, (*self.size, 3), np.uint8)})
        parts: dict[str, spaces.Space[Any]] = {"state": env.observation_space} if self.with_state else {}
        parts["images"] = images
        self.observation_space = spaces.Dict(parts)

    def observation(self, observation: Any) -> Any:
        images = {"images": draw_cameras(self.env, [self.camera], self.size)}
        return {"state": observation, **images} if self.with_state else images
