"""A simulated robot behind its real protocol, 20 times as fast as a real one."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rewardlab
from rewardlab.envs.robot.env import RobotEnv
from rewardlab.envs.robot.http_client import HttpClient
from rewardlab.envs.robot.protocol import Floats
from rewardlab.envs.robot_sim.server import SimOptions, SimServer

SPEED = 20.0
TARGET = (0.5, 0.0, 0.1, -3.14, 0.0, 0.0)
CAMERAS: dict[str, Any] = {"wrist_camera": {"url": "http://{robot}/camera/wrist_camera.jpg"}}
MakeEnv = Callable[..., RobotEnv]


class Sim:
    """A server in this process, and the calls that only a simulation has."""

    def __init__(self) -> None:
        self.server = SimServer(SimOptions(port=0, speed=SPEED, image_size=32))
        self.address = self.server.address
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.close()
        self._thread.join()

    def faults(self, **values: Any) -> None:
        call(self.address, "/sim/faults", values)

    def statistics(self) -> dict[str, Any]:
        found: dict[str, Any] = call(self.address, "/sim/statistics")
        return found

    def pose(self) -> Floats:
        return self.server.bench.measured.pose


class SimProcess:
    """`rewardlab robot-sim` as a user starts it: what is killed here is gone, with its connections."""

    def __init__(self) -> None:
        self.address = ""
        self.start()

    def start(self) -> None:
        """Start it, at the same port as before."""
        port = self.address.rpartition(":")[2] or "0"
        options = ["--port", port, "--speed", f"{SPEED:g}", "--image-size", "32"]
        self.process = start_command("robot-sim", *options)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://([\d.]+:\d+)", line)
        assert found is not None, line
        self.address = found[1]

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def statistics(self) -> dict[str, Any]:
        found: dict[str, Any] = call(self.address, "/sim/statistics")
        return found

    def pose(self) -> Floats:
        return np.array(call(self.address, "/getpos")["pose"])


def call(address: str, path: str, body: Any = None) -> Any:
    host, _, port = address.rpartition(":")
    client = HttpClient(host, int(port), 5.0, "simulation")
    try:
        return client.post(path, body)
    finally:
        client.close()


def start_command(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
    """Start a command of rewardlab in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(rewardlab.__file__).parents[1])}
    command = [sys.executable, "-m", "rewardlab.cli", *arguments]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, env=environment, **options)


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until something is so; a test fails here only if it never is."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
