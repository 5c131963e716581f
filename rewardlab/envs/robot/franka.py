"""A Franka arm behind the HTTP server that users of SERL and HIL-SERL run on its control PC.

Every call is a POST. `/pose` sets the target of an impedance controller, which the arm follows and then holds.
"""

from dataclasses import dataclass

import numpy as np

from rewardlab.envs.robot.http_client import HttpClient, split_address
from rewardlab.envs.robot.protocol import (
    Command,
    RobotSpaces,
    RobotState,
    pose_numbers,
    state_from_fields,
)

PORT = 5000
FIELDS = {"pose": "pose", "velocity": "vel", "force": "force", "torque": "torque", "gripper": "gripper_pos"}
JOINT_RESET_SECONDS = 60.0
GRIPPER_CHANGE = 0.05  # smaller changes of the gripper's position are not sent


@dataclass(frozen=True)
class FrankaConfig:
    """A robot of `cluster.node_groups`, with `type: Franka`."""

    robot_ip: str  # host, or host:port
    compliance: dict[str, float] | None = None  # for /update_param; None = as the server has it
    timeout: float = 1.0  # seconds


class FrankaRobot:
    """Translates the calls of `Robot`."""

    def __init__(self, config: FrankaConfig) -> None:
        self._address = split_address(config.robot_ip, PORT, "robot_ip")
        self.name = f"http://{self._address[0]}:{self._address[1]}"
        self._config = config
        self._client = HttpClient(*self._address, config.timeout, self.name)
        self._gripper: float | None = None  # as last sent

    def spaces(self) -> RobotSpaces:
        return RobotSpaces(gripper=True)

    def observe(self) -> RobotState:
        return state_from_fields(self._client.post_for_fields("/getstate"), FIELDS, f"{self.name}/getstate")

    def act(self, command: Command) -> Command:
        self._client.post("/pose", {"arr": command.pose.tolist()})
        gripper = command.gripper
        if gripper is not None and (self._gripper is None or abs(gripper - self._gripper) >= GRIPPER_CHANGE):
            # The server's number is that of the gripper's hardware: 0 open, 255 closed.
            self._client.post("/move_gripper", {"gripper_pos": round(255 * (1 - gripper))})
            self._gripper = gripper
        return command

    def reset(self, *, joints: bool = False) -> None:
        self._client.post("/clearerr")
        if joints:
            slow = HttpClient(*self._address, JOINT_RESET_SECONDS, self.name)
            slow.post("/jointreset")
            slow.close()
        if self._config.compliance is not None:
            self._client.post("/update_param", self._config.compliance)
        self._gripper = None

    def stop(self) -> None:
        """Make the measured pose the target, over a connection of its own: the other may be waiting for an answer."""
        client = HttpClient(*self._address, self._config.timeout, self.name)
        try:
            pose = pose_numbers(client.post_for_fields("/getpos").get("pose"), f"{self.name}/getpos")
            client.post("/pose", {"arr": np.asarray(pose).tolist()})
        finally:
            client.close()

    def close(self) -> None:
        self._client.close()
