"""An arm of Universal Robots as a robot of rewardlab, through ur_rtde (`pip install ur_rtde`).

In a config, with this file in the directory where the run is started:

    cluster:
      node_groups:
        - hardware: {type: "ur_robot:URRobot", configs: [{robot_ip: 192.168.0.10}]}

The arm wants a target every few milliseconds. A thread sends them: from where the arm is towards the newest command, at
a limited speed; without new commands it holds that pose. The wrench is of the tool, in the base frame. A gripper is not
part of ur_rtde: add yours to `observe` and `act`, and say so in `spaces`.

This file was written from the documentation of ur_rtde, and was not tried on an arm: begin with `rewardlab
robot-check`, a hand at the emergency stop.
"""

import importlib
import threading
from typing import Any

import numpy as np

from rewardlab.envs.robot.poses import turn_between, turned
from rewardlab.envs.robot.protocol import Command, Floats, RobotError, RobotSpaces, RobotState, RobotStopped, numbers
from rewardlab.errors import ConfigError

SPEED, TURN_SPEED = 0.25, 0.5  # metres and radians in a second
LOOKAHEAD, GAIN = 0.1, 300.0  # of servoL: seconds, and how stiffly the target is followed
UPRIGHT = np.array([0.0, 0.0, 0.0, 1.0])


class URRobot:
    """Connects when it is first used: constructors are quiet."""

    def __init__(self, robot_ip: str, frequency: float = 125.0) -> None:
        self.name = f"ur://{robot_ip}"
        self._ip, self._period = robot_ip, 1 / frequency
        self._receive: Any = None
        self._control: Any = None
        self._goal: Floats | None = None
        self._lock, self._ending = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def spaces(self) -> RobotSpaces:
        return RobotSpaces(gripper=False)

    def observe(self) -> RobotState:
        receive = self._receiving()
        wrench = numbers(receive.getActualTCPForce(), 6, f"{self.name}: force")
        return RobotState(
            pose=self._measured(),
            velocity=numbers(receive.getActualTCPSpeed(), 6, f"{self.name}: speed"),
            force=wrench[:3],
            torque=wrench[3:],
            gripper=0.0,
        )

    def act(self, command: Command) -> Command:
        self._check_ready()
        with self._lock:
            self._goal = command.pose.copy()
        if self._thread is None:
            self._control = self._connect("rtde_control", "RTDEControlInterface")
            self._thread = threading.Thread(target=self._follow, name=self.name, daemon=True)
            self._thread.start()
        return Command(command.pose)

    def reset(self, *, joints: bool = False) -> None:
        if joints:
            raise ConfigError(f"env.train.options.reset.joints_every: {self.name} has no home position; set it to null")
        self._check_ready()

    def stop(self) -> None:
        """Hold still; from a process that does not move the arm (the watchdog), end the program that does."""
        if self._thread is not None:
            with self._lock:
                self._goal = self._measured()
            return
        dashboard = self._connect("dashboard_client", "DashboardClient")
        dashboard.connect()
        dashboard.stop()
        dashboard.disconnect()

    def close(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join(1.0)
            self._control.servoStop()
            self._control.stopScript()
            self._thread = None

    def _follow(self) -> None:
        pose = self._measured()
        while not self._ending.is_set():
            began = self._control.initPeriod()
            with self._lock:
                goal = self._goal
            if goal is not None:
                pose = towards(pose, goal, SPEED * self._period, TURN_SPEED * self._period)
                self._control.servoL(rotation_vector_pose(pose), 0.0, 0.0, self._period, LOOKAHEAD, GAIN)
            self._control.waitPeriod(began)

    def _measured(self) -> Floats:
        pose = numbers(self._receiving().getActualTCPPose(), 6, f"{self.name}: pose")
        return np.concatenate((pose[:3], turned(UPRIGHT, pose[3:])))

    def _check_ready(self) -> None:
        if self._receiving().isEmergencyStopped():
            raise RobotStopped(f"{self.name}: the emergency stop is pressed; release it at the robot")
        if self._receiving().isProtectiveStopped():
            raise RobotError(f"{self.name}: it is in a protective stop; see what it touches, and unlock it")

    def _receiving(self) -> Any:
        if self._receive is None:
            self._receive = self._connect("rtde_receive", "RTDEReceiveInterface")
        return self._receive

    def _connect(self, module: str, name: str) -> Any:
        try:
            return getattr(importlib.import_module(module), name)(self._ip)
        except ImportError as error:
            raise ConfigError(
                f"{self.name}: an arm of Universal Robots needs `pip install ur_rtde` ({error})"
            ) from error
        except RuntimeError as error:
            raise RobotError(f"{self.name}: no connection ({error})") from error


def rotation_vector_pose(pose: Floats) -> list[float]:
    """Return a pose as the arm knows it: position, and a rotation vector."""
    return [*pose[:3].tolist(), *turn_between(UPRIGHT, pose[3:]).tolist()]


def towards(pose: Floats, goal: Floats, step: float, turn_step: float) -> Floats:
    """Return the pose on the way to a goal that is at most a step and a turn away."""
    gap, turn = goal[:3] - pose[:3], turn_between(pose[3:], goal[3:])
    gap *= min(1.0, step / max(float(np.linalg.norm(gap)), 1e-12))
    turn *= min(1.0, turn_step / max(float(np.linalg.norm(turn)), 1e-12))
    return np.concatenate((pose[:3] + gap, turned(pose[3:], turn)))
