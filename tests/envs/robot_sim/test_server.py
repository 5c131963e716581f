"""The simulated robot answers as the server of a Franka does, with cameras and faults."""

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from rewardlab.cli import main
from rewardlab.envs.robot.poses import pose_of_angles
from rewardlab.envs.robot_sim.server import SimOptions, SimServer
from rewardlab.errors import ConfigError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def server() -> Iterator[SimServer]:
    one = SimServer(SimOptions(port=0, speed=20.0, image_size=32))
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield one
    one.shutdown()
    one.close()
    thread.join()


def ask(server: SimServer, path: str, body: Any = None, method: str = "POST") -> tuple[int, bytes]:
    host, port = server.server_address[:2]
    connection = http.client.HTTPConnection(str(host), port, timeout=10)
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request(method, path, content)
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def fields(server: SimServer, path: str, body: Any = None) -> Any:
    status, content = ask(server, path, body)
    assert status == 200, content
    return json.loads(content)


def test_the_state_has_the_fields_and_sizes_of_a_franka(server: SimServer) -> None:
    state = fields(server, "/getstate")
    sizes = {name: np.shape(value) for name, value in state.items()}
    assert sizes == {
        **{"pose": (7,), "vel": (6,), "force": (3,), "torque": (3,), "q": (7,), "dq": (7,)},
        **{"jacobian": (6, 7), "gripper_pos": ()},
    }
    assert np.linalg.norm(state["pose"][3:]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        *[("/getpos", "pose"), ("/getvel", "vel"), ("/getforce", "force"), ("/gettorque", "torque"), ("/getq", "q")],
        *[("/getdq", "dq"), ("/getjacobian", "jacobian"), ("/get_gripper", "gripper")],
    ],
)
def test_each_part_of_the_state_has_a_call(server: SimServer, path: str, field: str) -> None:
    assert set(fields(server, path)) == {field}


def test_angles_are_those_of_the_quaternion(server: SimServer) -> None:
    pose = fields(server, "/getpos_euler")["pose"]
    np.testing.assert_allclose(pose_of_angles(pose)[3:], fields(server, "/getpos")["pose"][3:], atol=1e-6)


@pytest.mark.parametrize(
    "path",
    [
        *["/open_gripper", "/close_gripper", "/close_gripper_slow", "/activate_gripper", "/reset_gripper"],
        *["/clearerr", "/startimp", "/stopimp", "/set_load", "/jointreset"],
    ],
)
def test_calls_without_a_body_answer_with_text(server: SimServer, path: str) -> None:
    status, content = ask(server, path)
    assert status == 200
    assert content.decode().replace(" ", "").isalpha()


def test_a_pose_is_moved_to_and_held(server: SimServer) -> None:
    goal = fields(server, "/getpos")["pose"]
    goal[0] += 0.03
    assert ask(server, "/pose", {"arr": goal}) == (200, b"Moved")
    while np.abs(np.subtract(fields(server, "/getpos")["pose"], goal)).max() > 0.002:
        pass


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/pose", {"arr": [0.5, 0, 0.2]}, "expected 7 finite numbers"),
        ("/pose", {"arr": [0.5, 0, 0.2, 0, 0, 0, 0]}, "quaternion has the length 0"),
        ("/pose", {"pose": []}, "expected JSON with a field 'arr'"),
        ("/pose", b"{", "the body is no JSON"),
        ("/sim/faults", {"latencyy": 1}, "unknown fault 'latencyy'"),
        ("/sim/faults", {"dropped": 2}, "dropped"),
    ],
)
def test_a_wrong_call_is_refused_in_words(server: SimServer, path: str, body: Any, words: str) -> None:
    status, content = ask(server, path, body)
    assert status == 400
    assert words in content.decode()


def test_what_moves_the_robot_is_a_post(server: SimServer) -> None:
    assert ask(server, "/jointreset", method="GET")[0] == 405
    assert ask(server, "/no_such_call")[0] == 404


@pytest.mark.parametrize("camera", ["base_camera", "wrist_camera"])
def test_cameras_send_pictures_that_differ(server: SimServer, camera: str) -> None:
    pictures = [ask(server, f"/camera/{camera}.jpg", method="GET")[1] for _ in range(2)]
    first, second = (cv2.imdecode(np.frombuffer(one, np.uint8), cv2.IMREAD_COLOR) for one in pictures)
    assert first.shape == (32, 32, 3)
    assert 0 < np.abs(first.astype(int) - second).mean() < 8
    assert first.std() > 10


def test_a_frozen_camera_repeats_itself_and_thaws(server: SimServer) -> None:
    fields(server, "/sim/faults", {"camera_frozen": ["wrist_camera"]})
    path = "/camera/wrist_camera.jpg"
    frozen = ask(server, path, method="GET")[1]
    assert ask(server, path, method="GET")[1] == frozen
    assert ask(server, "/camera/base_camera.jpg", method="GET")[1] != frozen
    fields(server, "/sim/faults", {"camera_frozen": False})
    assert ask(server, path, method="GET")[1] != frozen


def test_an_emergency_stop_holds_the_arm_and_refuses_motions(server: SimServer) -> None:
    goal = fields(server, "/getpos")["pose"]
    goal[2] -= 0.1
    ask(server, "/pose", {"arr": goal})
    fields(server, "/sim/faults", {"emergency_stop": True})
    status, content = ask(server, "/pose", {"arr": goal})
    assert status == 500
    assert b"emergency stop is pressed" in content
    assert server.bench._target[2] > goal[2]
    assert fields(server, "/sim/statistics")["refused"] == 1


def test_what_reached_it_is_noted(server: SimServer) -> None:
    pose = fields(server, "/getpos")["pose"]
    for step in (0.01, -0.02):
        ask(server, "/pose", {"arr": [pose[0] + step, *pose[1:]]})
    statistics = fields(server, "/sim/statistics", {"reset": True})
    assert statistics["commands"] == 2
    assert statistics["largest_step_from_answer"] == pytest.approx(0.02)
    assert statistics["high"][0] - statistics["low"][0] == pytest.approx(0.03)
    assert fields(server, "/sim/statistics")["commands"] == 0


def test_only_the_simulation_knows_the_truth(server: SimServer) -> None:
    truth = fields(server, "/sim/truth")
    assert truth["held"]
    assert not truth["success"]


def test_a_port_that_is_taken_is_an_error(server: SimServer) -> None:
    port = int(server.server_address[1])
    with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is taken by another program"):
        SimServer(SimOptions(port=port))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "juggling"], "unknown task of the simulated robot 'juggling'"),
        (["--fault", "latency"], "expected NAME=VALUE"),
        (["--fault", "gravity=2"], "unknown fault 'gravity'"),
    ],
)
def test_wrong_options_are_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robot-sim", "--port", "0", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_command_prints_a_config_that_names_it(tmp_path: Path) -> None:
    """The lines are a config: robot-check takes them as they are."""
    command = [sys.executable, "-m", "rewardlab.cli", "robot-sim", "--port", "0", "--speed", "20", "--image-size", "32"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split("http://")[1].split(",")[0]
        lines = []
        while not lines or "wrist_camera" not in lines[-1]:
            lines.append(process.stdout.readline())
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=20)
    assert "the simulated robot has ended" in rest
    config = tmp_path / "sim.yaml"
    config.write_text("".join(lines))
    from rewardlab.config import load_config
    from rewardlab.config.robots import attach_robots

    env = attach_robots(load_config(str(config), check_files=False)).env.train
    assert env.options["robots"] == [{"type": "Franka", "robot_ip": address}]
    assert env.options["control_hz"] == 200
