"""Runs as users start them, in a process of their own, that tests look at through their page."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from rewardlab.envs.robot_sim.server import SimOptions, SimServer

SPEED = 5  # times real time
SECONDS = 60.0  # within which things happen on a machine that is busy
CONTROL_HZ = 10 * SPEED


@contextmanager
def simulated_robot() -> Iterator[SimServer]:
    server = SimServer(SimOptions(port=0, speed=SPEED, image_size=64))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.close()


def write_robot_config(path: Path, *addresses: str) -> Path:
    """A run in which a policy of random actions moves the robots, so that nothing is learned."""
    cameras = {name: {"url": f"http://{{robot}}/camera/{name}.jpg"} for name in ("base_camera", "wrist_camera")}
    config = {
        "cluster": {
            "node_groups": [{"hardware": {"type": "Franka", "configs": [{"robot_ip": one} for one in addresses]}}]
        },
        "runner": {
            "max_epochs": 100_000,
            "save_interval": 100_000,
            "logger": {"log_path": str(path.parent), "experiment_name": path.stem},
            "page": {"port": 0},
        },
        "env": {
            "train": {
                "id": "robot/peg_insertion",
                "num_envs": len(addresses),
                "target_ee_pose": [0.5, 0.0, 0.1, -3.14, 0.0, 0.0],
                "max_episode_steps": 200,
                "success_hold_steps": 3,
                "options": {"control_hz": CONTROL_HZ, "cameras": cameras},
            }
        },
        "algorithm": {"name": "sac", "sac": {"rollout_steps": 25, "learning_starts": 10_000_000, "replay_size": 1000}},
    }
    path.write_text(yaml.safe_dump(config))
    return path


class Run:
    """`rewardlab run ...` in a process; `url` is that of its page."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "rewardlab.cli", "run", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    @property
    def url(self) -> str:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(r"^page: (\S+)$", "".join(self.lines), re.MULTILINE):
                return found[1]
            time.sleep(0.05)
        raise AssertionError("the run shows no page:\n" + "".join(self.lines))

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._thread.join()
