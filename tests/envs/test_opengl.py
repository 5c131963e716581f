"""Which OpenGL MuJoCo draws with; without MuJoCo."""

import os

import pytest

from rewardlab.envs import opengl


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
