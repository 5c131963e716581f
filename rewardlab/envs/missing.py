"""Errors for what a simulator needs and this machine lacks: its package, a Vulkan driver, an OpenGL library."""

import sys

from rewardlab.errors import ConfigError


def missing_package(env_id: str, package: str, extra: str) -> ConfigError:
    """Return the error that a package of an extra of rewardlab is not installed."""
    return ConfigError(
        f"environment '{env_id}' needs {package}, which is not installed: make {extra} (in a clone of rewardlab), or "
        f"pip install 'rewardlab[{extra}]'"
    )


def missing_vulkan_driver(env_id: str, reason: str) -> ConfigError:
    """Return the error that SAPIEN found no Vulkan driver it can use; `reason` is what it said."""
    return ConfigError(
        f"environment '{env_id}' needs a Vulkan driver, and SAPIEN can use none of this machine "
        f"({reason}). Without a GPU: make maniskill (in a clone of rewardlab), or {install_driver_command()}. "
        "With one: install the Vulkan driver of its vendor. If VK_ICD_FILENAMES is set, unset it or let it name a "
        "driver that exists"
    )


def missing_gl_library(env_id: str, library: str, setting: str) -> ConfigError:
    """Return the error that MuJoCo cannot draw with `library` (egl or osmesa); `setting` is MUJOCO_GL, "" if unset."""
    package = {"egl": "libegl1", "osmesa": "libosmesa6"}[library]
    return ConfigError(
        f"environment '{env_id}' needs an OpenGL library to draw; found MUJOCO_GL={setting or '(unset)'}, and "
        f"{package} is missing or does not work: sudo apt-get install {package}, then run again with "
        f"MUJOCO_GL={library}. States alone (env.train.obs_mode=state, no camera) need none"
    )


def install_driver_command() -> str:
    """Return the command that installs the software Vulkan driver beside this Python's packages."""
    return f"{sys.executable} -m rewardlab.envs.maniskill.install_driver"
