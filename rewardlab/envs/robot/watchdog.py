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
from collections.abc import Mapping
from typing import IO, Any

from rewardlab.envs.robot.robots import make_robot

MOVING, IDLE = b"m", b"i"


class Watchdog:
    """The process that watches this one."""

    def __init__(self, robot_type: str, settings: Mapping[str, Any], seconds: float) -> None:
        command = [sys.executable, "-m", "rewardlab.envs.robot.watchdog"]
        # In a session of its own: Ctrl-C and the death of a terminal must not take it along.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        line = json.dumps({"type": robot_type, "settings": dict(settings), "seconds": seconds})
        self._input: IO[bytes] | None = self._process.stdin
        self._say(line.encode() + b"\n")
        self._state = IDLE

    @property
    def pid(self) -> int:
        return self._process.pid

    def moving(self) -> None:
        """A command was just sent."""
        self._state = MOVING
        self._say(MOVING)

    def idle(self) -> None:
        """The robot stands still, and will for a while."""
        if self._state != IDLE:
            self._state = IDLE
            self._say(IDLE)

    def close(self) -> None:
        if self._input is not None:
            self.idle()
            pipe, self._input = self._input, None
            try:
                pipe.close()
                self._process.wait(5)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()

    def _say(self, content: bytes) -> None:
        if self._input is None:
            return
        try:
            self._input.write(content)
            self._input.flush()
        except OSError as error:
            from rewardlab.envs.robot.protocol import RobotError

            raise RobotError(f"the robot's watchdog (process {self._process.pid}) is gone; start again") from error


def watch(source: int, robot_type: str, settings: Mapping[str, Any], seconds: float) -> None:
    """Read signs of life from a file descriptor until its end."""
    state, warned = IDLE, False
    while True:
        ready, _, _ = select.select([source], [], [], seconds if state == MOVING else None)
        signs = os.read(source, 65536) if ready else b""
        if ready and not signs:  # the program has ended
            if state == MOVING:
                _stop(robot_type, settings, "the program that moved it has ended")
            return
        if not ready:
            if not warned:
                _stop(robot_type, settings, f"the program that moves it was silent for {seconds} s")
            state, warned = IDLE, True  # until it speaks again
        else:
            state, warned = signs[-1:], False


def _stop(robot_type: str, settings: Mapping[str, Any], reason: str) -> None:
    robot = make_robot(robot_type, settings)
    try:
        robot.stop()
        print(f"watchdog: stopped {robot.name}: {reason}", file=sys.stderr, flush=True)
    except Exception as error:
        print(f"watchdog: {robot.name} could not be stopped ({reason}): {error}", file=sys.stderr, flush=True)
    finally:
        robot.close()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return
        line += byte
    facts = json.loads(line)
    watch(0, facts["type"], facts["settings"], facts["seconds"])


if __name__ == "__main__":
    main()
