"""What can be made to go wrong with the simulated robot, at its start or while it runs."""

import dataclasses
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rewardlab.config.schema import NonNegativeFloat, section
from rewardlab.envs.options import read_block
from rewardlab.envs.tabletop.camera import CAMERAS
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=60)]


def _some_cameras(value: object) -> object:
    """Read names of cameras; true and "all" are all of them, false is none."""
    if isinstance(value, bool) or value == "all":
        return CAMERAS if value else ()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        raise ValueError(f"true, false, or names of cameras ({', '.join(CAMERAS)})")
    for name in names:
        if name not in CAMERAS:
            raise ValueError(f"names of cameras: {unknown_name('camera', str(name), CAMERAS)}")
    return tuple(names)


SomeCameras = Annotated[tuple[str, ...], BeforeValidator(_some_cameras)]


@section
class Faults:
    """All off at first. Those of cameras take true, or names of cameras."""

    latency: Seconds = 0.0  # seconds before each answer
    jitter: Seconds = 0.0  # seconds more, at most, drawn anew for each answer
    noise: NonNegativeFloat = 0.0  # metres: standard deviation of the measured position
    dropped: Share = 0.0  # fraction of calls whose connection is closed without an answer
    garbage: bool = False  # answers that should be JSON are cut off in the middle
    nan_pose: bool = False  # the measured pose is not a number
    emergency_stop: bool = False  # the arm holds still, and every call that would move it is refused
    camera_frozen: SomeCameras = ()  # the same picture again and again
    camera_black: SomeCameras = ()
    camera_gone: SomeCameras = ()  # no answer from it


def changed(faults: Faults, values: Any) -> Faults:
    """Return faults with other values; an unknown name or a wrong value is an error that says so."""
    names = [field.name for field in dataclasses.fields(Faults)]
    if isinstance(values, dict):
        for name in values:
            if name not in names:
                raise ConfigError(unknown_name("fault", str(name), names))
        values = {**dataclasses.asdict(faults), **values}
    return read_block(Faults, "robot-sim", "faults", values)
