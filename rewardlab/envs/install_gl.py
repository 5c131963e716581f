"""Installs an OpenGL library for MuJoCo on a machine without a screen: `python -m rewardlab.envs.install_gl`.

If MuJoCo can draw through EGL or OSMesa, nothing is done. Otherwise EGL is installed with apt-get, as root or by sudo.
"""

import importlib.util
import os
import shutil
import subprocess
import sys

from rewardlab.envs.opengl import EGL_PACKAGES, VARIABLE, find_backend
from rewardlab.envs.probe import why_it_fails
from rewardlab.errors import ConfigError, RewardlabError
from rewardlab.screen import say, say_error

BACKENDS = ("egl", "osmesa")  # values of MUJOCO_GL that need no screen
DRAW = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
renderer = mujoco.Renderer(model, 16, 16)
renderer.update_scene(mujoco.MjData(model))
assert renderer.render().shape == (16, 16, 3)
"""


def main() -> int:
    """Entry point of the command; returns its exit status."""
    try:
        say(ensure_gl())
    except (RewardlabError, OSError, subprocess.SubprocessError) as error:
        say_error(f"error: {error}")
        return 1
    return 0


def ensure_gl() -> str:
    """Install EGL if MuJoCo cannot draw without; return a sentence on what it draws with."""
    if importlib.util.find_spec("mujoco") is None:
        raise ConfigError("MuJoCo is not installed: make metaworld, or pip install 'rewardlab[metaworld]'")
    used = find_backend()
    tried = dict.fromkeys([used or "egl", *BACKENDS])
    reasons = {backend: why_it_fails(DRAW, {VARIABLE: backend}) for backend in tried}
    for backend, reason in reasons.items():
        if reason is None:
            other = "set it" if used is None else f"set it, since {used} is used otherwise"
            return f"MuJoCo can draw, with {VARIABLE}={backend}: {'nothing to install' if backend == used else other}."
    _install_packages(reasons["egl"])
    if (reason := why_it_fails(DRAW, {VARIABLE: "egl"})) is not None:
        raise ConfigError(f"MuJoCo cannot draw with {', '.join(EGL_PACKAGES)} either: {reason}")
    return f"MuJoCo can draw, with {VARIABLE}=egl."


def _install_packages(reason: str | None) -> None:
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *EGL_PACKAGES]
    by_hand = f"MuJoCo cannot draw ({reason}): ask an administrator of this machine for '{' '.join(command)}'"
    if shutil.which("apt-get") is None:
        raise ConfigError(
            f"MuJoCo cannot draw ({reason}), and there is no apt-get: install EGL (libEGL.so.1) or OSMesa"
        )
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise ConfigError(by_hand)
        # Without a terminal nobody could type a password: sudo refuses instead of waiting.
        command = ["sudo", *([] if sys.stdin.isatty() else ["--non-interactive"]), *command]
    say(f"MuJoCo cannot draw yet ({reason}): {' '.join(command)}")
    update = [*command[: command.index("install")], "update"]
    # The lists of a fresh machine are empty or old.
    if subprocess.run(command).returncode and (subprocess.run(update).returncode or subprocess.run(command).returncode):
        raise ConfigError(by_hand)


if __name__ == "__main__":
    sys.exit(main())
