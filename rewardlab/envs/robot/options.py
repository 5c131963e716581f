"""What `env.train.options` can say of a robot, whatever its type."""

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field

from rewardlab.config.schema import NonNegativeFloat, section
from rewardlab.envs.options import Point, check_option_names, read_block
from rewardlab.envs.robot.cameras import CameraConfig

Positive = Annotated[float, Field(gt=0)]
Axis = Literal["x", "y", "z", "roll", "pitch", "yaw", "gripper"]


@section
class LimitsConfig:
    """What commands keep to; the box is around target_ee_pose, in metres of the robot's base frame."""

    low: Point = (-0.10, -0.10, -0.01)
    high: Point = (0.10, 0.10, 0.20)
    step: Positive = 0.02  # metres that a command is away from the measured position at most
    rotation: NonNegativeFloat = 0.3  # radians that the tool is turned away from its target orientation at most
    rotation_step: Positive = 0.1  # radians that a command is away from the measured orientation at most


@section
class ToleranceConfig:
    """How near the target pose a frame is labelled a success."""

    position: Positive = 0.005  # metres, on each axis
    rotation: Positive = 0.2  # radians


@section
class ResetConfig:
    """Where episodes start: above the target, moved at random."""

    height: float = 0.10  # metres above the target
    spread: Point = (0.05, 0.05, 0.02)  # metres to either side
    lift: NonNegativeFloat = 0.08  # metres straight up before it moves aside: out of a hole
    joints_every: Annotated[int, Field(gt=0)] | None = None  # episodes between two resets of the joints; null = never
    seconds: Positive = 20.0  # in which the start must be reached
    tolerance: Positive = 0.01  # metres


@section
class RobotOptions:
    robots: tuple[dict[str, Any], ...] = ()  # filled in from cluster.node_groups
    axes: tuple[Axis, ...] = ("x", "y", "z")  # what an action moves, in this order
    control_hz: Positive = 10.0
    cameras: dict[str, CameraConfig] = Field(default_factory=dict)
    limits: LimitsConfig = LimitsConfig()
    tolerance: ToleranceConfig = ToleranceConfig()
    reset: ResetConfig = ResetConfig()
    watchdog_seconds: Positive | None = 1.0  # of silence after which the robot is stopped; null = no watchdog
    patience_seconds: NonNegativeFloat = 10.0  # to wait for a robot or camera that does not answer
    input: tuple[Literal["keyboard", "gamepad"], ...] = ()  # beside the page, by which a person labels, moves and stops


def read_options(env_id: str, options: dict[str, Any]) -> RobotOptions:
    """Check the options of a robot environment, without calling a robot."""
    check_option_names(env_id, options, (field.name for field in fields(RobotOptions)))
    return read_block(RobotOptions, env_id, "options", options)
