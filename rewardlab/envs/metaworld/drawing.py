"""Draws scenes of Meta-World fast: one OpenGL context for all copies of a task, no shadows, no multisampling.

Meta-World's own renderer takes 72 ms of a core for 64x64, 68 of them for shadow maps of 4096x4096 and multisampling.
"""

import copy
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rewardlab.data.episodes import Array
from rewardlab.envs.cameras import Frame
from rewardlab.envs.metaworld.meshes import merge_vertices, merging_distance
from rewardlab.envs.metaworld.options import FreeCamera
from rewardlab.envs.opengl import free_context, open_context, run_before_opengl_ends
from rewardlab.keys import DEFAULT_CAMERA

HIDDEN, SHOWN = 5, 0  # groups of MuJoCo's sites
OWN_SIZE = (480, 480)  # height and width of pictures whose size nobody named


@dataclass(frozen=True)
class ScenePose:
    """Where everything that can be seen is: all that a picture of a moment needs (about 10 kB)."""

    geom_xpos: Array
    geom_xmat: Array
    cam_xpos: Array
    cam_xmat: Array
    site_xpos: Array

    @classmethod
    def of(cls, data: Any) -> "ScenePose":
        return cls(**{field.name: getattr(data, field.name).copy() for field in fields(cls)})

    def write_to(self, data: Any) -> None:
        for field in fields(self):
            getattr(data, field.name)[:] = getattr(self, field.name)


class Canvas:
    """An OpenGL context with the meshes and textures of one task, which draws any pose of its scene.

    With a `detail` above 0 metres, meshes have no smaller detail.
    """

    def __init__(self, env_id: str, model: Any, detail: float = 0.0) -> None:
        import mujoco

        self._mujoco: Any = mujoco
        self._model = copy.copy(model)
        self._model.vis.quality.shadowsize = 0
        self._model.vis.quality.offsamples = 0
        self._model.vis.global_.offheight, self._model.vis.global_.offwidth = 64, 64
        self._data = mujoco.MjData(self._model)
        mujoco.mj_forward(self._model, self._data)
        if detail > 0:
            merge_vertices(self._model, detail)
        self._scene = mujoco.MjvScene(self._model, maxgeom=1000)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = 0
        self._gl, self._context = open_context(env_id, self._model)
        self.free = weakref.finalize(self, free_context, self._gl, self._context)
        self.free.atexit = False  # that is in the main thread, and EGL may have ended
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)

    def draw(
        self,
        pose: ScenePose,
        cameras: Sequence[str],
        view: FreeCamera,
        size: tuple[int, int],
        dots: Sequence[str] = (),
    ) -> dict[str, Frame]:
        """Return the picture that each camera has of the scene, at this height and width.

        `dots` are the sites to show, such as that of the goal; others would mark parts of the robot.
        """
        self._gl.make_current()
        self._model.site_group[:] = HIDDEN
        for name in dots:
            self._model.site_group[self._model.site(name).id] = SHOWN
        self._make_room(size)
        pose.write_to(self._data)
        return {name: self._draw(name, view, size) for name in cameras}

    def _make_room(self, size: tuple[int, int]) -> None:
        height, width = max(size[0], self._context.offHeight), max(size[1], self._context.offWidth)
        if (height, width) != (self._context.offHeight, self._context.offWidth):
            self._mujoco.mjr_resizeOffscreen(width, height, self._context)

    def _draw(self, name: str, view: FreeCamera, size: tuple[int, int]) -> Frame:
        mujoco, (height, width) = self._mujoco, size
        camera, options = mujoco.MjvCamera(), mujoco.MjvOption()
        options.sitegroup[:] = 0
        options.sitegroup[SHOWN] = 1
        turned = False
        if name == DEFAULT_CAMERA:
            camera.lookat[:] = view.lookat
            camera.distance, camera.azimuth, camera.elevation = view.distance, view.azimuth, view.elevation
        else:
            camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            camera.fixedcamid = self._model.camera(name).id
            up = self._data.cam_xmat[camera.fixedcamid].reshape(3, 3)[2, 1]
            turned = bool(up < -1e-6)  # most cameras of Meta-World hang upside down
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, self._data, options, None, camera, everything, self._scene)
        frame, area = np.empty((height, width, 3), np.uint8), mujoco.MjrRect(0, 0, width, height)
        mujoco.mjr_render(area, self._scene, self._context)
        mujoco.mjr_readPixels(frame, None, area, self._context)
        # OpenGL's first row is the lowest.
        return np.ascontiguousarray(frame[:, ::-1] if turned else frame[::-1])


class _OwnCanvases(threading.local):
    """The canvases of a thread, which end with it: an OpenGL context belongs to the thread that opened it."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, float], Canvas] = {}


_own = _OwnCanvases()


def shared_canvas(env_id: str, model: Any, size: tuple[int, int]) -> Canvas:
    """Return this thread's canvas of an environment for pictures of a size."""
    key = (env_id, detail := merging_distance(size))
    if key not in _own.by_key:
        _own.by_key[key] = Canvas(env_id, model, detail)
        run_before_opengl_ends(_free_canvases)
    return _own.by_key[key]


def _free_canvases() -> None:
    while _own.by_key:
        _own.by_key.popitem()[1].free()
