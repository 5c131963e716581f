"""The software Vulkan driver: when it is installed, what is copied, and when it is used."""

import ctypes
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rewardlab.envs.maniskill import driver, install_driver
from rewardlab.envs.maniskill.driver import CHOSEN_BY_USER, CONTENTS, MANIFEST, use_software_driver
from rewardlab.envs.maniskill.install_driver import copy_driver, main, needed_libraries
from rewardlab.errors import DataError

# What each library needs, directly or not.
NEEDS = {
    "libvulkan_lvp.so": ("libLLVM-15.so.1", "libz3.so.4", "libdrm.so.2"),
    "libLLVM-15.so.1": ("libz3.so.4",),
    "libX11.so.6": ("libxcb.so.1",),
    "libz3.so.4": (),
    "libdrm.so.2": (),
    "libxcb.so.1": (),
}


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, no settings, and none left behind."""
    for name in (*CHOSEN_BY_USER, "LP_NUM_THREADS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages as dpkg-deb unpacks them, and an ldd that knows them; libc is the machine's own."""
    libraries = tmp_path / "unpacked" / "usr" / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in (*NEEDS, "libvulkan_intel.so"):
        (libraries / name).write_text(name)
    manifest = tmp_path / "unpacked" / "usr" / "share" / "vulkan" / "icd.d" / "lvp_icd.x86_64.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"ICD": {"api_version": "1.4.305", "library_path": "/usr/lib/libvulkan_lvp.so"}}))

    def ldd(command: tuple[str, Path], **_: object) -> SimpleNamespace:
        needed = NEEDS[command[1].name]
        lines = [f"\t{name} => {libraries / name} (0x00007f81bb600000)" for name in needed]
        return SimpleNamespace(
            stdout="\n".join(["\tlibc.so.6 => /lib/libc.so.6 (0x0)", "\tlinux-vdso.so.1 (0x0)", *lines])
        )

    monkeypatch.setattr(subprocess, "run", ldd)
    return tmp_path / "unpacked"


def write_driver(directory: Path, **contents: object) -> Path:
    directory.mkdir(parents=True)
    (directory / MANIFEST).write_text("{}")
    (directory / CONTENTS).write_text(json.dumps({"libraries": [], "despite_gpu": False, **contents}))
    return directory


def test_only_the_driver_and_what_it_needs_are_copied_each_library_after_its_own(
    tmp_path: Path, unpacked: Path
) -> None:
    directory = tmp_path / "vulkan"
    directory.mkdir()
    copy_driver(unpacked, directory)
    assert {file.name for file in directory.iterdir()} == {*NEEDS, MANIFEST, CONTENTS}
    libraries = json.loads((directory / CONTENTS).read_text())["libraries"]
    assert set(libraries) == {*NEEDS} - {"libvulkan_lvp.so"}
    for name in libraries:
        assert all(libraries.index(needed) < libraries.index(name) for needed in NEEDS[name])
    icd = json.loads((directory / MANIFEST).read_text())["ICD"]
    assert icd == {"api_version": "1.4.305", "library_path": "./libvulkan_lvp.so"}


