"""Builds ManiSkill's own environments, with one line of advice for whatever can be missing or misspelt."""

import functools
import inspect
import logging
import warnings
from typing import Any

from rewardlab.envs.maniskill.options import ManiSkillOptions
from rewardlab.envs.missing import missing_package, missing_vulkan_driver
from rewardlab.errors import ConfigError, user_traceback
from rewardlab.registry import unknown_name

DEFAULT_CONTROL_MODE = "pd_ee_delta_pos"
REWARD_MODES = ("dense", "sparse", "none")  # the first that a task has
# What SAPIEN says where Vulkan finds no driver, or only one that lacks what SAPIEN needs.
NO_DRIVER = ("vk::", "rendering device", "ErrorIncompatibleDriver", "vulkan")


def build_simulator(env_id: str, options: ManiSkillOptions, *, draws: bool) -> Any:
    """Return ManiSkill's environment (a `BaseEnv` that steps a batch of one). Without `draws` it has no visuals."""
    task = find_task(env_id)
    _check_backends(env_id, options)
    return _build(
        env_id,
        options,
        reward_mode=next(mode for mode in REWARD_MODES if mode in task.cls.SUPPORTED_REWARD_MODES),
        control_mode=find_control_mode(env_id, options),
        render_mode=options.render_mode if draws else None,
        render_backend=_render_backend(options) if draws else "none",
    )


def find_task(env_id: str) -> Any:
    """Return ManiSkill's entry of a task; its assets are on this machine."""
    registered = _registered_tasks(env_id)
    name = env_id.removeprefix("maniskill/")
    if name not in registered:
        raise ConfigError(unknown_name("ManiSkill task", name, registered))
    task = registered[name]
    if missing := _missing_assets(task):
        raise ConfigError(
            f"environment '{env_id}' needs files that are not on this machine ({', '.join(missing)}): "
            f"python -m mani_skill.utils.download_asset {name}"
        )
    return task


def find_control_mode(env_id: str, options: ManiSkillOptions) -> str | None:
    """Return the control mode to use; None if the task has no robot."""
    modes = _control_modes(env_id, options.robot_uids)
    if options.control_mode is None:
        return DEFAULT_CONTROL_MODE if DEFAULT_CONTROL_MODE in modes else next(iter(modes), None)
    if options.control_mode not in modes:
        raise ConfigError(unknown_name(f"control_mode of '{env_id}'", options.control_mode, modes))
    return options.control_mode


@functools.cache
def _registered_tasks(env_id: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libvulkan, which SAPIEN brings itself; of deprecated NumPy calls
        try:
            import mani_skill.envs
            from mani_skill.utils.registration import REGISTERED_ENVS
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in ("mani_skill", "sapien"):
                raise missing_package(env_id, package, "maniskill") from error
            raise
    logging.getLogger(mani_skill.logger.name).setLevel(logging.ERROR)
    return dict(REGISTERED_ENVS)


def _missing_assets(task: Any) -> list[str]:
    from mani_skill.utils import assets

    needed: list[str] = []
    for name in task.asset_download_ids or ():
        group = name in assets.DATA_GROUPS
        needed += assets.expand_data_group_into_individual_data_source_ids(name) if group else [name]
    return sorted(name for name in needed if not assets.is_data_source_downloaded(name))


@functools.cache
def _control_modes(env_id: str, robot: str | None) -> tuple[str, ...]:
    """Return the control modes of a task's robot, by building it once."""
    simulator = _build(env_id, ManiSkillOptions(robot_uids=robot), reward_mode="none", render_backend="none")
    agent = simulator.agent
    agents = [] if agent is None else getattr(agent, "agents", [agent])
    modes = [set(each.supported_control_modes) for each in agents]
    common = set.intersection(*modes) if modes else set()
    found = tuple(mode for mode in (agents[0].supported_control_modes if agents else ()) if mode in common)
    simulator.close()
    return found


def _build(env_id: str, options: ManiSkillOptions, **settings: Any) -> Any:
    task = find_task(env_id)
    settings |= {"num_envs": 1, "obs_mode": "state", "sim_backend": "physx_cpu", "sim_config": dict(options.sim_config)}
    if options.robot_uids is not None:
        settings["robot_uids"] = options.robot_uids
    _check_task_arguments(env_id, task.cls, options)
    try:
        return task.make(**settings, **options.task)
    except (Exception, SystemExit) as error:
        if any(sign in str(error) for sign in NO_DRIVER):
            raise missing_vulkan_driver(env_id, str(error)) from error
        if options.robot_uids is not None and (choices := _robots(options.robot_uids, task.cls)):
            raise ConfigError(unknown_name(f"robot_uids of '{env_id}'", options.robot_uids, choices)) from error
        if isinstance(error, FileNotFoundError):
            raise ConfigError(
                f"environment '{env_id}' needs a file that is not on this machine ({error}): "
                f"python -m mani_skill.utils.download_asset {task.uid}"
            ) from error
        if user_traceback(error) is not None and "mani_skill" not in str(type(error).__module__):
            raise ConfigError(f"environment '{env_id}' fails with {type(error).__name__}: {error}") from error
        raise


def _robots(robot: str, task: Any) -> list[str]:
    """Return the robots to choose from if this one is unknown or not one of the task's; else nothing."""
    from mani_skill.agents.registration import REGISTERED_AGENTS

    supported = [one for one in task.SUPPORTED_ROBOTS or () if isinstance(one, str)]
    if robot not in REGISTERED_AGENTS:
        return supported or list(REGISTERED_AGENTS)
    return supported if robot not in supported else []


def _check_task_arguments(env_id: str, task: Any, options: ManiSkillOptions) -> None:
    offered = [name for name in inspect.signature(task.__init__).parameters if name not in ("self", "args", "kwargs")]
    offered = [name for name in offered if name not in ("robot_uids", "num_envs", "reconfiguration_freq")]
    for name in options.task:
        if name not in offered:
            raise ConfigError(unknown_name(f"option task of '{env_id}'", name, offered))


def _check_backends(env_id: str, options: ManiSkillOptions) -> None:
    import torch

    for name, value in (("sim_backend", options.sim_backend), ("render_backend", options.render_backend)):
        if value == "gpu" and not torch.cuda.is_available():
            raise ConfigError(f"environment '{env_id}': options.{name} is gpu, but torch finds no CUDA GPU; use cpu")
    if options.sim_backend == "gpu":
        raise ConfigError(f"environment '{env_id}': options.sim_backend: gpu is not built yet; use cpu")


def _render_backend(options: ManiSkillOptions) -> str:
    import torch

    if options.render_backend == "auto":
        return "gpu" if torch.cuda.is_available() else "cpu"
    return options.render_backend
