"""One door to every environment: the part of its id before the slash says which family builds it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from rewardlab.config import config_from_mapping
from rewardlab.config.schema import EnvConfig
from rewardlab.envs import bitflip, keydoor
from rewardlab.envs.gym import make_gym_vec_env, refuse_unoffered
from rewardlab.envs.tabletop import TabletopVectorEnv
from rewardlab.errors import ConfigError
from rewardlab.registry import Registry, unknown_name

EnvMaker = Callable[[EnvConfig], VectorEnv[Any, Any, Any]]

_TABLETOP_OPTIONS = ("randomize", "motion_noise", "render_mode")
_BITFLIP_OPTIONS = ("bits",)

FAMILIES: Registry[EnvMaker] = Registry("environment family")


def make_vec_env(env: EnvConfig | str, **settings: Any) -> VectorEnv[Any, Any, Any]:
    """A vector environment from its part of a config, or from an id and settings:

    >>> env = make_vec_env("tabletop/PickCube", num_envs=16)
    >>> env = make_vec_env("CartPole-v1", num_envs=4)
    """
    cfg = _checked(env, settings) if isinstance(env, str) else env
    family, _, _ = cfg.id.partition("/")
    return FAMILIES[family](cfg) if family in FAMILIES else make_gym_vec_env(cfg)


def _checked(env_id: str, settings: dict[str, Any]) -> EnvConfig:
    """The config of one environment, with the errors that a config file would get."""
    options = settings.pop("options", {})  # Python objects may be among them, which no config file has
    cfg = config_from_mapping({"env": {"train": {"id": env_id, **settings}}}).env.train
    return dataclasses.replace(cfg, options=options)


@FAMILIES.register("tabletop")
def _make_tabletop(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    _check_options(cfg, _TABLETOP_OPTIONS)
    limit: dict[str, Any] = {} if cfg.max_episode_steps is None else {"max_episode_steps": cfg.max_episode_steps}
    env = TabletopVectorEnv(
        cfg.id.removeprefix("tabletop/"),
        cfg.num_envs,
        reward=cfg.reward,
        obs_mode=cfg.obs_mode,
        cameras=cfg.cameras,
        image_size=cfg.frame_size,
        success_hold_steps=cfg.success_hold_steps,
        **limit,
        **cfg.options,
    )
    env.spec = gymnasium.spec(cfg.id)
    return env


@FAMILIES.register("toy")
def _make_toy(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    if cfg.id == keydoor.ID:
        return make_gym_vec_env(cfg)
    if cfg.id != bitflip.ID:
        raise ConfigError(unknown_name("environment", cfg.id, [bitflip.ID, keydoor.ID]))
    _check_options(cfg, _BITFLIP_OPTIONS)
    refuse_unoffered(cfg, "reward", "obs_mode", "success_hold_steps", "target_ee_pose")
    env = bitflip.BitFlipVectorEnv(cfg.num_envs, max_episode_steps=cfg.max_episode_steps, **cfg.options)
    env.spec = gymnasium.spec(cfg.id)
    return env


def _check_options(cfg: EnvConfig, offered: tuple[str, ...]) -> None:
    for name in cfg.options:
        if name not in offered:
            raise ConfigError(unknown_name(f"option of '{cfg.id}'", name, offered))
