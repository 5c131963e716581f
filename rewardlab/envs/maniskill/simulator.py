"""Builds ManiSkill's own environments, with one line of advice for whatever can be missing or misspelt."""

import contextlib
import functools
import inspect
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rewardlab.envs.maniskill.options import ManiSkillOptions
from rewardlab.envs.missing import missing_package, missing_vulkan_driver
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

DEFAULT_CONTROL_MODE = "pd_ee_delta_pos"
# ManiSkill's name of a reward, and the method that a task writes for it; the first that there is.
REWARDS = {"dense": "compute_dense_reward", "normalized_dense": "compute_normalized_dense_reward"}
DOWNLOAD = "python -m mani_skill.utils.download_asset"


def build_simulator(env_id: str, options: ManiSkillOptions, *, draws: bool) -> Any:
    """Return ManiSkill's environment, a `BaseEnv` that steps a batch of one; without `draws` it has no visuals."""
    task, facts = find_task(env_id), _probe(env_id, options.robot_uids, options.render_backend)
    _check_options(env_id, task, options, facts)
    default = DEFAULT_CONTROL_MODE if DEFAULT_CONTROL_MODE in facts.control_modes else None
    settings = {
        "reward_mode": _reward_mode(task.cls),
        "control_mode": options.control_mode or default,
        "render_mode": options.render_mode if draws else None,
        "render_backend": _render_backend(options.render_backend) if draws or facts.needs_visuals else "none",
        "sim_config": dict(options.sim_config),
        **options.task,
    }
    if options.robot_uids is not None:
        settings["robot_uids"] = options.robot_uids
    return _build(env_id, options.render_backend, **settings)


def find_task(env_id: str) -> Any:
    """Return ManiSkill's entry of a task whose assets are on this machine."""
    registered = _registered_tasks(env_id)
    name = env_id.removeprefix("maniskill/")
    if name not in registered:
        raise ConfigError(unknown_name("ManiSkill task", name, registered))
    if missing := _missing_assets(registered[name]):
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise ConfigError(
            f"environment '{env_id}' needs files that are not on this machine ({listed}): {DOWNLOAD} {name}"
        )
    return registered[name]


@dataclass(frozen=True)
class TaskFacts:
    control_modes: tuple[str, ...]  # of its robots; empty if it has none
    needs_visuals: bool  # it cannot be built without


@functools.cache
def _registered_tasks(env_id: str) -> dict[str, Any]:
    with _quiet():
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


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings about libvulkan, which SAPIEN brings itself, and about the precision of bounds of spaces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _missing_assets(task: Any) -> list[str]:
    from mani_skill.utils import assets

    needed: list[str] = []
    for name in task.asset_download_ids or ():
        group = name in assets.DATA_GROUPS
        needed += assets.expand_data_group_into_individual_data_source_ids(name) if group else [name]
    return sorted(name for name in needed if not assets.is_data_source_downloaded(name))


@functools.cache
def _probe(env_id: str, robot: str | None, render_backend: str) -> TaskFacts:
    """Build a task once, to see what it has."""
    settings = {"reward_mode": _reward_mode(find_task(env_id).cls)} | ({"robot_uids": robot} if robot else {})
    try:
        simulator = _build(env_id, render_backend, render_backend="none", **settings)
        needs_visuals = False
    except ConfigError:
        simulator = _build(env_id, render_backend, render_backend=_render_backend(render_backend), **settings)
        needs_visuals = True
    agent = simulator.agent
    robots = [] if agent is None else getattr(agent, "agents", [agent])
    modes = [each.supported_control_modes for each in robots]
    simulator.close()
    return TaskFacts(tuple(mode for mode in (modes or [()])[0] if all(mode in each for each in modes)), needs_visuals)


def _build(env_id: str, renderer: str, /, **settings: Any) -> Any:
    task = find_task(env_id)
    try:
        _hold_renderer(_render_backend(renderer))
    except RuntimeError as error:
        raise missing_vulkan_driver(env_id, str(error)) from error
    try:
        with _quiet(), _no_questions():
            return task.make(num_envs=1, obs_mode="state", sim_backend="physx_cpu", **settings)
    except FileNotFoundError as error:
        raise ConfigError(
            f"environment '{env_id}' needs a file that is not on this machine ({error}). {DOWNLOAD} downloads files of "
            "tasks, robots and scenes by name; with --list robot (or scene, objects, task_assets) it lists them"
        ) from error
    except (Exception, SystemExit) as error:
        robot = settings.get("robot_uids")
        if robot is not None and (choices := _other_robots(robot, task.cls)):
            raise ConfigError(unknown_name(f"robot_uids of '{env_id}'", robot, choices)) from error
        raise ConfigError(f"environment '{env_id}' cannot be built: {type(error).__name__}: {error}") from error


@functools.cache
def _hold_renderer(backend: str) -> Any:
    """Return the one renderer that a process can have. Without it, a task that is built without visuals chooses one."""
    import sapien

    return sapien.render.RenderSystem(sapien.Device("cuda" if backend == "gpu" else "cpu"))


@contextlib.contextmanager
def _no_questions() -> Iterator[None]:
    """Let ManiSkill raise an error where it would ask whether to download files: nobody may be there to answer."""
    from mani_skill.utils import download_asset

    def refuse(question: str) -> bool:
        raise FileNotFoundError(question.partition(".")[0])

    asked = download_asset.prompt_yes_no
    download_asset.prompt_yes_no = refuse
    try:
        yield
    finally:
        download_asset.prompt_yes_no = asked


def _other_robots(robot: str, task: Any) -> list[str]:
    """Return the robots to choose from if this one is unknown or not one of the task's; else nothing."""
    from mani_skill.agents.registration import REGISTERED_AGENTS

    supported = [one for one in task.SUPPORTED_ROBOTS or () if isinstance(one, str)]
    if robot not in REGISTERED_AGENTS:
        return supported or list(REGISTERED_AGENTS)
    return supported if robot not in supported else []


def _reward_mode(task: Any) -> str:
    from mani_skill.envs.sapien_env import BaseEnv

    written = [mode for mode, method in REWARDS.items() if getattr(task, method) is not getattr(BaseEnv, method)]
    return next(mode for mode in (*written, "sparse", "none") if mode in task.SUPPORTED_REWARD_MODES)


def _check_options(env_id: str, task: Any, options: ManiSkillOptions, facts: TaskFacts) -> None:
    import torch

    if options.control_mode is not None and options.control_mode not in facts.control_modes:
        raise ConfigError(unknown_name(f"control_mode of '{env_id}'", options.control_mode, facts.control_modes))
    offered = set(inspect.signature(task.cls.__init__).parameters)
    offered -= {"self", "args", "kwargs", "robot_uids", "num_envs", "reconfiguration_freq"}
    for name in options.task:
        if name not in offered:
            raise ConfigError(unknown_name(f"option task of '{env_id}'", name, offered))
    if options.sim_backend == "gpu":
        problem = "is not built yet" if torch.cuda.is_available() else "needs a CUDA GPU, and torch finds none"
        raise ConfigError(f"environment '{env_id}': options.sim_backend: gpu {problem}; use cpu")


def _render_backend(asked: str) -> str:
    import torch

    if asked == "gpu" and not torch.cuda.is_available():
        raise ConfigError("options.render_backend: gpu needs a CUDA GPU, and torch finds none; use cpu")
    return "gpu" if asked != "cpu" and torch.cuda.is_available() else "cpu"
