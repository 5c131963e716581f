"""Builds any environment: the part of its id before the slash says which family it belongs to."""

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from rewardlab.config import config_from_mapping
from rewardlab.config.run_checks import NO_ROBOT
from rewardlab.config.schema import EnvConfig
from rewardlab.envs import bitflip, keydoor
from rewardlab.envs.gym import make_gym_vec_env
from rewardlab.envs.tabletop.env import EPISODE_STEPS, TabletopVectorEnv
from rewardlab.errors import ConfigError
from rewardlab.observations import is_image, read_parts
from rewardlab.registry import Registry, unknown_name

EnvMaker = Callable[[EnvConfig], VectorEnv[Any, Any, Any]]

# Family -> the keys of EnvConfig that it does not use.
UNUSED: dict[str, tuple[str, ...]] = {
    "tabletop": ("processes", "target_ee_pose"),
    "maniskill": ("target_ee_pose",),
    "toy": ("reward", "obs_mode", "success_hold_steps", "target_ee_pose"),
    "gymnasium": ("target_ee_pose",),
}
_TABLETOP_OPTIONS = ("randomize", "motion_noise", "render_mode")
_BITFLIP_OPTIONS = ("bits",)

FAMILIES: Registry[EnvMaker] = Registry("environment family")


def make_vec_env(env: EnvConfig | str, **settings: Any) -> VectorEnv[Any, Any, Any]:
    """A vector environment from its part of a config, or from an id and settings:

    >>> env = make_vec_env("tabletop/PickCube", num_envs=16)
    >>> env = make_vec_env("CartPole-v1", num_envs=4)
    """
    cfg = _checked(env, settings) if isinstance(env, str) else env
    family = cfg.id.partition("/")[0]
    if family not in FAMILIES:
        family = "gymnasium"
    _refuse(cfg, *UNUSED.get(family, ()))
    made = FAMILIES[family](cfg)
    if not _has_pictures(made):
        _refuse(cfg, "image_size", *(["cameras"] if cfg.cameras else []))
    return made


def _checked(env_id: str, settings: dict[str, Any]) -> EnvConfig:
    """The config of one environment, with the errors that a config file would get."""
    options = settings.pop("options", {})  # Python objects may be among them, which no config file has
    cfg = config_from_mapping({"env": {"train": {"id": env_id, **settings}}}).env.train
    return dataclasses.replace(cfg, options=options)


def _refuse(cfg: EnvConfig, *unused: str) -> None:
    """Raise if a key that this environment does not use is set."""
    default = EnvConfig()
    for key in unused:
        if (found := getattr(cfg, key)) != getattr(default, key):
            reason = NO_ROBOT if key == "target_ee_pose" else f"'{cfg.id}' does not offer it"
            raise ConfigError(f"{key}: {reason}; found {found!r}")


def _has_pictures(env: VectorEnv[Any, Any, Any]) -> bool:
    """Return whether cameras or sizes of pictures mean anything to an environment."""
    parts = read_parts(env.single_observation_space, batch_axes=0).values()
    drawn = hasattr(env.unwrapped, "render_cameras") and getattr(env.unwrapped, "camera_names", None) != ()
    return drawn or any(is_image(part.shape or ()) for part in parts)


FAMILIES.register("gymnasium")(make_gym_vec_env)


@FAMILIES.register("tabletop")
def _make_tabletop(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    _check_options(cfg, _TABLETOP_OPTIONS)
    env = TabletopVectorEnv(
        cfg.id.removeprefix("tabletop/"),
        cfg.num_envs,
        reward=cfg.reward,
        obs_mode=cfg.obs_mode,
        cameras=cfg.cameras,
        image_size=cfg.frame_size,
        success_hold_steps=cfg.success_hold_steps,
        max_episode_steps=cfg.max_episode_steps or EPISODE_STEPS,
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
    _refuse(cfg, "processes")  # a batch of bits is one array
    _check_options(cfg, _BITFLIP_OPTIONS)
    env = bitflip.BitFlipVectorEnv(cfg.num_envs, max_episode_steps=cfg.max_episode_steps, **cfg.options)
    env.spec = gymnasium.spec(cfg.id)
    return env


@FAMILIES.register("maniskill")
def _make_maniskill(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    from rewardlab.envs.maniskill.env import make_maniskill_vec_env

    return make_maniskill_vec_env(cfg)


def _check_options(cfg: EnvConfig, offered: tuple[str, ...]) -> None:
    for name in cfg.options:
        if name not in offered:
            raise ConfigError(unknown_name(f"option of '{cfg.id}'", name, offered))
