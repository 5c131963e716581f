"""Runs an environment in a child process without a screen, without settings of the user, and with nothing imported."""

import os
import subprocess
import sys

SETTINGS = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY", "VK_ICD_FILENAMES", "VK_DRIVER_FILES", "LP_NUM_THREADS")
SCRIPT = """
import sys
from rewardlab.envs import make_vec_env
env = make_vec_env({env_id!r}, num_envs=2, processes={processes})
{then}
env.close()
"""
PRINT_CONTRAST = "env.reset(seed=0); print(env.render_cameras(['base_camera'], (32, 32))['base_camera'].std())"
PRINT_SIMULATORS = "print(sorted({'torch', 'sapien', 'mujoco', 'OpenGL'} & set(sys.modules)))"


def run_env(env_id: str, processes: int, then: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run a child with these environment variables that builds an environment and goes on with the code `then`."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS} | settings
    command = [sys.executable, "-c", SCRIPT.format(env_id=env_id, processes=processes, then=then)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
