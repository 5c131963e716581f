"""Gives SAPIEN a Vulkan driver on a machine without a GPU: `python -m rewardlab.envs.maniskill.install_driver`.

If SAPIEN can draw already, nothing is done. Otherwise Mesa's software driver is fetched from the machine's mirror of
Debian or Ubuntu and put into this Python's prefix (`driver.DIRECTORY`); the system stays as it is. `--check` only says
whether SAPIEN can draw.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from rewardlab.envs.maniskill.debian_packages import has_apt, release_name, unpack_packages
from rewardlab.envs.maniskill.driver import CHOSEN_BY_USER, CONTENTS, DIRECTORY, MANIFEST
from rewardlab.envs.missing import install_driver_command
from rewardlab.envs.probe import why_it_fails
from rewardlab.errors import ConfigError, DataError, RewardlabError
from rewardlab.screen import say, say_error

PACKAGE = "mesa-vulkan-drivers"
X11 = {"libX11.so.6": "libx11-6"}  # SAPIEN cannot be imported without, though nothing is shown on a screen
DRIVER = "libvulkan_lvp.so"
# Debian 12's own, Mesa 22.3, lacks descriptorBindingPartiallyBound, without which SAPIEN finds no device.
MORE_SUITES = {"bookworm": "bookworm-backports"}
DRAW = """
from rewardlab.envs.maniskill.driver import use_software_driver
use_software_driver()
import sapien
sapien.render.set_camera_shader_dir("minimal")
scene = sapien.Scene()
camera = scene.add_camera("camera", width=16, height=16, fovy=1.0, near=0.1, far=10.0)
scene.update_render()
camera.take_picture()
assert camera.get_picture("Color").shape == (16, 16, 4)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m rewardlab.envs.maniskill.install_driver", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether SAPIEN can draw")
    only_check = parser.parse_args(arguments).check
    try:
        say(check_driver() if only_check else ensure_driver())
    except (RewardlabError, OSError, subprocess.SubprocessError) as error:
        say_error(f"error: {error}")
        return 1
    return 0


def check_driver() -> str:
    """Return a sentence on what SAPIEN draws with; raise if it cannot draw."""
    if (reason := _why_sapien_fails()) is not None:
        raise ConfigError(f"SAPIEN cannot draw: {reason}. To install a software driver: {install_driver_command()}")
    return f"SAPIEN can draw, with {_driver_in_words()}."


def ensure_driver() -> str:
    """Install the software driver if SAPIEN cannot draw without it; return a sentence on what it draws with."""
    if (reason := _why_sapien_fails()) is None:
        return f"SAPIEN can draw, with {_driver_in_words()}: nothing to install."
    for name in CHOSEN_BY_USER:
        if os.environ.get(name):
            raise ConfigError(f"{name}: SAPIEN cannot draw with {os.environ[name]} ({reason}); unset it and try again")
    if not has_apt():
        raise ConfigError(
            f"SAPIEN cannot draw ({reason}), and this machine has no apt-get to fetch a driver with; install Mesa's "
            "software Vulkan driver (lavapipe, Mesa 24 or newer) with its package manager"
        )
    say(f"SAPIEN cannot draw yet ({reason}): fetching {PACKAGE} ...")
    install_driver(DIRECTORY)
    if (reason := _why_sapien_fails()) is not None:
        shutil.rmtree(DIRECTORY)
        raise DataError(
            f"SAPIEN cannot draw with {PACKAGE} of {release_name()} either ({reason}); Mesa 24 or newer is needed"
        )
    return f"SAPIEN can draw, with {_driver_in_words()}."


def install_driver(directory: Path) -> None:
    """Fetch the software driver and put it into `directory`, with the libraries that this machine lacks."""
    with tempfile.TemporaryDirectory() as unpacked:
        unpack_packages([PACKAGE, *X11.values()], Path(unpacked), more_suites=MORE_SUITES.get(release_name()))
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        copy_driver(Path(unpacked), directory)


def copy_driver(unpacked: Path, directory: Path) -> None:
    """Copy the driver and what it needs of the unpacked packages; `driver.use_software_driver` reads the result."""
    (driver,) = unpacked.rglob(DRIVER)
    manifest = json.loads(next(iter(sorted(unpacked.rglob("lvp_icd*.json")))).read_text())
    places = sorted({file.parent for file in unpacked.rglob("*.so*")})
    needed = {file.name: file for name in X11 for file in unpacked.rglob(name)}
    for library in (driver, *needed.values()):
        needed = {**needed, **needed_libraries(library, places)}
    # What a library needs is needed by those that need it, too: to sort by how many is to put each after its own.
    libraries = sorted(needed, key=lambda name: (len(needed_libraries(needed[name], places)), name))
    for name in libraries:
        shutil.copyfile(needed[name], directory / name)
    shutil.copyfile(driver, directory / DRIVER)
    contents = {"libraries": libraries, "despite_gpu": torch.cuda.is_available()}
    (directory / CONTENTS).write_text(json.dumps(contents, indent=1))
    manifest["ICD"]["library_path"] = f"./{DRIVER}"  # Vulkan's loader starts at the manifest
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1))


def needed_libraries(library: Path, places: Sequence[Path]) -> dict[str, Path]:
    """Return the libraries in `places` that a library needs, directly or not, by name."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": os.pathsep.join(map(str, places))}
    output = subprocess.run(["ldd", library], env=environment, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in output.splitlines() if "=>" in line]  # libz.so.1 => /lib/libz.so.1 (0x7f...)
    if missing := [name for name, _, *path in lines if path == ["not", "found"]]:
        raise DataError(f"{library.name} needs {', '.join(missing)}, which no package brought")
    found = {name: Path(path) for name, _, path, *_ in lines}
    return {name: path for name, path in found.items() if path.parent in places}


def _why_sapien_fails() -> str | None:
    if importlib.util.find_spec("sapien") is None:
        raise ConfigError("SAPIEN is not installed: make maniskill, or pip install 'rewardlab[maniskill]'")
    return why_it_fails(DRAW)


def _driver_in_words() -> str:
    if chosen := [name for name in CHOSEN_BY_USER if os.environ.get(name)]:
        return f"the driver that {chosen[0]} names"
    return f"the software driver in {DIRECTORY}" if (DIRECTORY / MANIFEST).is_file() else "this machine's own driver"


if __name__ == "__main__":
    sys.exit(main())
