"""What the environment needs of a robot. An adapter for another arm implements `Robot`, in some 50 lines.

An adapter only translates: limits, the control rate, the watchdog, cameras, labels and people's input are the
environment's (`env.py`), once for all robots.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rewardlab.errors import DataError

Floats: TypeAlias = npt.NDArray[np.float64]


class RobotError(DataError):
    """A robot or a camera did not answer, or answered nonsense. What is sent next is to stop."""


class RobotStopped(RobotError):
    """An emergency stop is pressed: only a person can end that."""


class RobotInterrupted(RobotError):
    """The program is ending, as after Ctrl-C: the robot was stopped, and nothing is sent to it any more."""


@dataclass(frozen=True)
class RobotState:
    """What a robot measures, in its base frame."""

    pose: Floats  # [7]: position of the tool in metres, and its orientation as a quaternion x, y, z, w
    velocity: Floats  # [6]: m/s and rad/s
    force: Floats  # [3]: N
    torque: Floats  # [3]: N m
    gripper: float  # 0 closed, 1 open


@dataclass(frozen=True)
class Command:
    """Where a robot shall go; it moves there by itself, and holds that pose until the next command."""

    pose: Floats  # [7], as in RobotState
    gripper: float | None = None  # 0 closed, 1 open; None = as it is


@dataclass(frozen=True)
class RobotSpaces:
    """What a robot has."""

    gripper: bool = True


class Robot(Protocol):
    """A robot whose tool can be moved. `stop` may be called from any thread, at any time; the others from one."""

    name: str  # its address, in messages

    def spaces(self) -> RobotSpaces: ...

    def observe(self) -> RobotState: ...

    def act(self, command: Command) -> Command:
        """Send a command and return what was really sent."""

    def reset(self, *, joints: bool = False) -> None:
        """Clear errors and make the robot ready to be moved; with `joints`, first to its home position."""

    def stop(self) -> None:
        """Hold still where it is."""

    def close(self) -> None: ...


def numbers(values: Any, count: int, what: str) -> Floats:
    """Return `count` finite numbers that a robot said; `what` names the robot and the field in errors."""
    try:
        found = np.asarray(values, np.float64).reshape(-1)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise RobotError(f"{what}: found {str(values)[:100]}, expected {count} finite numbers")
    return found


def pose_numbers(values: Any, what: str) -> Floats:
    """Return a pose that a robot said, with a quaternion of length 1."""
    pose = numbers(values, 7, what)
    length = float(np.linalg.norm(pose[3:]))
    if not 0.9 < length < 1.1:
        raise RobotError(f"{what}: its quaternion has the length {length:.3g}, expected 1 (x, y, z, w)")
    pose[3:] /= length
    return pose


def share(value: Any, what: str) -> float:
    """Return a number that a robot said, cut to 0 ... 1."""
    return float(np.clip(numbers(value, 1, what)[0], 0.0, 1.0))


def state_from_fields(fields: Mapping[str, Any], names: Mapping[str, str], robot: str) -> RobotState:
    """Read a state out of JSON; `names` says what the fields of RobotState are called there."""

    def field(name: str) -> tuple[Any, str]:
        key = names[name]
        if key not in fields:
            raise RobotError(f"{robot}: its state has no '{key}'; found {', '.join(map(str, fields)) or 'nothing'}")
        return fields[key], f"{robot}: '{key}' of its state"

    return RobotState(
        pose=pose_numbers(*field("pose")),
        velocity=numbers(field("velocity")[0], 6, field("velocity")[1]),
        force=numbers(field("force")[0], 3, field("force")[1]),
        torque=numbers(field("torque")[0], 3, field("torque")[1]),
        gripper=share(*field("gripper")),
    )
