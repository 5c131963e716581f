"""What `env.train.options` can say of a ManiSkill task."""

import dataclasses
import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from rewardlab.config.schema import section
from rewardlab.envs.options import Point, check_option_names, is_number, read_block


def _radians(angle: object) -> object:
    if not is_number(angle) or not 0 < angle < math.pi:
        raise ValueError("the vertical field of view in radians: above 0 and below 3.14 (40 degrees are 0.7)")
    return angle


@section
class CameraPose:
    """A camera that stands still and looks at a point."""

    eye: Point
    target: Point
    fov: Annotated[float, BeforeValidator(_radians)] = 0.6  # vertical field of view in radians

    @model_validator(mode="after")
    def _looks_somewhere(self) -> "CameraPose":
        if self.eye == self.target:
            text = f"target: found the same point as eye, {list(self.eye)}, expected a point to look at"
            raise PydanticCustomError("rule", "{text}", {"text": text})
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


def read_options(env_id: str, options: dict[str, Any]) -> ManiSkillOptions:
    """Check the options of a task, without importing the simulator."""
    check_option_names(env_id, options, (field.name for field in dataclasses.fields(ManiSkillOptions)))
    others = {name: value for name, value in options.items() if name != "camera"}
    camera = options.get("camera")
    if camera is not None and camera != "task":
        camera = read_block(CameraPose, env_id, "options.camera", camera, other="task")
    return dataclasses.replace(read_block(ManiSkillOptions, env_id, "options", others), camera=camera)
