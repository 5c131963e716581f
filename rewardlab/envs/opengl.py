"""Opens OpenGL without a screen, for MuJoCo."""

import ctypes
import importlib
import os
import warnings
from ctypes.util import find_library
from typing import Any

from rewardlab.errors import ConfigError

VARIABLE = "MUJOCO_GL"
EGL_PACKAGES = ("libegl1", "libopengl0", "libgl1-mesa-dri")  # libegl1 alone has nothing to draw with
PACKAGES = {"egl": " ".join(EGL_PACKAGES), "osmesa": "libosmesa6"}  # of Debian and Ubuntu


def choose_backend() -> None:
    """Set MUJOCO_GL, which MuJoCo reads when it is imported, unless the user has."""
    if (found := find_backend()) is not None:
        os.environ[VARIABLE] = found


def find_backend() -> str | None:
    """Return what MuJoCo is to draw with: what the user has set, else EGL or OSMesa if they are installed."""
    if chosen := os.environ.get(VARIABLE, "").strip():
        return chosen
    if _egl_devices() > 0:
        return "egl"
    return "osmesa" if find_library("OSMesa") is not None else None


def open_context(env_id: str, model: Any) -> tuple[Any, Any]:
    """Return an OpenGL context, current in this thread, and MuJoCo's in it, which holds the meshes of `model`."""
    import mujoco

    name, size = os.environ.get(VARIABLE, "").strip().lower(), model.vis.global_
    module = name if name in PACKAGES else "glfw"  # MuJoCo's own default
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of GLFW, that there is no display
            gl: Any = importlib.import_module(f"mujoco.{module}").GLContext(size.offwidth, size.offheight)
            gl.make_current()
            return gl, mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
    except Exception as error:  # libraries that are missing raise what they like, AttributeError among them
        raise unusable_backend(env_id, error) from error


def unusable_backend(env_id: str, error: Exception) -> ConfigError:
    """Return the error that MuJoCo cannot use the OpenGL that MUJOCO_GL names."""
    found = os.environ.get(VARIABLE) or "(unset)"
    reason = str(error).partition("\n")[0] or type(error).__name__
    return ConfigError(
        f"environment '{env_id}' cannot draw with {VARIABLE}={found} ({reason}). Expected {VARIABLE}=egl or osmesa: "
        "python -m rewardlab.envs.install_gl (a part of make metaworld), or apt-get install "
        f"{PACKAGES['egl']} (or {PACKAGES['osmesa']})"
    )


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
