"""Builds any environment: the part of its id before the slash says which family it belongs to."""

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv, VectorWrapper

from rewardlab.config import config_from_mapping
from rewardlab.config.robots import check_robot_keys
from rewardlab.config.schema import EnvConfig
from rewardlab.envs import bitflip, keydoor
from rewardlab.envs.camera_frames import describe_pictures
from rewardlab.envs.closing import closed_after_errors
from rewardlab.envs.copies import CopiesVectorEnv
from rewardlab.envs.drawing_drivers import choose_drivers_on_import
from rewardlab.envs.from_module import make_from_module
from rewardlab.envs.gym import make_gym_vec_env
from rewardlab.envs.options import check_option_names
from rewardlab.envs.single import find_wrapper, policy_steps, wrap
from rewardlab.envs.tabletop.env import EPISODE_STEPS, TabletopVectorEnv
from rewardlab.errors import ConfigError
from rewardlab.observations import is_image, read_parts
from rewardlab.registry import Registry, import_named, unknown_name

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
    check_robot_keys(cfg)
    with choose_drivers_on_import():
        make, cfg = _find_family(cfg)
        made = make(cfg)
        with closed_after_errors(made.close):
            if not _has_pictures(made):
                why = f": {describe_pictures(made)}"
                _refuse(cfg, "image_size", *(["cameras"] if cfg.cameras else []), why=why)
            return _wrapped(made, cfg)


def _find_family(cfg: EnvConfig) -> tuple[EnvMaker, EnvConfig]:
    """Return the maker of an environment, and the config for it.

    What `module:name` means is looked for in this order: `family/Task`, the family may be the user's; an id that
    Gymnasium knows once the module is imported; a class or a function of the module.
    """
    module, _, name = cfg.id.rpartition(":")
    found = import_named(module, f"environment '{cfg.id}'") if module else None
    family = name.partition("/")[0]
    if family in FAMILIES and name != family:
        return FAMILIES[family], dataclasses.replace(cfg, id=name)
    if hasattr(found, name) and name not in gymnasium.registry:
        return make_from_module, cfg
    return make_gym_vec_env, cfg


def _wrapped(env: VectorEnv[Any, Any, Any], cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Put the wrappers of vector environments around one; those of single environments are around each copy already."""
    for wrapper in cfg.wrappers:
        wrapper_class = find_wrapper(wrapper)
        if issubclass(wrapper_class, VectorWrapper):
            env = wrap(env, wrapper_class, wrapper)
        elif not isinstance(env.unwrapped, CopiesVectorEnv):
            raise ConfigError(
                f"env.train.wrappers: '{wrapper.name}' is for a single environment, but '{cfg.id}' is stepped as one "
                "batch; expected a class of gymnasium.vector.VectorWrapper"
            )
    return env


def _checked(env_id: str, settings: dict[str, Any]) -> EnvConfig:
    """The config of one environment, with the errors that a config file would get."""
    options = settings.pop("options", {})  # Python objects may be among them, which no config file has
    cfg = config_from_mapping({"env": {"train": {"id": env_id, **settings}}}).env.train
    return dataclasses.replace(cfg, options=options)


def _refuse(cfg: EnvConfig, *unused: str, why: str = "") -> None:
    """Raise if a key that this environment does not use is set."""
    default = EnvConfig()
    for key in unused:
        if (found := getattr(cfg, key)) != getattr(default, key):
            raise ConfigError(f"{key}: '{cfg.id}' does not offer it{why}; found {found!r}")


def _has_pictures(env: VectorEnv[Any, Any, Any]) -> bool:
    """Return whether cameras or sizes of pictures mean anything to an environment."""
    parts = read_parts(env.single_observation_space, batch_axes=0).values()
    drawn = hasattr(env.unwrapped, "render_cameras") and getattr(env.unwrapped, "camera_names", None) != ()
    return drawn or any(is_image(part.shape or ()) for part in parts)


@FAMILIES.register("tabletop")
def _make_tabletop(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    _refuse(cfg, "processes")  # a batch of tables is one array
    check_option_names(cfg.id, cfg.options, _TABLETOP_OPTIONS)
    env = TabletopVectorEnv(
        cfg.id.removeprefix("tabletop/"),
        cfg.num_envs,
        reward=cfg.reward,
        obs_mode=cfg.obs_mode,
        cameras=cfg.cameras,
        image_size=cfg.frame_size,
        success_hold_steps=cfg.success_hold_steps,
        max_episode_steps=policy_steps(cfg, EPISODE_STEPS) or EPISODE_STEPS,
        action_repeat=cfg.action_repeat,
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
    _refuse(cfg, "processes", "reward", "obs_mode", "success_hold_steps")  # a batch of bits is one array
    check_option_names(cfg.id, cfg.options, _BITFLIP_OPTIONS)
    env = bitflip.BitFlipVectorEnv(
        cfg.num_envs, max_episode_steps=cfg.max_episode_steps, action_repeat=cfg.action_repeat, **cfg.options
    )
    env.spec = gymnasium.spec(cfg.id)
    return env


@FAMILIES.register("metaworld")
def _make_metaworld(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    from rewardlab.envs.metaworld.make import make_metaworld_vec_env

    return make_metaworld_vec_env(cfg)


@FAMILIES.register("maniskill")
def _make_maniskill(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    from rewardlab.envs.maniskill.make import make_maniskill_vec_env

    return make_maniskill_vec_env(cfg)


@FAMILIES.register("robot")
def _make_robot(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    from rewardlab.envs.robot.make import make_robot_vec_env

    return make_robot_vec_env(cfg)
