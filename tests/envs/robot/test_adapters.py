"""Adapters: what they send and how they read it, against servers that run."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from sim_robot import Sim

from rewardlab.envs.robot.franka import FrankaConfig, FrankaRobot
from rewardlab.envs.robot.http_client import split_address
from rewardlab.envs.robot.protocol import Command, RobotError, RobotStopped
from rewardlab.envs.robot.robots import make_robot
from rewardlab.errors import ConfigError


@pytest.fixture
def franka(sim: Sim) -> Iterator[FrankaRobot]:
    robot = FrankaRobot(FrankaConfig(sim.address))
    yield robot
    robot.close()


def test_a_franka_is_measured(franka: FrankaRobot, sim: Sim) -> None:
    state = franka.observe()
    np.testing.assert_allclose(state.pose, sim.pose(), atol=2e-3)  # it trembles
    assert state.gripper == sim.server.bench.measured.gripper


def test_a_franka_moves_to_a_command_and_holds_it(franka: FrankaRobot, sim: Sim) -> None:
    goal = franka.observe().pose.copy()
    goal[0] += 0.02
    assert franka.act(Command(goal)).pose is goal
    while np.abs(franka.observe().pose - goal).max() > 0.002:
        pass
    assert sim.statistics()["commands"] == 1


def test_the_gripper_of_a_franka_opens_and_closes(franka: FrankaRobot, sim: Sim) -> None:
    pose = franka.observe().pose
    franka.act(Command(pose, gripper=1.0))
    while franka.observe().gripper < 0.95:
        pass
    assert not sim.server.bench.truth()["held"]
    franka.act(Command(pose, gripper=0.0))
    while franka.observe().gripper > 0.9:
        pass


def test_stop_ends_a_motion_that_goes_on(franka: FrankaRobot, sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    goal = franka.observe().pose.copy()
    goal[2] -= 0.1
    begun = time.monotonic()  # slower from now on, so that it cannot arrive before the stop on busy cores
    monkeypatch.setattr(sim.server.bench, "_clock", lambda: begun + (time.monotonic() - begun) / 100)
    franka.act(Command(goal))
    franka.stop()
    assert sim.server.bench._target[2] > goal[2]


def test_reset_with_joints_goes_home(franka: FrankaRobot, sim: Sim) -> None:
    goal = franka.observe().pose.copy()
    goal[1] += 0.03
    franka.act(Command(goal))
    while np.abs(franka.observe().pose - goal).max() > 0.002:
        pass
    franka.reset(joints=True)
    np.testing.assert_allclose(franka.observe().pose[:3], [0.5, 0, 0.25], atol=0.006)


def test_the_emergency_stop_is_told_apart(franka: FrankaRobot, sim: Sim) -> None:
    pose = franka.observe().pose
    sim.faults(emergency_stop=True)
    with pytest.raises(RobotStopped, match="status 500: the emergency stop is pressed; release it at the robot"):
        franka.act(Command(pose))
    np.testing.assert_allclose(franka.observe().pose, pose, atol=1e-3)  # it can still be read


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"garbage": True}, r"/getstate: answered '.*expected JSON with fields"),
        ({"nan_pose": True}, r"'pose' of its state: found \[nan.*expected 7 finite numbers"),
        ({"dropped": 1.0}, r"/getstate: no answer \("),
        ({"latency": 1.5}, r"/getstate: no answer \(it took too long\)"),
    ],
)
def test_what_a_broken_robot_says_is_an_error_that_names_it(
    franka: FrankaRobot, sim: Sim, faults: dict[str, Any], words: str
) -> None:
    sim.faults(**faults)
    with pytest.raises(RobotError, match=f"http://{sim.address}.*{words}"):
        franka.observe()


def test_a_robot_that_is_off_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RobotError, match=rf"http://127.0.0.1:{port}/getstate: no answer \(Connection refused\)"):
        FrankaRobot(FrankaConfig(f"127.0.0.1:{port}")).observe()


def test_some_dropped_calls_are_made_again(franka: FrankaRobot, sim: Sim) -> None:
    """Which ones is drawn from the seed of the simulation: once two in a row, never three."""
    sim.faults(dropped=0.2)
    for _ in range(100):
        franka.observe()


@contextmanager
def answering(answers: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Run a server of the generic protocol; yields its address, and the calls that reach it."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    calls: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            calls.append((self.path, body))
            content = json.dumps(answers.get(self.path, {})).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


STATE = {"pose": [0.5, 0, 0.1, 1, 0, 0, 0], "velocity": [0] * 6, "force": [1, 2, 3], "torque": [0] * 3, "gripper": 0.4}


def test_the_five_calls_of_the_generic_protocol() -> None:
    sent = {"pose": [0.5, 0, 0.11, 1, 0, 0, 0], "gripper": None}
    with answering({"/spaces": {"gripper": True}, "/observe": STATE, "/act": sent}) as (address, calls):
        robot = make_robot("http", {"url": f"http://{address}"})
        assert robot.spaces().gripper
        np.testing.assert_array_equal(robot.observe().force, [1, 2, 3])
        done = robot.act(Command(np.array([0.5, 0, 0.12, 1, 0, 0, 0]), 0.7))
        np.testing.assert_allclose(done.pose, sent["pose"])  # what it says that it was told, not what it was asked
        assert done.gripper is None
        robot.reset(joints=True)
        robot.stop()
        robot.close()
    assert calls == [
        ("/spaces", {}),
        ("/observe", {}),
        ("/act", {"pose": [0.5, 0, 0.12, 1, 0, 0, 0], "gripper": 0.7}),
        ("/reset", {"joints": True}),
        ("/stop", {}),
    ]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({k: v for k, v in STATE.items() if k != "force"}, "its state has no 'force'; found pose, velocity, torque"),
        ({**STATE, "velocity": [0, 0]}, r"'velocity' of its state: found \[0, 0\], expected 6 finite numbers"),
        ({**STATE, "gripper": "open"}, "'gripper' of its state: found open, expected 1 finite numbers"),
        ([1, 2], "expected JSON with fields"),
    ],
)
def test_a_wrong_answer_names_the_field(answer: Any, words: str) -> None:
    with (
        answering({"/observe": answer}) as (address, _),
        pytest.raises(RobotError, match=f"{address}/observe.*{words}"),
    ):
        make_robot("http", {"url": address}).observe()


@pytest.mark.parametrize(
    ("robot_type", "settings", "words"),
    [
        ("Frankas", {}, "unknown type of robot 'Frankas'.*Franka"),
        ("Franka", {}, "no robot_ip; a Franka needs it"),
        ("Franka", {"robot_ipp": "1.2.3.4"}, "robot_ipp.*robot_ip"),
        ("Franka", {"robot_ip": "ftp://robot"}, "robot_ip: found 'ftp://robot', expected the address"),
        ("no_such_module_anywhere:Arm", {}, "importing 'no_such_module_anywhere' failed"),
        ("json:Arm", {}, "json has no Arm"),
        ("json:JSONDecoder", {"robot_ip": "1.2.3.4"}, "does not take these settings"),
    ],
)
def test_a_wrong_robot_in_a_config_is_an_error(robot_type: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_robot(robot_type, settings)


def test_the_placeholder_of_the_printed_config_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"robot_ip: found ROBOT_IP, expected .*rewardlab robot-sim --port 5000"):
        make_robot("Franka", {"robot_ip": "ROBOT_IP"})


def test_addresses() -> None:
    assert split_address("172.16.0.1", 5000, "robot_ip") == ("172.16.0.1", 5000)
    assert split_address("http://robot:8080/", 5000, "url") == ("robot", 8080)
    assert split_address("[::1]:7000", 5000, "robot_ip") == ("::1", 7000)
