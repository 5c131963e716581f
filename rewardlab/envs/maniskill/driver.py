"""Chooses the Vulkan driver that SAPIEN draws with: the machine's, or the software driver in this Python's prefix.

`install_driver` puts Mesa's software driver (lavapipe) and the libraries that it needs and the machine lacks into one
directory. Nothing of it is known to the rest of the machine.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

import torch

DIRECTORY = Path(sys.prefix) / "share" / "rewardlab" / "vulkan"
MANIFEST = "lvp_icd.json"  # tells Vulkan's loader where the driver is
CONTENTS = "driver.json"  # {"libraries": file names, each after those it needs; "despite_gpu": bool}
CHOSEN_BY_USER = ("VK_ICD_FILENAMES", "VK_DRIVER_FILES")


def use_software_driver(directory: Path = DIRECTORY) -> bool:
    """Let SAPIEN draw with the software driver of `directory`; return whether it will. Call this before its import.

    Not if there is none, if the user has chosen a driver, or if there is a GPU whose own driver can draw.
    """
    manifest = directory / MANIFEST
    chosen = [os.environ[name] for name in CHOSEN_BY_USER if os.environ.get(name)]
    if not manifest.is_file() or chosen not in ([], [str(manifest)]):  # the latter: set by a parent process
        return False
    contents = json.loads((directory / CONTENTS).read_text())
    if torch.cuda.is_available() and not contents["despite_gpu"]:
        return False
    for name in contents["libraries"]:
        # The driver is opened by Vulkan's loader, which knows no directory of ours: it finds them loaded.
        ctypes.CDLL(str(directory / name))
    os.environ["VK_ICD_FILENAMES"] = str(manifest)
    os.environ.setdefault("LP_NUM_THREADS", "1")  # copies of environments fill the cores
    return True