def test_a_library_that_no_package_brought_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    output = SimpleNamespace(stdout="\tlibedit.so.2 => not found\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: output)
    with pytest.raises(DataError, match=r"libvulkan_lvp.so needs libedit.so.2, which no package brought"):
        needed_libraries(Path("libvulkan_lvp.so"), [])


def test_an_installed_driver_is_used_with_its_libraries_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    directory = write_driver(tmp_path / "vulkan", libraries=["libz3.so.4", "libLLVM-15.so.1"])
    assert use_software_driver(directory)
    assert loaded == [str(directory / "libz3.so.4"), str(directory / "libLLVM-15.so.1")]
    assert driver.os.environ["VK_ICD_FILENAMES"] == str(directory / MANIFEST)
    assert driver.os.environ["LP_NUM_THREADS"] == "1"
    assert use_software_driver(directory), "a child process inherits the setting and needs the libraries too"
    assert len(loaded) == 4


@pytest.mark.parametrize("name", CHOSEN_BY_USER)
def test_a_driver_that_the_user_chose_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/etc/vulkan/icd.d/mine.json")
    assert not use_software_driver(write_driver(tmp_path / "vulkan"))
    assert driver.os.environ[name] == "/etc/vulkan/icd.d/mine.json"


def test_a_gpu_draws_itself_unless_its_driver_could_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert not use_software_driver(write_driver(tmp_path / "later"))
    assert use_software_driver(write_driver(tmp_path / "failed", despite_gpu=True))


def test_without_an_installed_driver_nothing_changes(tmp_path: Path) -> None:
    assert not use_software_driver(tmp_path)
    assert "VK_ICD_FILENAMES" not in driver.os.environ


class Machine:
    """A machine on which SAPIEN draws with the software driver if that is installed and `driver_works`."""

    def __init__(self, directory: Path, *, draws: bool = False, driver_works: bool = True) -> None:
        self.directory, self.draws, self.driver_works = directory, draws, driver_works
        self.fetched: list[tuple[list[str], str | None]] = []

    def why_it_fails(self, _: str) -> str | None:
        installed = self.driver_works and (self.directory / MANIFEST).is_file()
        return None if self.draws or installed else "RuntimeError: failed to find a rendering device"

    def unpack(self, packages: list[str], _: Path, *, more_suites: str | None) -> None:
        self.fetched.append((packages, more_suites))


def put_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, *, release: str = "bookworm", has_apt: bool = True
) -> Machine:
    monkeypatch.setattr(install_driver, "DIRECTORY", machine.directory)
    monkeypatch.setattr(install_driver, "why_it_fails", machine.why_it_fails)
    monkeypatch.setattr(install_driver, "unpack_packages", machine.unpack)
    monkeypatch.setattr(install_driver, "release_name", lambda: release)
    monkeypatch.setattr(install_driver, "has_apt", lambda: has_apt)
    monkeypatch.setattr(install_driver, "copy_driver", lambda _, directory: (directory / MANIFEST).write_text("{}"))
    return machine


def test_where_sapien_draws_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = put_on(Machine(tmp_path / "vulkan", draws=True), monkeypatch)
    assert main([]) == 0
    assert capsys.readouterr().out == "SAPIEN can draw, with this machine's own driver: nothing to install.\n"
    assert machine.fetched == []


@pytest.mark.parametrize(("release", "suite"), [("bookworm", "bookworm-backports"), ("trixie", None), ("noble", None)])
def test_the_driver_comes_from_the_release_and_on_debian_12_from_backports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, suite: str | None
) -> None:
    machine = put_on(Machine(tmp_path / "share" / "vulkan"), monkeypatch, release=release)
    assert main([]) == 0
    assert machine.fetched == [(["mesa-vulkan-drivers", "libx11-6"], suite)]


def test_a_driver_that_is_too_old_is_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_on(Machine(tmp_path / "vulkan", driver_works=False), monkeypatch, release="focal")
    assert main([]) == 1
    assert "cannot draw with mesa-vulkan-drivers of focal either" in capsys.readouterr().err
    assert not (tmp_path / "vulkan").exists()


def test_a_check_fetches_nothing_and_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = put_on(Machine(tmp_path / "vulkan"), monkeypatch)
    assert main(["--check"]) == 1
    assert "failed to find a rendering device" in (told := capsys.readouterr().err)
    assert f"{sys.executable} -m rewardlab.envs.maniskill.install_driver" in told
    assert machine.fetched == []


def test_a_setting_of_the_user_that_does_not_work_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = put_on(Machine(tmp_path / "vulkan"), monkeypatch)
    monkeypatch.setenv("VK_ICD_FILENAMES", "/gone.json")
    assert main([]) == 1
    assert "VK_ICD_FILENAMES: SAPIEN cannot draw with /gone.json" in capsys.readouterr().err
    assert machine.fetched == []


def test_without_apt_the_driver_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_on(Machine(tmp_path / "vulkan"), monkeypatch, has_apt=False)
    assert main([]) == 1
    assert "software Vulkan driver (lavapipe, Mesa 24 or newer)" in capsys.readouterr().err


def test_without_sapien_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["--check"]) == 1
    assert "pip install 'rewardlab[maniskill]'" in capsys.readouterr().err
