"""`rewardlab robot-check` against the simulated robot, healthy and with faults."""

import io
import os
import pty
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from rewardlab.cli import main
from rewardlab.envs.robot import check
from rewardlab.envs.robot_sim.faults import changed
from rewardlab.envs.robot_sim.server import SimOptions, SimServer

CONFIG = "realworld_peginsertion_rlpd_cnn_async"
SPEED = 20.0
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def server() -> Iterator[SimServer]:
    one = SimServer(SimOptions(port=0, speed=SPEED, image_size=32))
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield one
    one.shutdown()
    one.close()
    thread.join()


@pytest.fixture
def run(server: SimServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(check, "CAMERA_SECONDS", 0.2)
    monkeypatch.setattr(check, "HOLD_SECONDS", 0.3)
    monkeypatch.setattr(check, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(check, "SLOWEST", 0.1)  # of the control rate: how busy this machine is, is not the subject
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def call(*arguments: str, faults: dict[str, Any] | None = None, robots: str = "") -> tuple[int, str]:
        server.calls.faults = changed(server.calls.faults, faults or {})
        hardware = robots or f"[{{robot_ip: '{server.address}'}}]"
        status = main(
            [
                *("robot-check", CONFIG, "--out", str(tmp_path / "out")),
                f"cluster.node_groups=[{{hardware: {{type: Franka, configs: {hardware}}}}}]",
                *("env.train.options.control_hz=50", "env.train.options.patience_seconds=0.2"),
                *("env.train.options.watchdog_seconds=0.3", *arguments),
            ]
        )
        output = capsys.readouterr()
        return status, output.out + output.err

    return call


def reports(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "out").glob("*/report.html"))


def test_a_healthy_robot_passes_and_is_back_where_it_was(run: Run, server: SimServer, tmp_path: Path) -> None:
    before = server.bench.measured.pose
    status, output = run("--yes", "env.train.options.axes=[x,y,z,roll,pitch,yaw,gripper]")
    assert status == 0, output
    assert "all checks passed" in output
    assert np.abs(server.bench.measured.pose - before).max() < 0.006
    assert "asked for +1000 mm, sent +5.00, measured +" in output
    statistics = server.calls.statistics.values()
    assert statistics["largest_step_from_answer"] < 0.0085, "motions are of millimetres"

    (report,) = reports(tmp_path)
    text = report.read_text()
    for words in ("All checks passed", "motion, yaw", "watchdog", "data:image/png", CONFIG):
        assert words in text
    pictures = sorted(report.parent.glob("*.png"))
    assert [picture.name for picture in pictures] == ["robot0_camera_base_camera.png", "robot0_camera_wrist_camera.png"]
    assert cv2.imread(str(pictures[0])).shape == (32, 32, 3)


def test_without_a_terminal_nothing_moves_and_that_is_said(run: Run, server: SimServer) -> None:
    status, output = run()
    assert status == 1
    assert "motions are skipped: there is no terminal" in output
    assert "not all was checked" in output
    assert "control rate            " in output
    assert server.calls.statistics.values()["largest_step_from_answer"] < 0.003


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("\n", 1)])
def test_a_person_is_asked_before_the_robot_moves(
    run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(ours, answer.encode())
        found, output = run("env.train.options.axes=[z]")
    os.close(ours)
    assert found == status, output
    assert "by 5 mm to and fro along z? Keep a hand at its emergency stop. [y/N]" in output


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"garbage": True}, "FAILED  reachable"),
        ({"nan_pose": True}, "expected 7 finite numbers"),
        ({"camera_black": "wrist_camera"}, "camera 'wrist_camera': its picture is black"),
        ({"camera_frozen": "base_camera"}, "FAILED  camera, base_camera"),
        ({"camera_gone": True}, "status 503"),
        ({"emergency_stop": True}, "the emergency stop is pressed; release it at the robot"),
        ({"latency": 0.03}, "FAILED  latency"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_said(run: Run, tmp_path: Path, faults: dict[str, Any], words: str) -> None:
    status, output = run("--yes", "env.train.options.axes=[z]", faults=faults)
    assert status == 1
    assert words in output
    assert "not ready" in output
    assert "Not ready" in reports(tmp_path)[0].read_text()


def test_a_robot_that_is_not_where_the_config_says_is_not_moved(run: Run, server: SimServer) -> None:
    status, output = run("--yes", "env.train.target_ee_pose=[0.9, 0, 0.1, -3.14, 0, 0]")
    assert status == 1
    assert "FAILED  in the box" in output
    assert "30.0 cm outside of its workspace box" in output
    assert "no command is allowed outside of the box" in output
    assert server.calls.statistics.values()["commands"] == 1, "the stop at the end"


def test_axes_that_are_exchanged_are_found(run: Run, server: SimServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot whose x is our y moves millimetres the wrong way, and no further."""
    move_to = server.bench.move_to

    def exchanged(pose: Any) -> bool:
        here = server.bench.measured.pose
        moved = pose - here
        return move_to(here + np.concatenate((moved[[1, 0]], moved[2:])))

    monkeypatch.setattr(server.bench, "move_to", exchanged)
    status, output = run("--yes", "env.train.options.axes=[x]")
    assert status == 1
    assert "FAILED  motion, x" in output


def test_each_robot_is_checked(run: Run, server: SimServer) -> None:
    robots = f"[{{robot_ip: '{server.address}'}}, {{robot_ip: '127.0.0.1:9'}}]"
    status, output = run("--yes", "env.train.options.axes=[z]", robots=robots)
    assert status == 1
    assert "ok      motion, z" in output
    assert "FAILED  reachable" in output
    assert "Connection refused" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["robot-check", "tabletop_pickcube"], "'tabletop_pickcube' names no robot"),
        (["robot-check", CONFIG], "hardware: found ROBOT_IP, expected the address of your robot's server"),
    ],
)
def test_a_config_without_a_robot_is_an_error(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
