"""MuJoCo gets a library to draw with, or the words for an administrator."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from types import SimpleNamespace

import pytest

from rewardlab.envs import install_gl
from rewardlab.envs.install_gl import ensure_gl, main
from rewardlab.envs.opengl import EGL_PACKAGES
from rewardlab.errors import ConfigError

INSTALL = ["apt-get", "install", "--yes", "--no-install-recommends", *EGL_PACKAGES]


class Machine:
    """A machine with or without EGL; apt-get, which needs lists first, installs it."""

    def __init__(
        self, *, draws: bool = False, permitted: bool = True, has_lists: bool = True, used: str | None = "egl"
    ) -> None:
        self.draws, self.permitted, self.has_lists, self.used = draws, permitted, has_lists, used
        self.commands: list[list[str]] = []

    def run(self, command: list[str]) -> SimpleNamespace:
        self.commands.append(command)
        if "update" in command:
            self.has_lists = self.permitted
        elif self.permitted and self.has_lists:
            self.draws = True
        return SimpleNamespace(returncode=0 if self.permitted and self.has_lists else 100)

    def why_it_fails(self, _: str, settings: dict[str, str]) -> str | None:
        return None if self.draws and settings["MUJOCO_GL"] == "egl" else "ImportError: no EGL"


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    def put(machine: Machine, *, user: int = 0, commands: tuple[str, ...] = ("apt-get", "sudo")) -> Machine:
        monkeypatch.setattr(subprocess, "run", machine.run)
        monkeypatch.setattr(install_gl, "why_it_fails", machine.why_it_fails)
        monkeypatch.setattr(install_gl, "find_backend", lambda: machine.used)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
        monkeypatch.setattr(shutil, "which", lambda name: name if name in commands else None)
        monkeypatch.setattr(os, "geteuid", lambda: user)
        monkeypatch.setattr(sys, "stdin", StringIO())
        return machine

    return put


def test_where_mujoco_draws_nothing_is_installed(on: Callable[..., Machine]) -> None:
    machine = on(Machine(draws=True))
    assert ensure_gl() == "MuJoCo can draw, with MUJOCO_GL=egl: nothing to install."
    assert machine.commands == []


def test_a_backend_that_the_user_has_set_and_cannot_draw_is_named(on: Callable[..., Machine]) -> None:
    machine = on(Machine(draws=True, used="osmesa"))
    assert ensure_gl() == "MuJoCo can draw, with MUJOCO_GL=egl: set it, since osmesa is used otherwise."
    assert machine.commands == []


def test_a_backend_that_is_not_found_by_itself_is_named(on: Callable[..., Machine]) -> None:
    on(Machine(draws=True, used=None))
    assert ensure_gl() == "MuJoCo can draw, with MUJOCO_GL=egl: set it."


def test_root_installs_egl_and_reads_lists_first_where_they_are_missing(on: Callable[..., Machine]) -> None:
    machine = on(Machine(has_lists=False))
    assert ensure_gl() == "MuJoCo can draw, with MUJOCO_GL=egl."
    assert machine.commands == [INSTALL, ["apt-get", "update"], INSTALL]


def test_a_user_installs_by_sudo_which_does_not_wait_for_a_password(on: Callable[..., Machine]) -> None:
    machine = on(Machine(), user=1000)
    ensure_gl()
    assert machine.commands == [["sudo", "--non-interactive", *INSTALL]]


@pytest.mark.parametrize("commands", [("apt-get",), ("apt-get", "sudo")], ids=["no sudo", "not permitted"])
def test_who_may_not_install_gets_the_command_for_an_administrator(
    on: Callable[..., Machine], commands: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    on(Machine(permitted=False), user=1000, commands=commands)
    assert main() == 1
    assert f"ask an administrator of this machine for '{' '.join(INSTALL)}'" in capsys.readouterr().err


def test_without_apt_the_libraries_are_named(on: Callable[..., Machine]) -> None:
    on(Machine(), commands=())
    with pytest.raises(ConfigError, match=r"there is no apt-get: install EGL \(libEGL.so.1\) or OSMesa"):
        ensure_gl()


def test_without_mujoco_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'rewardlab\[metaworld\]'"):
        ensure_gl()
