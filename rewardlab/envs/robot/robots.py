"""The robots there are, by the type that a config names, and the lock that lets one program move each."""

import dataclasses
import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rewardlab.envs.robot.franka import FrankaConfig, FrankaRobot
from rewardlab.envs.robot.http_robot import HttpRobot, HttpRobotConfig
from rewardlab.envs.robot.protocol import Robot, RobotError
from rewardlab.errors import ConfigError
from rewardlab.registry import import_named, unknown_name

KEY = "cluster.node_groups.hardware"
ROBOTS: dict[str, tuple[type[Any], Callable[[Any], Robot]]] = {
    "Franka": (FrankaConfig, FrankaRobot),
    "http": (HttpRobotConfig, HttpRobot),
}


def make_robot(robot_type: str, settings: Mapping[str, Any]) -> Robot:
    """Build the adapter of a robot; nothing is sent to it yet.

    `robot_type` is Franka, http, or `module:name` of yours: a class (or function) that takes the settings as keyword
    arguments.
    """
    if ":" in robot_type:
        module, _, name = robot_type.rpartition(":")
        make = getattr(import_named(module, f"{KEY}.type: '{robot_type}'"), name, None)
        if not callable(make):
            raise ConfigError(f"{KEY}.type: {module} has no {name}")
        try:
            made: Robot = make(**settings)
        except TypeError as error:
            raise ConfigError(f"{KEY}.configs: '{robot_type}' does not take these settings: {error}") from error
        return made
    if robot_type not in ROBOTS:
        raise ConfigError(f"{KEY}.type: {unknown_name('type of robot', robot_type, [*ROBOTS, 'module:name'])}")
    config_class, build = ROBOTS[robot_type]
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    for name in settings:
        if name not in fields:
            raise ConfigError(f"{KEY}.configs: {unknown_name(f'key of a {robot_type}', str(name), fields)}")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in settings:
            raise ConfigError(f"{KEY}.configs: no {name}; a {robot_type} needs it")
    return build(config_class(**settings))


def _file_name(robot: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", robot.replace("//localhost", "//127.0.0.1"))


class RobotLock:
    """Lets one program of this machine move a robot; ends with the process, however it ends."""

    def __init__(self, name: str) -> None:
        place = Path(tempfile.gettempdir()) / f"rewardlab-robot-{_file_name(name)}.lock"
        try:
            self._file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise RobotError(
                f"{name}: {place} says who moves this robot, and cannot be opened ({error.strerror}); does it belong "
                "to another user of this machine, who moves it?"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(self._file, 20).decode(errors="replace").strip()
            os.close(self._file)
            raise RobotError(
                f"{name} is already moved by another program of this machine (process {owner or 'unknown'}): two would "
                "fight over it. End that one first"
            ) from error
        os.truncate(self._file, 0)
        os.write(self._file, str(os.getpid()).encode())

    def close(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.truncate(self._file, 0)
            os.close(self._file)
            self._file = -1
