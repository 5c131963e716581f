"""Builds the environment of one robot or several from its part of a config."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rewardlab.config.robots import FAMILY
from rewardlab.config.schema import EnvConfig
from rewardlab.envs.closing import closed_after_errors
from rewardlab.envs.copies import CopiesVectorEnv
from rewardlab.envs.options import read_block
from rewardlab.envs.robot import franka, http_robot
from rewardlab.envs.robot.cameras import CameraConfig, make_camera
from rewardlab.envs.robot.env import RobotEnv
from rewardlab.envs.robot.http_client import split_address
from rewardlab.envs.robot.limits import ActionScale, Limits
from rewardlab.envs.robot.options import RobotOptions, read_options
from rewardlab.envs.robot.people import AllInputs, GamePad, Keyboard
from rewardlab.envs.robot.poses import pose_of_angles
from rewardlab.envs.robot.rate import ControlRate
from rewardlab.envs.robot.robots import KEY, make_robot
from rewardlab.envs.robot.watchdog import Watchdog
from rewardlab.envs.single import finish
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

EPISODE_STEPS = 100


def make_robot_vec_env(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Build an environment for each robot of the config; several are stepped at the same time, each in a thread."""
    options = read_options(cfg.id, cfg.options)
    robots = options.robots
    if not robots:
        raise ConfigError(
            f"environment '{cfg.id}': no robot is given. Name it in the config: cluster.node_groups with hardware "
            "{type: Franka, configs: [{robot_ip: 172.16.0.1:5000}]}, or begin with a simulated one: `rewardlab "
            "robot-sim --port 5000` and robot_ip: 127.0.0.1:5000"
        )
    if cfg.num_envs != len(robots):
        raise ConfigError(f"env.train.num_envs: found {cfg.num_envs}, but {KEY}.configs names {len(robots)} robots")
    if options.input and len(robots) > 1:
        raise ConfigError(
            f"env.train.options.input: found {', '.join(options.input)} with {len(robots)} robots; these can move one "
            "robot only. Remove the key, or name one robot"
        )
    makers = [partial(make_one, dataclasses.replace(cfg, options={**cfg.options, "robots": [one]})) for one in robots]
    # Without a name: its seeds are not checked, as each check would move the robot.
    return CopiesVectorEnv(makers, in_threads=True)


def make_one(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    """Build the environment of one robot."""
    options = read_options(cfg.id, cfg.options)
    env = make_robot_env(cfg, options)
    with closed_after_errors(env.close):
        check_cameras(cfg, env.camera_names)
        limit = cfg.max_episode_steps or EPISODE_STEPS
        return finish(env, dataclasses.replace(cfg, max_episode_steps=limit))


def make_robot_env(cfg: EnvConfig, options: RobotOptions) -> RobotEnv:
    """Build the environment without the wrappers that all environments have."""
    if cfg.target_ee_pose is None:
        raise ConfigError(
            f"env.train.target_ee_pose: found null; '{cfg.id}' needs [x, y, z, roll, pitch, yaw] of the tool at its "
            "goal (m, rad): the workspace box is around it"
        )
    target = pose_of_angles(cfg.target_ee_pose)
    robot_type, settings = read_robot(options.robots[0])
    limits = make_limits(target, options)
    scale = ActionScale(tuple(options.axes), options.limits.step, options.limits.rotation_step)
    seconds = options.watchdog_seconds
    with ExitStack() as opened:  # closed again if something after it fails
        cameras = {}
        for name, camera in {**options.cameras, **_own_cameras(options.robots[0])}.items():
            of_robot = camera.url is not None and "{robot}" in camera.url
            cameras[name] = make_camera(name, camera, _host_and_port(name, settings) if of_robot else "")
            opened.callback(cameras[name].close)
        people = AllInputs([])
        opened.callback(people.close)
        for source in options.input:
            people.add(Keyboard() if source == "keyboard" else GamePad())
        env = RobotEnv(
            partial(make_robot, robot_type, settings),
            target=target,
            limits=limits,
            scale=scale,
            cameras=cameras,
            rate=ControlRate(options.control_hz),
            tolerance=options.tolerance,
            start=options.reset,
            patience=options.patience_seconds,
            people=people,
            watchdog=None if seconds is None else partial(Watchdog, robot_type, settings, seconds),
        )
        opened.pop_all()  # now the environment closes them
        return env


def check_cameras(cfg: EnvConfig, names: Sequence[str]) -> None:
    """Raise if the config wants pictures of a camera that it does not describe, before anything moves."""
    for camera in cfg.cameras if names or "images" in cfg.obs_mode else ():
        if camera not in names:
            raise ConfigError(
                f"env.train.cameras: {unknown_name('camera', camera, names)}. Cameras are described in "
                "env.train.options.cameras"
            )


def make_limits(target: Any, options: RobotOptions) -> Limits:
    """Return the limits around a target pose, in the robot's base frame."""
    box = options.limits
    low, high = target[:3] + np.asarray(box.low), target[:3] + np.asarray(box.high)
    if (low >= high).any():
        raise ConfigError(
            f"env.train.options.limits: found low {list(box.low)} and high {list(box.high)}; expected each number of "
            "low below that of high"
        )
    return Limits(low, high, box.step, target[3:], box.rotation, box.rotation_step)


def read_robot(robot: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type of a robot and the settings for its adapter."""
    return str(robot["type"]), {key: value for key, value in robot.items() if key not in ("type", "cameras")}


def _own_cameras(robot: Mapping[str, Any]) -> dict[str, CameraConfig]:
    """Return the cameras that only this robot has."""
    blocks = robot.get("cameras", {})
    return {name: read_block(CameraConfig, FAMILY, f"cameras.{name}", block) for name, block in blocks.items()}


def _host_and_port(camera: str, settings: Mapping[str, Any]) -> str:
    """Return what {robot} stands for in the address of a camera."""
    for key, port in (("robot_ip", franka.PORT), ("url", http_robot.PORT)):
        if key in settings:
            host, found = split_address(settings[key], port, KEY)
            return f"{host}:{found}"
    raise ConfigError(
        f"env.train.options.cameras.{camera}.url: found {{robot}}, but the robot has no robot_ip or url; expected "
        "the camera's whole address"
    )
