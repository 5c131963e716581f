"""Any robot behind a small server of five POST calls with JSON, which a robot PC with an old Python can run too.

| call | body | answer |
|---|---|---|
| /spaces | - | `{"gripper": true}` |
| /observe | - | `{"pose": [7], "velocity": [6], "force": [3], "torque": [3], "gripper": 0.5}` |
| /act | `{"pose": [7], "gripper": 0.5 or null}` | the same: what was really sent |
| /reset | `{"joints": false}` | anything |
| /stop | - | anything |

Poses are x, y, z in metres and a quaternion x, y, z, w; `examples/robots/robot_server.py` is such a server.
"""

from dataclasses import dataclass

from rewardlab.envs.robot.http_client import HttpClient, split_address
from rewardlab.envs.robot.protocol import (
    Command,
    RobotSpaces,
    RobotState,
    pose_numbers,
    share,
    state_from_fields,
)

PORT = 8000
RESET_SECONDS = 60.0
FIELDS = {name: name for name in ("pose", "velocity", "force", "torque", "gripper")}


@dataclass(frozen=True)
class HttpRobotConfig:
    """A robot of `cluster.node_groups`, with `type: http`."""

    url: str  # http://host:port
    timeout: float = 1.0  # seconds


class HttpRobot:
    """Translates the calls of `Robot`."""

    def __init__(self, config: HttpRobotConfig) -> None:
        self._address = split_address(config.url, PORT, "url")
        self.name = f"http://{self._address[0]}:{self._address[1]}"
        self._timeout = config.timeout
        self._client = HttpClient(*self._address, config.timeout, self.name)

    def spaces(self) -> RobotSpaces:
        return RobotSpaces(gripper=self._client.post_for_fields("/spaces").get("gripper") is True)

    def observe(self) -> RobotState:
        return state_from_fields(self._client.post_for_fields("/observe"), FIELDS, f"{self.name}/observe")

    def act(self, command: Command) -> Command:
        sent = self._client.post_for_fields("/act", {"pose": command.pose.tolist(), "gripper": command.gripper})
        what = f"{self.name}/act"
        gripper = sent.get("gripper")
        return Command(
            pose_numbers(sent.get("pose"), f"{what}: 'pose'"),
            None if gripper is None else share(gripper, f"{what}: 'gripper'"),
        )

    def reset(self, *, joints: bool = False) -> None:
        self._once("/reset", RESET_SECONDS, {"joints": joints})

    def stop(self) -> None:
        self._once("/stop", self._timeout)

    def _once(self, path: str, timeout: float, body: object = None) -> None:
        """Call over a connection of its own: the other may be waiting for an answer."""
        client = HttpClient(*self._address, timeout, self.name)
        try:
            client.post(path, body)
        finally:
            client.close()

    def close(self) -> None:
        self._client.close()
