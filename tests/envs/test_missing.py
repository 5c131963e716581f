"""Errors for what a simulator needs say which command installs it."""

import sys
from pathlib import Path

import gymnasium
import pytest

from rewardlab.envs import make_vec_env
from rewardlab.envs.missing import missing_package, missing_vulkan_driver
from rewardlab.errors import ConfigError


def test_a_missing_package_is_named_with_its_extra_and_its_make_target() -> None:
    text = str(missing_package("maniskill/PickCube-v1", "mani_skill", "maniskill"))
    assert "environment 'maniskill/PickCube-v1' needs mani_skill, which is not installed" in text
    assert "pip install 'rewardlab[maniskill]'" in text
    assert "make maniskill" in text


def test_a_python_without_the_motion_planner_gets_both_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    text = str(missing_package("maniskill/PickCube-v1", "mani_skill", "maniskill"))
    assert "pip install 'rewardlab[maniskill]' && pip install --no-deps mani_skill" in text


def test_a_missing_vulkan_driver_names_the_command_that_installs_one() -> None:
    text = str(missing_vulkan_driver("maniskill/PickCube-v1", "vk::createInstanceUnique: ErrorIncompatibleDriver"))
    assert "ErrorIncompatibleDriver" in text
    assert "-m rewardlab.envs.maniskill.install_driver" in text
    assert "make maniskill" in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("ModuleNotFoundError('No module', name='sapien.render')", "needs sapien, which is not installed"),
        ("ImportError('libX11.so.6: cannot open shared object file')", r"needs a Vulkan driver.*\(libX11.so.6"),
    ],
)
def test_a_simulator_that_cannot_be_imported_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, words: str
) -> None:
    (tmp_path / "mani_skill.py").write_text(f"raise {error}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mani_skill", raising=False)
    with pytest.raises(ConfigError, match=words):
        make_vec_env("maniskill/ATaskThatNoOtherTestMakes-v1")


def _cannot_draw(render_mode: str | None = None) -> None:
    raise RuntimeError("vk::createInstanceUnique: ErrorIncompatibleDriver")


def test_a_plain_id_of_a_simulator_without_a_vulkan_driver_gets_the_same_line() -> None:
    gymnasium.register("WithoutVulkan-v0", _cannot_draw)
    with pytest.raises(ConfigError, match=r"'WithoutVulkan-v0' needs a Vulkan driver.*make maniskill"):
        make_vec_env("WithoutVulkan-v0", num_envs=1, processes=1)
