"""Errors for what a simulator needs say which command installs it."""

from rewardlab.envs.missing import missing_gl_library, missing_package, missing_vulkan_driver


def test_a_missing_package_is_named_with_its_extra_and_its_make_target() -> None:
    text = str(missing_package("maniskill/PickCube-v1", "mani_skill", "maniskill"))
    assert "environment 'maniskill/PickCube-v1' needs mani_skill, which is not installed" in text
    assert "pip install 'rewardlab[maniskill]'" in text
    assert "make maniskill" in text


def test_a_missing_vulkan_driver_names_the_command_that_installs_one() -> None:
    text = str(missing_vulkan_driver("maniskill/PickCube-v1", "vk::createInstanceUnique: ErrorIncompatibleDriver"))
    assert "ErrorIncompatibleDriver" in text
    assert "-m rewardlab.envs.maniskill.install_driver" in text
    assert "make maniskill" in text


def test_a_missing_gl_library_names_the_system_package_and_the_setting() -> None:
    text = str(missing_gl_library("metaworld/reach-v3", "osmesa", ""))
    assert "found MUJOCO_GL=(unset)" in text
    assert "apt-get install libosmesa6" in text
    assert "MUJOCO_GL=osmesa" in text
