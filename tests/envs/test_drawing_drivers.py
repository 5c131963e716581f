"""What simulators draw with is chosen before they are imported, in whatever process and by whatever environment."""

import importlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import spec_from_loader
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from child_runs import PRINT_CONTRAST, PRINT_SIMULATORS, run_env

from rewardlab.envs import make_vec_env
from rewardlab.envs.drawing_drivers import CHOICES, choose_drivers_on_import
from rewardlab.envs.opengl import find_backend

SIMULATOR = "toy_simulator"
ENVIRONMENT = f"""
import gymnasium
import {SIMULATOR}

gymnasium.register("toy-simulator/Copy-v0", "gymnasium.envs.classic_control:CartPoleEnv")
"""


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the simulator had been imported when its driver was chosen, for each time that it was."""
    for name in (SIMULATOR, f"{SIMULATOR}_envs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / f"{SIMULATOR}.py").touch()
    (tmp_path / "toy_simulator_envs.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(tmp_path)
    made: list[bool] = []
    monkeypatch.setitem(CHOICES, SIMULATOR, lambda: made.append(SIMULATOR in sys.modules))
    return made


def test_a_simulator_that_the_module_of_an_id_imports_is_told_before(chosen: list[bool]) -> None:
    make_vec_env("CartPole-v1", num_envs=2).close()
    assert chosen == []
    make_vec_env("toy_simulator_envs:toy-simulator/Copy-v0", num_envs=3).close()
    assert chosen == [False]
    make_vec_env("toy_simulator_envs:toy-simulator/Copy-v0", num_envs=3).close()
    assert chosen == [False, True]


def test_an_import_of_the_users_own_or_in_another_thread_chooses_nothing(chosen: list[bool]) -> None:
    with ThreadPoolExecutor(1) as thread:
        with choose_drivers_on_import():
            thread.submit(importlib.import_module, SIMULATOR).result()
        del sys.modules[SIMULATOR]
        importlib.import_module(SIMULATOR)
        del sys.modules[SIMULATOR]
    assert chosen == []
    with choose_drivers_on_import():
        importlib.import_module(SIMULATOR)
    assert chosen == [False]


class WaitingFinder:
    """Finds nothing, but lets others work while it looks, as finders that read files do."""

    begun, waited_for = Event(), Event()

    @classmethod
    def find_spec(cls, name: str, *_: Any) -> None:
        if name == "found_at_last":
            cls.begun.set()
            assert cls.waited_for.wait(10)


class LastFinder:
    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        return spec_from_loader(name, None, is_package=True) if name == "found_at_last" else None


def test_an_import_in_another_thread_asks_every_finder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, WaitingFinder, LastFinder])
    with ThreadPoolExecutor(1) as thread:
        with choose_drivers_on_import():
            imported = thread.submit(importlib.import_module, "found_at_last")
            assert WaitingFinder.begun.wait(10)
        WaitingFinder.waited_for.set()
        assert imported.result().__name__ == "found_at_last"


@pytest.fixture
def can_draw() -> None:
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: make metaworld")
    if find_backend() is None:
        pytest.skip("no OpenGL that needs no screen: make metaworld")


@pytest.mark.usefixtures("can_draw")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_mujoco_environment_of_gymnasium_is_drawn_without_a_screen(processes: int) -> None:
    assert float(run_env("HalfCheetah-v5", processes, PRINT_CONTRAST).stdout) > 20


@pytest.mark.usefixtures("can_draw")
def test_an_environment_that_was_drawn_and_nobody_closes_ends_in_silence() -> None:
    """EGL ends before Python takes the environment apart."""
    assert run_env("HalfCheetah-v5", 1, f"{PRINT_CONTRAST}; sys.exit()").stderr == ""


@pytest.mark.parametrize("backend", ["egll", "glfw"])
def test_a_plain_id_with_an_impossible_backend_names_the_command_that_helps(backend: str) -> None:
    """Of one MuJoCo fails when it is imported, of the other when it draws."""
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: make metaworld")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_env("HalfCheetah-v5", 1, PRINT_CONTRAST, MUJOCO_GL=backend)
    expected = f"ConfigError: environment 'HalfCheetah-v5' cannot draw with MUJOCO_GL={backend} "
    assert expected in caught.value.stderr


def test_an_environment_without_simulator_imports_none() -> None:
    assert run_env("CartPole-v1", 1, PRINT_SIMULATORS).stdout == "[]\n"
