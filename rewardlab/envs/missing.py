"""Errors for what a simulator needs and this machine lacks: its package, or a Vulkan driver."""

import sys

from rewardlab.errors import ConfigError


def missing_package(env_id: str, package: str, extra: str) -> ConfigError:
    """Return the error that a package of an extra of rewardlab is not installed."""
    install = f"pip install 'rewardlab[{extra}]'"
    if extra == "maniskill" and sys.version_info >= (3, 13):  # its motion planner has no build for this Python
        install += " && pip install --no-deps mani_skill"
    return ConfigError(
        f"environment '{env_id}' needs {package}, which is not installed: make {extra} (in a clone of rewardlab), or "
        f"{install}"
    )


def is_of_vulkan(error: BaseException) -> bool:
    """Return whether an error says that SAPIEN found no Vulkan driver it can use."""
    return isinstance(error, RuntimeError) and ("vk::" in str(error) or "rendering device" in str(error))


def missing_vulkan_driver(env_id: str, reason: str) -> ConfigError:
    """Return the error that SAPIEN found no Vulkan driver it can use; `reason` is what it said."""
    return ConfigError(
        f"environment '{env_id}' needs a Vulkan driver, and SAPIEN can use none of this machine "
        f"({reason}). Without a GPU: make maniskill (in a clone of rewardlab), or {install_driver_command()}. "
        "With one: install the Vulkan driver of its vendor. If VK_ICD_FILENAMES is set, unset it or let it name a "
        "driver that exists"
    )


def install_driver_command() -> str:
    """Return the command that installs the software Vulkan driver beside this Python's packages."""
    return f"{sys.executable} -m rewardlab.envs.maniskill.install_driver"
