"""Calls of a robot's HTTP server over one kept connection; what goes wrong becomes an error that names the address."""

import http.client
import json
import re
from typing import Any

from rewardlab.envs.robot.protocol import RobotError, RobotStopped
from rewardlab.errors import ConfigError

MAX_ANSWER = 10_000_000  # bytes
ATTEMPTS = 3  # where a connection is closed without an answer, by a server that did not want to keep it or a bad wire
_CLOSED = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ConnectionAbortedError)


def split_address(text: object, port: int, key: str) -> tuple[str, int]:
    """Return the host and port of `host`, `host:port` or `http://host:port`."""
    if text == "ROBOT_IP":
        raise ConfigError(
            f"{key}: found ROBOT_IP, expected the address of your robot's server, such as 172.16.0.1:5000. To try it "
            "without a robot: `rewardlab robot-sim --port 5000`, and robot_ip: 127.0.0.1"
        )
    pattern = r"(?:http://)?([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?/?"
    match = re.fullmatch(pattern, text) if isinstance(text, str) else None
    if match is None or int(match[2] or port) > 65535:
        raise ConfigError(
            f"{key}: found {str(text)!r}, expected the address of a robot, such as 172.16.0.1:5000 (or, "
            "without one, 127.0.0.1:5000 of `rewardlab robot-sim --port 5000`)"
        )
    return match[1].strip("[]"), int(match[2] or port)


class HttpClient:
    """One server. Not for several threads."""

    def __init__(self, host: str, port: int, timeout: float, name: str) -> None:
        self.name = name
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout)

    def post(self, path: str, body: Any = None) -> Any:
        """Return the JSON of the answer; the text, if it is none."""
        content = self.request("POST", path, json.dumps({} if body is None else body).encode())
        try:
            return json.loads(content)
        except ValueError:
            return content.decode(errors="replace")

    def post_for_fields(self, path: str, body: Any = None) -> dict[str, Any]:
        """Return the JSON of the answer, which must have fields."""
        answer = self.post(path, body)
        if not isinstance(answer, dict):
            raise RobotError(f"{self.name}{path}: answered {str(answer)[:80]!r}, expected JSON with fields")
        return answer

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the content of an answer with status 200."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._connection.request(method, path, body, headers)
                response = self._connection.getresponse()
                content = response.read(MAX_ANSWER)
                break
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if attempt < ATTEMPTS and isinstance(error, _CLOSED):
                    continue  # sent again: every call of these protocols may be repeated
                raise RobotError(f"{self.name}{path}: no answer ({_reason(error)})") from error
        if response.status != 200:
            text = content.decode(errors="replace").strip()[:200]
            kind = RobotStopped if "emergency" in text.lower() else RobotError
            raise kind(f"{self.name}{path}: refused with status {response.status}: {text or response.reason}")
        return content

    def close(self) -> None:
        self._connection.close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
