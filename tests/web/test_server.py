"""The page server: who it answers, what it refuses, and how it ends."""

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from robot_runs import simulated_robot

from rewardlab.envs.robot.protocol import Command
from rewardlab.envs.robot.robots import make_robot
from rewardlab.errors import ConfigError
from rewardlab.live_state import LiveEnv, LiveState
from rewardlab.web import server as server_module
from rewardlab.web.live_page import LivePage
from rewardlab.web.server import PageServer


@pytest.fixture(autouse=True)
def no_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LAST_LOOK", 0.0)


@pytest.fixture
def live() -> LiveState:
    return LiveState("a run")


@pytest.fixture
def robot(live: LiveState) -> LiveEnv:
    return live.env("robot", controls=True)


@pytest.fixture
def server(live: LiveState, robot: LiveEnv) -> Iterator[PageServer]:
    with serve(live) as server:
        yield server


def serve(live: LiveState, *, host: str = "127.0.0.1", port: int = 0) -> PageServer:
    return PageServer(LivePage(live).routes(), host=host, port=port, key="runner.page")


def call(server: PageServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, Any]:
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=20)
    sent = {"Content-Type": "application/json"} if body is not None else {}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    connection.request(method, path, content, sent)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, answer.headers


def test_the_page_loads_nothing_from_elsewhere(server: PageServer) -> None:
    status, page, headers = call(server, "GET", "/")
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    files = re.findall(r'(?:href|src)="([^"]+)"', page.decode())
    assert len(files) == 3
    for file in files:
        status, content, _ = call(server, "GET", f"/{file}")
        assert status == 200
        assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", content)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8008", "127.0.0.1.evil.example", "10.0.0.1", "", "["])
@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/state"), ("POST", "/stop")])
def test_other_names_of_the_server_are_refused(server: PageServer, host: str, method: str, path: str) -> None:
    assert call(server, method, path, {} if method == "POST" else None, Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_names_of_this_machine_are_answered(server: PageServer, host: str) -> None:
    """Also with another port, as through `ssh -L`."""
    assert call(server, "GET", "/state", Host=host)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
    ],
)
def test_pages_of_others_cannot_press_anything(server: PageServer, robot: LiveEnv, headers: dict[str, str]) -> None:
    for path, body in (("/stop", {}), ("/press", {"env": 0, "event": "success"}), ("/motion", {"env": 0})):
        assert call(server, "POST", path, body, **headers)[0] == 403
    assert robot.take_events() == []


def test_the_own_page_can(server: PageServer, robot: LiveEnv) -> None:
    headers = {"Origin": server.url.rstrip("/"), "Sec_Fetch_Site": "same-origin"}
    assert call(server, "POST", "/press", {"env": 0, "event": "success"}, **headers)[0] == 200
    assert call(server, "POST", "/motion", {"env": 0, "motion": [0, 0, 1, 0, 0, 0, 0]}, **headers)[0] == 200
    assert robot.take_events() == ["success"]
    assert call(server, "POST", "/stop", {}, **headers)[:2] == (200, b'{"problems":[]}')
    assert robot.take_events() == ["stop"]


def test_every_request_needs_the_token_where_other_machines_reach_the_server(live: LiveState, robot: LiveEnv) -> None:
    with serve(live, host="0.0.0.0") as server:
        path = urlsplit(server.url).path
        assert len(path) > 20
        for wrong in ("/", path[:-2] + "/", path.upper() + "x/", "//", "/static/../"):
            assert call(server, "GET", f"{wrong}state")[0] == 403
            assert call(server, "POST", f"{wrong}stop", {})[0] == 403
        assert call(server, "GET", "/static/live.js")[0] == 403
        assert robot.take_events() == []
        assert call(server, "GET", path, Host="robot-pc.lab")[0] == 200
        assert call(server, "GET", f"{path}static/live.js")[0] == 200
        assert call(server, "POST", f"{path}stop", {}, Origin="http://evil.example")[0] == 403
        assert call(server, "POST", f"{path}stop", {})[0] == 200
        assert robot.take_events() == ["stop"]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/press", {"env": 0, "event": "stop"}, "event: found 'stop', expected one of success, failure, redo, resume"),
        ("/press", {"env": 7, "event": "success"}, "env: found '7'"),
        ("/press", {"env": -1, "event": "success"}, "env: found '-1'"),
        ("/press", {"env": 1, "event": "success"}, "a simulation is not moved by people"),
        ("/press", [], "expected a JSON object"),
        ("/press", b"{", "expected a JSON object"),
        ("/press", b" " * 20_000, "at most 10000 bytes"),
        ("/motion", {"env": 0, "motion": [1] * 6}, "motion: expected 7 numbers from -1 to 1"),
        ("/motion", b'{"env": 0, "motion": [NaN, 0, 0, 0, 0, 0, 0]}', "motion: expected 7 numbers from -1 to 1"),
        ("/motion", {"env": 0, "motion": [10**400, 0, 0, 0, 0, 0, 0]}, "motion: expected 7 numbers from -1 to 1"),
        ("/press", {"env": 10**3000, "event": "success"}, "env: found '1000"),
        ("/press", b"[" * 9_000, "expected a JSON object"),
        ("/motion", {"env": 0, "motion": ["1"] * 7}, "motion: expected 7 numbers from -1 to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(
    server: PageServer, live: LiveState, robot: LiveEnv, path: str, body: Any, words: str
) -> None:
    live.env("a simulation")
    status, answer, _ = call(server, "POST", path, body)
    assert status == 400
    assert words in answer.decode()
    assert robot.take_events() == []
    assert robot.motion() is None


