"""What `env.train.options` can say of a Meta-World task."""

from dataclasses import fields, replace
from typing import Annotated, Any

from pydantic import Field

from rewardlab.config.schema import section
from rewardlab.envs.options import Point, check_option_names, read_block


@section
class FreeCamera:
    """Where the camera `base_camera` stands: it looks at a point from a distance, angles are in degrees."""

    lookat: Point = (0.0, 0.75, 0.1)
    distance: Annotated[float, Field(gt=0)] = 1.0  # metres
    azimuth: float = 130.0
    elevation: float = -35.0


@section
class MetaWorldOptions:
    camera: FreeCamera = FreeCamera()
    show_goal: bool = False  # draw the dot that marks the goal


def read_options(env_id: str, options: dict[str, Any]) -> MetaWorldOptions:
    """Check the options of a task, without importing the simulator."""
    check_option_names(env_id, options, (field.name for field in fields(MetaWorldOptions)))
    others = {name: value for name, value in options.items() if name != "camera"}
    camera = read_block(FreeCamera, env_id, "options.camera", options.get("camera", {}))
    return replace(read_block(MetaWorldOptions, env_id, "options", others), camera=camera)
