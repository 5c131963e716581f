"""Stops a robot when the program that moves it dies or hangs: a process of its own that listens for signs of life.

    python -m rewardlab.envs.robot.watchdog

Its first line of input is JSON: the robot's type and settings, and the seconds of silence after which to stop. Then
each byte is a sign of life: `m` (a command was sent), or `i` (idle: nothing will be sent for a while). At the end of
its input, which comes with the death of the other process, it stops the robot unless that was idle, and ends.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from rewardlab.envs.robot.protocol import RobotError
from rewardlab.envs.robot.robots import make_robot
from rewardlab.screen import say_error

MOVING, IDLE = b"m", b"i"
ATTEMPTS = 5  # to stop a robot
PAUSE = 0.2  # seconds between them


class Watchdog:
    """The process that watches this one."""

    def __init__(self, robot_type: str, settings: Mapping[str, Any], seconds: float) -> None:
        command = [sys.executable, "-P", "-m", "rewardlab.envs.robot.watchdog"]
        # Adapters of a user are imported there as here.
        import_path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
        # In a session of its own: Ctrl-C and the death of a terminal must not take it along.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": import_path},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: int | None = self._process.stdin.fileno()
        self._stops = self._process.stdout
        line = json.dumps({"type": robot_type, "settings": dict(settings), "seconds": seconds})
        self._say(line.encode() + b"\n")
        os.set_blocking(self._input, False)  # a watchdog that hangs must not hang what it watches
        self._state = IDLE

    @property
    def pid(self) -> int:
        return self._process.pid

    def moving(self) -> None:
        """A command is sent now."""
        self._state = MOVING
        self._say(MOVING)

    def idle(self) -> None:
        """The robot stands still, and will for a while."""
        if self._state != IDLE:
            self._state = IDLE
            self._say(IDLE)

    def wait_for_stop(self, seconds: float) -> bool:
        """Return whether it has stopped the robot since the last call, or does so within some seconds."""
        ready, _, _ = select.select([self._stops], [], [], seconds)
        return bool(ready and os.read(self._stops.fileno(), 1000))

    def close(self, *, stopped: bool = True) -> None:
        """End it. If the robot could not be `stopped`, it tries that once more."""
        if self._input is None or self._process.stdin is None:
            return
        try:
            if stopped:
                self.idle()
        except RobotError:
            pass  # it has ended
        finally:
            self._input = None
            self._process.stdin.close()
            self._stops.close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _say(self, content: bytes) -> None:
        if self._input is None:
            return
        try:
            os.write(self._input, content)
        except OSError as error:
            raise RobotError(f"the robot's watchdog (process {self._process.pid}) is gone; start again") from error


def watch(source: int, told: int, robot_type: str, settings: Mapping[str, Any], seconds: float) -> None:
    """Read signs of life from a file descriptor until its end; write a byte to `told` for each stop."""
    state = IDLE
    while True:
        ready, _, _ = select.select([source], [], [], seconds if state == MOVING else None)
        signs = os.read(source, 65536) if ready else b""
        if signs:
            state = signs[-1:]
        elif ready:  # the program has ended
            if state == MOVING:
                _stop(robot_type, settings, "the program that moved it has ended")
            return
        elif _stop(robot_type, settings, f"the program that moves it was silent for {seconds} s"):
            state = IDLE  # until it speaks again
            os.write(told, b"s")


def _stop(robot_type: str, settings: Mapping[str, Any], reason: str) -> bool:
    """Stop the robot; return whether it says that it did."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with closing(make_robot(robot_type, settings)) as robot:
                robot.stop()
                say_error(f"watchdog: stopped {robot.name}: {reason}")
                return True
        except Exception as error:  # an adapter of a user may raise anything
            if attempt == ATTEMPTS:
                say_error(f"watchdog: the robot could not be stopped ({reason}): {error}")
        time.sleep(PAUSE)
    return False


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return
        line += byte
    facts = json.loads(line)
    told = os.dup(1)
    os.dup2(2, 1)  # what an adapter prints is for people
    watch(0, told, facts["type"], facts["settings"], facts["seconds"])


if __name__ == "__main__":
    main()
