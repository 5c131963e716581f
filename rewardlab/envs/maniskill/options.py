"""What `env.train.options` can say of a ManiSkill task."""

import dataclasses
import json
import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from rewardlab.config.load import validation_message
from rewardlab.config.schema import section
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name


def _numbers(count: int, meaning: str) -> BeforeValidator:
    def check(value: object) -> object:
        if not isinstance(value, (list, tuple)) or len(value) != count:
            raise ValueError(meaning)
        return tuple(value)

    return BeforeValidator(check)


Point = Annotated[tuple[float, float, float], _numbers(3, "3 numbers: x, y, z in metres")]


@section
class CameraPose:
    """A camera that stands still and looks at a point."""

    eye: Point
    target: Point
    fov: Annotated[float, Field(gt=0, lt=math.pi)] = 0.6  # vertical field of view in radians

    @model_validator(mode="after")
    def _looks_somewhere(self) -> "CameraPose":
        if self.eye == self.target:
            raise ValueError("eye and target are the same point; expected a target to look at")
        return self


@section
class ManiSkillOptions:
    # Of the robot's modes; null = pd_ee_delta_pos (the gripper's position and its fingers) where the robot has it.
    control_mode: str | None = None
    robot_uids: str | None = None  # null = the robot that the task was written for
    # The camera base_camera: a pose, or "task" for the task's own; null = one from which success can be seen.
    camera: CameraPose | Literal["task"] | None = None
    show_goal: bool = True  # draw goal markers, which ManiSkill hides from cameras
    # cheap = meshes of few triangles; full = ManiSkill's own; auto = cheap on the CPU, full on a GPU (the only choice).
    visuals: Literal["auto", "cheap", "full"] = "auto"
    render_mode: Literal["rgb_array", "sensors", "all", "human"] = "rgb_array"  # of render(); see ManiSkill
    # fast = NumPy around physics, through the same states; original = ManiSkill's own; auto = fast where it can be.
    stepping: Literal["auto", "fast", "original"] = "auto"
    sim_backend: Literal["cpu", "gpu"] = "cpu"  # where physics runs
    render_backend: Literal["auto", "cpu", "gpu"] = "auto"  # where pictures are drawn; auto = on a GPU if there is one
    sim_config: dict[str, Any] = dataclasses.field(default_factory=dict)  # of ManiSkill: sim_freq, control_freq ...
    task: dict[str, Any] = dataclasses.field(default_factory=dict)  # keyword arguments of this task's class


OPTION_NAMES = tuple(field.name for field in dataclasses.fields(ManiSkillOptions))


def read_options(env_id: str, options: dict[str, Any]) -> ManiSkillOptions:
    """Check the options of a task, without importing the simulator."""
    for name in options:
        if name not in OPTION_NAMES:
            raise ConfigError(unknown_name(f"option of '{env_id}'", name, OPTION_NAMES))
    try:
        return TypeAdapter(ManiSkillOptions).validate_json(json.dumps(options, default=str))
    except ValidationError as error:
        lines = [f"options.{validation_message(each)}" for each in error.errors()]
    raise ConfigError(f"environment '{env_id}': {'; '.join(lines)}")
