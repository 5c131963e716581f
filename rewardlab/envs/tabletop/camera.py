"""Pinhole cameras, one pose per frame."""

from dataclasses import dataclass

import numpy as np

from rewardlab.envs.tabletop.looks import Looks
from rewardlab.envs.tabletop.world import Floats, World, vector
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

CAMERAS = ("base_camera", "wrist_camera")
NEAR = 0.01  # points nearer than this, or behind the camera, are not drawn


@dataclass
class View:
    """`axes` [n, 3, 3] has the rows right, down, forward; `focal` is in units of the image's height."""

    eye: Floats
    axes: Floats
    focal: float

    def project(self, points: Floats, height: int, width: int) -> tuple[Floats, Floats]:
        """Pixels [n, ..., 2] and depths [n, ...] of world points [n, ..., 3]."""
        n = len(points)
        flat = points.reshape(n, -1, 3) - self.eye[:, None]
        seen = flat @ self.axes.transpose(0, 2, 1)
        depth = seen[..., 2]
        pixel = seen[..., :2] * (self.focal * height / np.maximum(depth, NEAR))[..., None]
        pixel += np.array([width / 2, height / 2], np.float32)
        return pixel.reshape(*points.shape[:-1], 2), depth.reshape(points.shape[:-1])


def view_of(camera: str, world: World, looks: Looks) -> View:
    """The camera's pose in each environment."""
    if camera == "base_camera":
        eye = vector([0.46, -0.28, 0.50]) + looks.eye_shift
        aim = vector([0.0, 0.0, 0.095]) + looks.aim_shift
        return _look_at(eye, aim, vector([0, 0, 1]), focal=1.45)
    if camera == "wrist_camera":
        # Above and in front of the fingers, tilted towards them; "up" in the picture points away from the robot.
        eye = world.grip + vector([0.065, 0.0, 0.12]) + 0.1 * looks.eye_shift
        aim = world.grip + vector([0.005, 0.0, -0.02]) + 0.1 * looks.aim_shift
        return _look_at(eye, aim, vector([-1, 0, 0]), focal=0.75)
    raise ConfigError(unknown_name("camera", camera, CAMERAS))


def _look_at(eye: Floats, aim: Floats, up: Floats, focal: float) -> View:
    forward = _unit(aim - eye)
    right = _unit(np.cross(forward, up))
    down = np.cross(forward, right)
    return View(eye.astype(np.float32), np.stack([right, down, forward], axis=1).astype(np.float32), focal)


def _unit(v: Floats) -> Floats:
    unit: Floats = v / np.sqrt(np.square(v).sum(axis=-1, keepdims=True))
    return unit
