"""Chooses the Vulkan driver that SAPIEN draws with: the machine's, or the software driver in this Python's prefix.

`install_driver` puts Mesa's software driver (lavapipe) into one directory, with the libraries that it and SAPIEN need
and the machine lacks. The rest of the machine does not know of it.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

DIRECTORY = Path(sys.prefix) / "share" / "rewardlab" / "vulkan"
MANIFEST = "lvp_icd.json"  # tells Vulkan's loader where the driver is
CONTENTS = "driver.json"  # {"libraries": file names, each after those it needs; "despite_gpu": bool}
CHOSEN_BY_USER = ("VK_ICD_FILENAMES", "VK_DRIVER_FILES")


def use_software_driver(directory: Path = DIRECTORY) -> bool:
    """Let SAPIEN draw with the software driver of `directory`; return whether it will. Call this before its import.

    It will not if none is installed, if the user has chosen a driver, or if there is a GPU whose own driver can draw.
    """
    manifest = directory / MANIFEST
    if not manifest.is_file():
        return False
    contents = json.loads((directory / CONTENTS).read_text())
    for name in contents["libraries"]:
        # Neither SAPIEN nor Vulkan's loader, which opens the driver, look into this directory: they find these loaded.
        ctypes.CDLL(str(directory / name))
    chosen = [os.environ[name] for name in CHOSEN_BY_USER if os.environ.get(name)]
    if chosen not in ([], [str(manifest)]):  # the latter: set by a parent process
        return False
    if _has_gpu() and not contents["despite_gpu"]:
        return False
    os.environ["VK_ICD_FILENAMES"] = str(manifest)
    os.environ.setdefault("LP_NUM_THREADS", "1")  # copies of environments fill the cores
    return True


def default_render_backend() -> str:
    """Return what ManiSkill draws with unless it is told: gpu or cpu. Call this before SAPIEN is imported."""
    software = use_software_driver()
    return "gpu" if _has_gpu() and not software else "cpu"


def _has_gpu() -> bool:
    import torch  # takes seconds, and most environments need neither SAPIEN nor torch

    return torch.cuda.is_available()