def test_pictures_are_sent_once(server: PageServer, robot: LiveEnv) -> None:
    assert call(server, "GET", "/frame?env=0&camera=wrist")[0] == 404
    robot.show_frames({"wrist": np.full((8, 8, 3), 200, np.uint8)})
    status, jpeg, headers = call(server, "GET", "/frame?env=0&camera=wrist&after=")
    assert (status, jpeg[:2], headers["Content-Type"]) == (200, b"\xff\xd8", "image/jpeg")
    assert call(server, "GET", f"/frame?env=0&camera=wrist&after={headers['X-Frame-Number']}")[0] == 204
    robot.show_frames({"wrist": np.zeros((8, 8, 3), np.uint8)})
    assert call(server, "GET", f"/frame?env=0&camera=wrist&after={headers['X-Frame-Number']}")[0] == 200


def test_numbers_that_json_does_not_have_are_left_out(server: PageServer, robot: LiveEnv) -> None:
    robot.show(hz=float("nan"), p99=np.float32(0.5), phase="acting")
    _, answer, _ = call(server, "GET", "/state")
    assert json.loads(answer)["envs"][0]["values"] == {"hz": None, "p99": 0.5, "phase": "acting"}


def test_a_stop_reaches_the_robot_although_its_run_is_busy_elsewhere(live: LiveState) -> None:
    with simulated_robot() as simulated:
        robot = make_robot("Franka", {"robot_ip": simulated.address})
        live.env("robot", controls=True).on_stop(robot.stop)
        start = robot.observe().pose
        far = start.copy()
        far[2] += 0.2
        with serve(live) as server:
            robot.act(Command(far))  # and nobody steps after that
            assert call(server, "POST", "/stop", {})[1] == b'{"problems":[]}'
        assert np.abs(simulated.bench._target[:3] - far[:3]).max() > 0.05
        robot.close()


def test_a_stop_that_fails_is_reported(live: LiveState) -> None:
    with simulated_robot() as simulated:
        robot = make_robot("Franka", {"robot_ip": simulated.address})
    live.env("robot", controls=True).on_stop(robot.stop)
    with serve(live) as server:
        (problem,) = json.loads(call(server, "POST", "/stop", {})[1])["problems"]
    assert simulated.address in problem
    robot.close()


def test_a_stop_waits_for_no_other_request(server: PageServer, live: LiveState, robot: LiveEnv) -> None:
    """All threads of the server for pictures are busy."""
    release, busy = threading.Event(), threading.Barrier(41)

    class Slow(np.ndarray[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            busy.wait(20)
            release.wait(20)
            return np.zeros((8, 8, 3), np.uint8)

    robot.show_frames({str(i): np.zeros((8, 8, 3), np.uint8).view(Slow) for i in range(40)})
    askers = [threading.Thread(target=call, args=(server, "GET", f"/frame?env=0&camera={i}")) for i in range(40)]
    for asker in askers:
        asker.start()
    busy.wait(20)
    try:
        assert call(server, "POST", "/stop", {})[0] == 200
        assert robot.take_events() == ["stop"]
    finally:
        release.set()
        for asker in askers:
            asker.join()


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(server: PageServer, live: LiveState) -> None:
    port = urlsplit(server.url).port or 0
    with pytest.raises(ConfigError, match=f"runner.page.port: port {port} of 127.0.0.1 is taken.*choose another port"):
        serve(live, port=port)


def test_a_host_that_is_not_here_is_an_error(live: LiveState) -> None:
    for host in ("203.0.113.7", "a\0b", "x" * 70, "no such host"):
        with pytest.raises(ConfigError, match=r"runner.page.host, runner.page.port: .+:0 cannot be opened \("):
            serve(live, host=host)


def test_a_server_that_ended_has_freed_its_port_and_thread(live: LiveState) -> None:
    with serve(live) as first:
        port = urlsplit(first.url).port or 0
        waiting = socket.create_connection(("127.0.0.1", port))
        call(first, "GET", "/state")
    waiting.close()
    assert not any(thread.name == "page server" for thread in threading.enumerate())
    with serve(live, port=port) as second:
        assert call(second, "GET", "/state")[0] == 200
