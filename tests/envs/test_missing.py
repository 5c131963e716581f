"""Errors for what a simulator needs say which command installs it."""

import sys

import pytest

from rewardlab.envs.missing import missing_package, missing_vulkan_driver


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
