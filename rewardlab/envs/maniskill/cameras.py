"""The cameras of a ManiSkill task: where they are and what they see."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rewardlab.envs.cameras import Size
from rewardlab.envs.maniskill.options import CameraPose
from rewardlab.envs.maniskill.shaders import choose_shaders
from rewardlab.errors import ConfigError
from rewardlab.keys import DEFAULT_CAMERA

OWN_SIZE = (128, 128)  # height and width of frames where nobody asks for a size
# Task -> a camera that sees every cube and every goal, from as near as that allows.
GOOD_CAMERAS = {
    "PickCube-v1": CameraPose(eye=(0.65, 0.3, 0.5), target=(0.0, 0.0, 0.15)),
    "PullCube-v1": CameraPose(eye=(-0.4, 0.7, 0.6), target=(-0.14, 0.0, 0.0), fov=0.7),
    "PushCube-v1": CameraPose(eye=(0.9, 0.15, 0.6), target=(0.13, 0.0, 0.0)),
    "StackCube-v1": CameraPose(eye=(0.75, 0.3, 0.6), target=(0.02, 0.0, 0.02), fov=0.8),
}


@dataclass(frozen=True)
class CameraSettings:
    """A camera in a scene. `mount` is the entity it moves with; without one, `pose` is in the world."""

    pose: Any  # sapien.Pose
    size: tuple[int, int]
    fov: float | None
    intrinsic: Any
    near: float
    far: float
    mount: Any = None


def find_camera_names(simulator: Any) -> tuple[str, ...]:
    """Return the cameras of a task: base_camera, those of the task and its robot, and those for people."""
    return tuple(dict.fromkeys([DEFAULT_CAMERA, *_own_cameras(simulator)]))


def find_cameras(env_id: str, simulator: Any, chosen: CameraPose | Literal["task"] | None) -> dict[str, CameraSettings]:
    """Return the cameras of a task by name.

    base_camera is `chosen`; or, for "task", the task's own of that name; or else a good one for this task, which is
    ManiSkill's camera for people (the last one) where no better one is known.
    """
    own = {name: _own_settings(simulator, config) for name, config in _own_cameras(simulator).items()}
    if (pose := chosen_pose(env_id, chosen)) is not None:
        return own | {DEFAULT_CAMERA: _still(pose)}
    if chosen == "task" and DEFAULT_CAMERA in own:
        return own
    if own:
        return own | {DEFAULT_CAMERA: list(own.values())[-1]}
    raise ConfigError(f"'{env_id}' has no camera of its own; say options.camera with eye and target")


def chosen_pose(env_id: str, chosen: CameraPose | Literal["task"] | None) -> CameraPose | None:
    """Return where base_camera stands: where it was told to, or where success can be seen; None if neither is known."""
    if chosen is None:
        return GOOD_CAMERAS.get(env_id.removeprefix("maniskill/"))
    return chosen if isinstance(chosen, CameraPose) else None


def look_at(camera: CameraPose) -> Any:
    """Return the pose of a camera as SAPIEN's."""
    from mani_skill.utils.sapien_utils import look_at

    return look_at(camera.eye, camera.target).sp


def add_camera(scene: Any, settings: CameraSettings, size: Size) -> Any:
    """Add a camera to a scene, at its own size or another."""
    import sapien

    height, width = size or settings.size
    choose_shaders(scene)
    camera = sapien.render.RenderCameraComponent(width, height)
    if settings.fov is not None:
        camera.set_fovy(settings.fov, compute_x=True)
    else:
        matrix = np.asarray(settings.intrinsic, np.float32).reshape(3, 3)
        scale_y, scale_x = height / settings.size[0], width / settings.size[1]
        camera.set_focal_lengths(float(matrix[0, 0] * scale_x), float(matrix[1, 1] * scale_y))
        camera.set_principal_point(float(matrix[0, 2] * scale_x), float(matrix[1, 2] * scale_y))
    camera.near, camera.far = settings.near, settings.far
    if settings.mount is not None:
        camera.local_pose = settings.pose
        settings.mount.add_component(camera)
        return camera
    entity = sapien.Entity()
    entity.add_component(camera)
    entity.set_pose(settings.pose)
    scene.add_entity(entity)
    return camera


def _still(camera: CameraPose) -> CameraSettings:
    return CameraSettings(look_at(camera), OWN_SIZE, camera.fov, None, near=0.01, far=100)


def _own_cameras(simulator: Any) -> dict[str, Any]:
    """Return ManiSkill's descriptions of cameras by name, those for people last."""
    from mani_skill.sensors.camera import parse_camera_configs

    robots = [] if simulator.agent is None else simulator.agent._sensor_configs
    parts = (simulator._default_sensor_configs, robots, simulator._default_human_render_camera_configs)
    return {name: config for part in parts for name, config in parse_camera_configs(part).items()}


def _own_settings(simulator: Any, config: Any) -> CameraSettings:
    mount = config.mount
    if mount is None and config.entity_uid is not None:
        robots = getattr(simulator.agent, "agents", [simulator.agent])
        links = [link for robot in robots for link in robot.robot.get_links()]
        mount = next(link for link in links if link.name == config.entity_uid)
    if mount is not None:
        mount = mount._objs[0]
        mount = getattr(mount, "entity", mount)  # of a link
    size = (config.height, config.width)
    return CameraSettings(config.pose.sp, size, config.fov, config.intrinsic, config.near, config.far, mount)
