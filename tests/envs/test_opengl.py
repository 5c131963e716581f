"""Which OpenGL MuJoCo draws with, and what becomes of a context that cannot be used; without MuJoCo."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from rewardlab.envs import opengl
from rewardlab.envs.cameras import draw_cameras
from rewardlab.errors import ConfigError


@pytest.mark.parametrize(
    ("devices", "library", "expected"),
    [(1, None, "egl"), (0, "libOSMesa.so", "osmesa"), (0, None, None)],
)
def test_egl_is_chosen_where_it_has_a_device_else_osmesa(
    monkeypatch: pytest.MonkeyPatch, devices: int, library: str | None, expected: str | None
) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(opengl, "_egl_devices", lambda: devices)
    monkeypatch.setattr(opengl, "find_library", lambda _: library)
    opengl.choose_backend()
    assert os.environ.get("MUJOCO_GL") == expected


def test_what_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    opengl.choose_backend()
    assert os.environ["MUJOCO_GL"] == "osmesa"


freed: list[str] = []


class GLContext:
    """As MuJoCo's: `__del__` frees it, which fails if the constructor has."""

    opens = True

    def __init__(self, *_: int) -> None:
        if not self.opens:
            raise RuntimeError("no device")
        self._context = "open"

    def make_current(self) -> None:
        pass

    def free(self) -> None:
        freed.append(self._context)

    def __del__(self) -> None:
        self.free()


@pytest.mark.parametrize(("opens", "reason"), [(True, "OpenGL 1.5 is required"), (False, "no device")])
def test_a_context_that_cannot_be_used_is_freed_at_once_and_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, opens: bool, reason: str
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("OpenGL 1.5 is required")

    freed.clear()
    monkeypatch.setattr(GLContext, "opens", opens)
    scale = SimpleNamespace(mjFONTSCALE_100=SimpleNamespace(value=100))
    monkeypatch.setitem(sys.modules, "mujoco", SimpleNamespace(MjrContext=fail, mjtFontScale=scale))
    monkeypatch.setitem(sys.modules, "mujoco.egl", SimpleNamespace(GLContext=GLContext))
    monkeypatch.setenv("MUJOCO_GL", "egl")
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    model: Any = SimpleNamespace(vis=SimpleNamespace(global_=SimpleNamespace(offwidth=8, offheight=8)))
    with pytest.raises(ConfigError, match=f"cannot draw with MUJOCO_GL=egl .{reason}") as caught:
        opengl.open_context("metaworld/reach-v3", model)
    assert freed == (["open"] if opens else [])
    del caught  # and with it the last references to the context
    assert ignored == []


class FatalError(Exception):
    __module__ = "mujoco"


class Blind(gymnasium.Env[Any, Any]):
    """Cannot be drawn: a function of the module `where` raises `error`."""

    render_mode = "rgb_array"
    spec = EnvSpec("Blind-v5")

    def __init__(self, error: Exception, where: str) -> None:
        self.module = {"__name__": where, "error": error}
        exec("def fail(): raise error", self.module)

    def render(self) -> Any:
        fail: Any = self.module["fail"]
        return fail()


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (FatalError("an OpenGL platform library has not been loaded"), "gymnasium.envs.mujoco"),
        (RuntimeError("no such device"), "mujoco.egl"),
        (AttributeError("'NoneType' object has no attribute 'glGetError'"), "OpenGL.raw.GL._errors"),
    ],
)
def test_a_plain_environment_that_cannot_draw_names_the_command_that_helps(error: Exception, where: str) -> None:
    with pytest.raises(ConfigError, match=rf"'Blind-v5' cannot draw with .*{error}.*rewardlab.envs.install_gl"):
        draw_cameras(Blind(error, where), ["base_camera"])


def test_another_error_of_render_stays_as_it_is() -> None:
    with pytest.raises(ValueError, match="no such camera"):
        draw_cameras(Blind(ValueError("no such camera"), "mujoco.renderer"), ["base_camera"])
