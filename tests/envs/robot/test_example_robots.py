"""The examples of other robots: a server of the generic protocol, which runs, and an adapter for another arm."""

import ast
import importlib.util
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sim_robot import MakeEnv

from rewardlab.cli import main
from rewardlab.envs.robot import check
from rewardlab.envs.robot.http_robot import HttpRobot, HttpRobotConfig
from rewardlab.envs.robot.poses import pose_of_angles
from rewardlab.envs.robot.protocol import Command, RobotError, RobotStopped
from rewardlab.envs.robot.robots import make_robot
from rewardlab.errors import ConfigError

EXAMPLES = Path(__file__).parents[3] / "examples/robots"
SERVER = EXAMPLES / "robot_server.py"
OLD = shutil.which("python3.6")


@pytest.fixture
def address() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, SERVER, "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().split("//")[1].strip()
    process.kill()
    process.communicate()


def test_the_server_is_of_an_old_python_and_its_own_library() -> None:
    tree = ast.parse(SERVER.read_text(), feature_version=(3, 6))
    modules = {node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.Import)}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in modules} <= sys.stdlib_module_names


@pytest.mark.skipif(OLD is None or subprocess.run([OLD, "-V"], check=False).returncode != 0, reason="no Python 3.6")
def test_the_server_runs_with_an_old_python() -> None:
    process = subprocess.Popen([str(OLD), SERVER, "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    robot = HttpRobot(HttpRobotConfig(process.stdout.readline().split("//")[1].strip()))
    assert robot.act(Command(robot.observe().pose, 1.0)).gripper == 1.0
    robot.stop()
    robot.close()
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_the_arm_of_the_server_moves_and_stops(address: str) -> None:
    robot = HttpRobot(HttpRobotConfig(address))
    goal = robot.observe().pose.copy()
    goal[2] -= 0.2
    sent = robot.act(Command(goal, 0.7))
    np.testing.assert_array_equal(sent.pose, goal)
    assert robot.observe().gripper == 0.7
    while robot.observe().pose[2] > 0.24:
        pass
    robot.stop()
    stopped = robot.observe().pose
    assert stopped[2] > goal[2]
    np.testing.assert_array_equal(robot.observe().pose, stopped)
    robot.reset()
    assert robot.spaces().gripper
    robot.close()


def test_a_wrong_call_is_answered_with_its_error(address: str) -> None:
    robot = HttpRobot(HttpRobotConfig(address))
    with pytest.raises(RobotError, match="refused with status 500: KeyError: 'dance'"):
        robot._client.post("/dance")
    robot.close()


def test_the_server_is_a_robot_of_an_environment(make_env: MakeEnv, address: str) -> None:
    env = make_env(robot={"type": "http", "url": f"http://{address}"}, cameras={}, control_hz=50)
    env.reset(seed=0)
    for _ in range(200):
        _, _, _, _, info = env.step(env.scripted_action())
        if info["hold"] == 3:
            break
    assert info["success"]


def test_the_server_passes_robot_check(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "SLOWEST", 0.1)  # of the control rate: how busy this machine is, is not the subject
    monkeypatch.setattr(check, "HOLD_SECONDS", 0.5)
    config = tmp_path / "arm.yaml"
    config.write_text(
        "cluster:\n  node_groups:\n"
        f"    - hardware: {{type: http, configs: [{{url: 'http://{address}'}}]}}\n"
        "env:\n  train:\n    id: robot/reach\n    target_ee_pose: [0.5, 0.0, 0.2, 3.1416, 0.0, 0.0]\n"
    )
    assert main(["robot-check", str(config), "--yes", "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().out


@pytest.fixture
def ur_robot(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = importlib.util.find_spec("ur_robot")
    assert spec is not None
    yield importlib.import_module("ur_robot")
    sys.modules.pop("ur_robot", None)


def test_an_arm_without_its_package_says_what_to_install(ur_robot: ModuleType) -> None:
    robot = make_robot("ur_robot:URRobot", {"robot_ip": "192.168.0.10"})
    assert robot.name == "ur://192.168.0.10"
    with pytest.raises(ConfigError, match=r"needs `pip install ur_rtde` \(No module named 'rtde_receive'\)"):
        robot.observe()


class Interface:
    """The calls of ur_rtde that the adapter makes, of an arm that is wherever it was told to be."""

    pose = np.array([0.5, 0.0, 0.25, np.pi, 0.0, 0.0])
    calls: list[str] = []  # noqa: RUF012
    emergency = False

    def __init__(self, address: str) -> None:
        Interface.calls.append(f"{type(self).__name__} {address}")

    def getActualTCPPose(self) -> list[float]:
        return Interface.pose.tolist()

    def getActualTCPSpeed(self) -> list[float]:
        return [0.0] * 6

    def getActualTCPForce(self) -> list[float]:
        return [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]

    def isEmergencyStopped(self) -> bool:
        return Interface.emergency

    def isProtectiveStopped(self) -> bool:
        return False

    def servoL(self, pose: list[float], *options: float) -> None:
        Interface.pose = np.array(pose)

    def initPeriod(self) -> float:
        return 0.0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: Interface.calls.append(name) if name != "waitPeriod" else None


def test_an_arm_follows_its_commands_at_a_limited_speed(ur_robot: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in for its package: no arm is here."""
    monkeypatch.setattr(ur_robot.URRobot, "_connect", lambda self, module, name: Interface(f"{module} {self._ip}"))
    robot = ur_robot.URRobot("10.0.0.1", frequency=1000)
    state = robot.observe()
    np.testing.assert_allclose(np.abs(state.pose), [0.5, 0, 0.25, 1, 0, 0, 0], atol=1e-9)
    np.testing.assert_array_equal(state.torque, [4, 5, 6])

    step = ur_robot.towards(state.pose, pose_of_angles((0.6, 0, 0.25, np.pi, 0, 0.5)), 0.01, 0.1)
    np.testing.assert_allclose(step[:3], [0.51, 0, 0.25], atol=1e-9)
    goal = pose_of_angles((0.5, 0.002, 0.25, np.pi, 0, 0.01))
    robot.act(Command(goal))
    while np.abs(robot.observe().pose[:3] - goal[:3]).max() > 1e-9:
        pass
    robot.stop()
    assert "DashboardClient" not in str(Interface.calls)
    monkeypatch.setattr(Interface, "emergency", True)
    with pytest.raises(RobotStopped, match="the emergency stop is pressed"):
        robot.act(Command(goal))
    robot.close()
    assert Interface.calls[-2:] == ["servoStop", "stopScript"]
    ur_robot.URRobot("10.0.0.1").stop()  # as the watchdog's process does
    assert Interface.calls[-3:] == ["connect", "stop", "disconnect"]
