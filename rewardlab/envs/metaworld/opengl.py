"""Opens OpenGL without a screen, for MuJoCo."""

import ctypes
import importlib
import os
from ctypes.util import find_library
from typing import Any

from rewardlab.errors import ConfigError

VARIABLE = "MUJOCO_GL"
NEEDS = (
    f"expected {VARIABLE}=egl (Debian and Ubuntu: apt install libegl1) or {VARIABLE}=osmesa (apt install libosmesa6); "
    "'make metaworld' installs what is needed"
)


def choose_backend() -> None:
    """Set MUJOCO_GL, which MuJoCo reads when it is imported, unless the user has: EGL, else OSMesa, else nothing."""
    if os.environ.get(VARIABLE, "").strip():
        return
    if _egl_devices() > 0:
        os.environ[VARIABLE] = "egl"
    elif find_library("OSMesa") is not None:
        os.environ[VARIABLE] = "osmesa"


def open_context(model: Any) -> tuple[Any, Any]:
    """Return an OpenGL context, current in this thread, and MuJoCo's in it, which holds the meshes of `model`."""
    import mujoco

    name = os.environ.get(VARIABLE, "").strip().lower() or "glfw"  # MuJoCo's own default
    module = name if name in ("egl", "osmesa") else "glfw"
    size = model.vis.global_
    try:
        gl: Any = importlib.import_module(f"mujoco.{module}").GLContext(size.offwidth, size.offheight)
        gl.make_current()
        return gl, mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
    except Exception as error:  # libraries that are missing raise what they like, AttributeError among them
        raise ConfigError(
            f"pictures need OpenGL, and {VARIABLE}={name} does not work here ({error}); {NEEDS}"
        ) from error


def _egl_devices() -> int:
    """Return how many devices EGL can draw on.

    Asked of the library itself, since PyOpenGL cannot be told another one once it is imported.
    """
    name = find_library("EGL")
    if name is None:
        return 0
    library = ctypes.CDLL(name)
    library.eglGetProcAddress.restype = ctypes.c_void_p
    address = library.eglGetProcAddress(b"eglQueryDevicesEXT")
    if not address:
        return 0
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))(address)
    count = ctypes.c_int(0)
    return count.value if query(0, None, ctypes.byref(count)) else 0
