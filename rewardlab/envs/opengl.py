"""Opens OpenGL without a screen, for MuJoCo."""

import atexit
import ctypes
import importlib
import os
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from ctypes.util import find_library
from typing import Any
from weakref import WeakSet

from rewardlab.errors import ConfigError

VARIABLE = "MUJOCO_GL"
EGL_PACKAGES = ("libegl1", "libopengl0", "libgl1-mesa-dri")  # libegl1 alone has nothing to draw with
# Python modules, by the beginning of their names, that open OpenGL.
_OPENING = ("OpenGL", "glfw", "mujoco.egl", "mujoco.osmesa", "mujoco.glfw", "mujoco.gl_context")
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

    size, gl = model.vis.global_, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of GLFW, that there is no display
            gl = _context_class()(size.offwidth, size.offheight)
            gl.make_current()
            return gl, mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
    except Exception as error:  # libraries that are missing raise what they like, AttributeError among them
        if gl is not None:
            with suppress(Exception):
                gl.free()
        raise unusable_backend(env_id, error) from error


def free_context(gl: Any, context: Any) -> None:
    """Give the memory of a context back, in its thread. The order matters: `context` cannot be freed without `gl`."""
    gl.make_current()
    context.free()
    gl.free()


def _context_class() -> Any:
    """Return MuJoCo's class of OpenGL contexts, which are freed by `free` alone.

    Its `__del__` fails if the constructor has, and after EGL has ended.
    """
    name = os.environ.get(VARIABLE, "").strip().lower()
    module: Any = importlib.import_module(f"mujoco.{name if name in PACKAGES else 'glfw'}")  # MuJoCo's own default
    return type("GLContext", (module.GLContext,), {"__del__": lambda _: None})


def run_before_opengl_ends(free: Callable[[], None]) -> None:
    """Call a function at the end of the process. Call this after a context was opened, whose library ends there too."""
    atexit.unregister(free)
    atexit.register(free)


_renderers: WeakSet[Any] = WeakSet()


def close_at_exit(renderer: Any) -> None:
    """Close a renderer of Gymnasium's MuJoCo environments at the end of the process, if nobody has, before EGL ends."""
    if renderer not in _renderers:
        _renderers.add(renderer)
        run_before_opengl_ends(_close_renderers)


def _close_renderers() -> None:
    for renderer in list(_renderers):
        with suppress(Exception):  # the user has closed it, or another thread draws
            renderer.close()


def is_of_opengl(error: BaseException) -> bool:
    """Return whether an error was raised where MuJoCo's OpenGL is imported or opened."""
    modules = (str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(module.startswith(_OPENING) for module in modules)  # a library that is missing raises what it likes


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
