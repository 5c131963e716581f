"""The calls of a Franka's HTTP server, answered by the simulated robot; and those that only a simulation has."""

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rewardlab.envs.robot.poses import angles_of, turned
from rewardlab.envs.robot.protocol import Floats, RobotError, numbers, pose_numbers
from rewardlab.envs.robot_sim.arm import JACOBIAN, joint_velocity, joints_at
from rewardlab.envs.robot_sim.bench import HOME, Bench
from rewardlab.envs.robot_sim.faults import Faults, changed
from rewardlab.envs.robot_sim.statistics import Statistics
from rewardlab.errors import ConfigError

TURN_NOISE = 10.0  # rad per metre of the noise of positions
LARGEST_GRIPPER = 255  # of /move_gripper: closed; 0 is open


class Answer(NamedTuple):
    status: int
    content: bytes
    kind: str = "text/plain; charset=utf-8"


class Refused(Exception):
    """The robot does not do what was asked."""


class Calls:
    """Each call by its path."""

    def __init__(self, bench: Bench, faults: Faults, seed: int) -> None:
        self.bench, self.faults, self.statistics = bench, faults, Statistics()
        self._rng = np.random.default_rng(seed)
        self.simulation: dict[str, Callable[[Any], Any]] = {
            "/sim/truth": lambda _: bench.truth(),
            "/sim/statistics": self._statistics,
            "/sim/faults": self._set_faults,
        }
        fields = {
            "/getpos": "pose", "/getvel": "vel", "/getforce": "force", "/gettorque": "torque", "/getq": "q",
            "/getdq": "dq", "/getjacobian": "jacobian",
        }  # fmt: skip
        self.reading: dict[str, Callable[[], Any]] = {"/getstate": self._state}
        self.reading |= {path: partial(self._part_of_state, name) for path, name in fields.items()}
        self.reading["/getpos_euler"] = self._euler
        self.reading["/get_gripper"] = lambda: {"gripper": self._state()["gripper_pos"]}
        self.moving: dict[str, Callable[[Any], str]] = {
            "/pose": self._pose,
            "/jointreset": self._joint_reset,
            "/open_gripper": lambda _: self._gripper(1.0, "Opened"),
            "/close_gripper": lambda _: self._gripper(0.0, "Closed"),
            "/close_gripper_slow": lambda _: self._gripper(0.0, "Closed"),
            "/move_gripper": self._move_gripper,
            "/activate_gripper": lambda _: "Activated",
            "/reset_gripper": lambda _: "Reset",
            "/clearerr": lambda _: "Clear",
            "/startimp": lambda _: "Started impedance",
            "/stopimp": self._stop_impedance,
            "/update_param": self._update_param,
            "/set_load": lambda _: "Set load",
        }

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Answer a call of the robot, or of the simulation."""
        if path in self.simulation:
            if method == "GET" and path == "/sim/faults":
                body = b""
            return self._call(lambda: self.simulation[path](_parsed(body)))
        if path in self.reading:
            answer = self._call(self.reading[path])
            return (
                answer._replace(content=answer.content[: len(answer.content) // 2]) if self.faults.garbage else answer
            )
        if path not in self.moving:
            return Answer(404, f"there is no {path}; the calls of a Franka's server are POST /getstate, ...".encode())
        if method != "POST":
            return Answer(405, f"{path} moves the robot: expected POST, found {method}".encode())
        if self.faults.emergency_stop:
            self.statistics.refused()
            return Answer(500, b"the emergency stop is pressed; release it at the robot")
        return self._call(lambda: self.moving[path](_parsed(body)))

    def _call(self, call: Callable[[], Any]) -> Answer:
        try:
            result = call()
        except (ConfigError, RobotError) as error:
            return Answer(400, str(error).encode())
        except Refused as error:
            return Answer(500, str(error).encode())
        if isinstance(result, str):
            return Answer(200, result.encode())
        return Answer(200, json.dumps(result).encode(), "application/json")

    def _state(self) -> dict[str, Any]:
        measured = self.bench.measured
        pose = self._noisy(measured.pose)
        self.statistics.answered(pose)
        if self.faults.nan_pose:
            pose = np.full(7, np.nan)
        return {
            "pose": pose.tolist(),
            "vel": measured.velocity.tolist(),
            "force": measured.force.tolist(),
            "torque": measured.torque.tolist(),
            "q": joints_at(measured.pose, HOME).tolist(),
            "dq": joint_velocity(measured.velocity).tolist(),
            "jacobian": JACOBIAN.tolist(),
            "gripper_pos": measured.gripper,
        }

    def _part_of_state(self, name: str) -> dict[str, Any]:
        return {name: self._state()[name]}

    def _noisy(self, pose: Floats) -> Floats:
        if not self.faults.noise:
            return pose
        noise = self.faults.noise * self._rng.standard_normal(6)
        return np.concatenate((pose[:3] + noise[:3], turned(pose[3:], TURN_NOISE * noise[3:])))

    def _euler(self) -> dict[str, Any]:
        pose = np.array(self._state()["pose"])
        return {"pose": [*pose[:3].tolist(), *angles_of(pose[3:]).tolist()]}

    def _pose(self, body: Any) -> str:
        pose = pose_numbers(_field(body, "arr"), "/pose: 'arr'")
        self.statistics.commanded(pose, self.bench.measured.pose)
        if not self.bench.move_to(pose):
            raise Refused("the joints are being reset; no other motion until that has ended")
        return "Moved"

    def _joint_reset(self, _: Any) -> str:
        if not self.bench.go_home():
            raise Refused("the joint reset did not reach the home position")
        return "Reset Joint"

    def _gripper(self, opening: float, word: str) -> str:
        self.bench.move_gripper(opening)
        return word

    def _move_gripper(self, body: Any) -> str:
        asked = float(numbers(_field(body, "gripper_pos"), 1, "/move_gripper: 'gripper_pos'")[0])
        return self._gripper(1 - min(max(asked / LARGEST_GRIPPER, 0.0), 1.0), "Moved Gripper")

    def _stop_impedance(self, _: Any) -> str:
        self.bench.hold()
        return "Stopped impedance"

    def _update_param(self, body: Any) -> str:
        if not isinstance(body, dict):
            raise Refused("/update_param: expected JSON with parameters of the compliance")
        return "Updated compliance parameters"

    def _set_faults(self, body: Any) -> dict[str, Any]:
        if body != {}:
            self.faults = changed(self.faults, body)
            if self.faults.emergency_stop:
                self.bench.hold()
        return dataclasses.asdict(self.faults)

    def _statistics(self, body: Any) -> dict[str, Any]:
        values = {**self.statistics.values(), "late_ticks": self.bench.late_ticks}
        if isinstance(body, dict) and body.get("reset"):
            self.statistics.reset()
        return values


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise ConfigError(f"the body is no JSON: {error}") from error


def _field(body: Any, name: str) -> Any:
    if not isinstance(body, dict) or name not in body:
        raise ConfigError(f"expected JSON with a field {name!r}, found {str(body)[:80]}")
    return body[name]
