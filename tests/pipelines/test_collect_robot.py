"""Recording a robot: against the simulated one, over its real protocol."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from rich.console import Console

import rewardlab
from rewardlab.cli import main
from rewardlab.config import config_from_mapping, load_config
from rewardlab.data.recordings import read_recording
from rewardlab.envs.robot.http_client import HttpClient
from rewardlab.envs.robot_sim.server import SimOptions, SimServer
from rewardlab.envs.scripted import ScriptedExpert
from rewardlab.errors import ConfigError
from rewardlab.live_state import LiveState
from rewardlab.pipelines import collect

SPEED, HOLD = 20, 3
CONFIG = Path(__file__).parents[2] / "examples" / "embodiment" / "config" / "realworld_collect_data.yaml"

pytestmark = pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")


@pytest.fixture(scope="module")
def server() -> Iterator[SimServer]:
    one = SimServer(SimOptions(port=0, speed=SPEED, image_size=32))
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield one
    one.shutdown()
    one.close()


@pytest.fixture
def config(server: SimServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped config, with the address of the robot written in as users do."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "robot.yaml"
    file.write_text(CONFIG.read_text().replace("ROBOT_IP", server.address))
    return file


FAST = [
    f"env.train.options.control_hz={10 * SPEED}",
    f"env.train.success_hold_steps={HOLD}",
    "env.train.image_size=[3,32,32]",
    "runner.page.port=null",
]


def load(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pickle.loads(path.read_bytes())
    return found


def episodes_of(steps: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    ends = [number + 1 for number, step in enumerate(steps) if step["dones"]]
    assert ends[-1] == len(steps)
    return [steps[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def recording(logs: Path) -> Path:
    (found,) = logs.glob("*/data.pkl")
    return found


def test_a_script_collects_demonstrations(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(config), *FAST, "runner.num_data_episodes=3"]) == 0
    path = recording(tmp_path / "logs")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", path.parent.name)
    episodes = episodes_of(load(path))
    assert len(episodes) == 3
    for episode in episodes:
        labels = [step["infos"]["success"] for step in episode]
        assert labels[-HOLD:] == [True] * HOLD
        streaks = [sum(labels[max(0, t - HOLD + 1) : t + 1]) for t in range(len(labels))]
        assert HOLD not in streaks[:-1]  # it ends with the first that is so long
        for step in episode:  # labelled by being there in this very frame
            state = step["next_observations"]["state"]
            assert step["infos"]["success"] == (np.abs(state[:3]).max() <= 0.005 + 1e-6)
            assert step["rewards"] == float(step["infos"]["success"])
            assert step["next_observations"]["wrist_camera"].shape == (32, 32, 3)
            assert np.abs(step["actions"]).max() <= 1
        assert episode[-1]["masks"] == 0.0  # terminated
    said = " ".join(capsys.readouterr().out.split())
    assert f"3 episodes (3 success, 0 failure) in {path.relative_to(tmp_path)}" in said
    assert f"next: rewardlab data process {path.relative_to(tmp_path)}" in said
    assert (path.parent / "contact_sheet.png").stat().st_size > 10_000


def test_at_the_step_limit_an_episode_is_a_failure(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limit = [*FAST, "runner.num_data_episodes=1", "env.train.max_episode_steps=4", "data.collection.save_dir=out"]
    assert main(["run", str(config), *limit]) == 0
    (episode,) = episodes_of(load(Path("out/data.pkl")))
    assert (len(episode), episode[-1]["masks"], episode[-1]["dones"]) == (4, 1.0, True)
    assert "1 episodes (0 success, 1 failure)" in " ".join(capsys.readouterr().out.split())


def test_more_episodes_are_added_only_if_asked_for(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--episodes", "1", "--out", "out", *FAST, "env.train.max_episode_steps=4"]
    assert main(["collect", str(config), *few]) == 0
    assert main(["collect", str(config), *few]) == 2
    words = capsys.readouterr().err
    assert "out already has 1 episodes. Choose another directory, or add to it with `rewardlab collect" in words
    assert main(["collect", str(config), *few, "--append"]) == 0
    first, second = episodes_of(load(Path("out/data.pkl")))
    assert not np.array_equal(first[0]["observations"]["state"], second[0]["observations"]["state"])


class Pressing(ScriptedExpert):
    """Moves as the script does, while a person presses buttons on the page, and a camera breaks."""

    live: ClassVar[LiveState]
    break_camera: ClassVar[Callable[[bool], None]]
    plan: ClassVar[list[str]] = ["redo", "failure", "success", "camera", "still", ""]

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        super().__init__(env)
        self._episode = self._step = 0

    def begin(self, fresh: Any) -> None:
        if fresh[0]:
            self._episode, self._step = self._episode + 1, 0

    def act(self, observation: Any) -> Any:
        self._step += 1
        event = self.plan[self._episode] if self._episode < len(self.plan) else ""
        if event == "camera":
            self.break_camera(self._step == 3)
        elif event == "still":
            return np.zeros((1, 3), np.float32)
        elif event and self._step == 3:
            (robot,) = self.live.envs
            robot.press(event)
        return super().act(observation)


def test_people_label_and_repeat_and_broken_episodes_are_not_kept(
    server: SimServer, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = server.address.rpartition(":")
    client = HttpClient(host, int(port), 5.0, "simulation")

    def break_camera(broken: bool) -> None:
        client.post("/sim/faults", {"camera_gone": ["wrist_camera"] if broken else []})
        if broken:
            threading.Timer(0.3, lambda: break_camera_again(False)).start()

    def break_camera_again(broken: bool) -> None:
        other = HttpClient(host, int(port), 5.0, "simulation")
        other.post("/sim/faults", {"camera_gone": ["wrist_camera"] if broken else []})
        other.close()

    live, console = LiveState("collecting"), Console(record=True, width=200, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    monkeypatch.setattr(Pressing, "live", live, raising=False)
    monkeypatch.setattr(Pressing, "break_camera", staticmethod(break_camera), raising=False)
    monkeypatch.setitem(sys.modules, "pressing", sys.modules[__name__])
    monkeypatch.setattr(collect, "_policy", lambda plan, env, seed, device: Pressing(env, seed))
    more = ["runner.num_data_episodes=4", "env.train.max_episode_steps=60", "data.collection.save_dir=out"]
    collect.run(load_config(str(config), [*FAST, *more]), console=console, live=live)
    client.close()
    failure, success, still, last = episodes_of(load(Path("out/data.pkl")))
    assert [len(episode) for episode in (failure, success, still)] == [3, 3, 60]
    assert [step["infos"]["success"] for step in failure] == [False] * 3
    assert [step["infos"]["success"] for step in success] == [False, False, True]  # the last frame alone
    assert (failure[-1]["masks"], success[-1]["masks"]) == (0.0, 0.0)
    assert all((step["actions"] == 0).all() for step in still)
    assert [step["infos"]["success"] for step in last][-HOLD:] == [True] * HOLD
    said = console.export_text()
    assert "4 episodes (2 success, 2 failure, 1 redo, 1 discarded) in out/data.pkl" in said
    assert "camera 'wrist_camera'" in said
    shown = live.snapshot()
    assert shown.outcomes == {"success": 2, "failure": 2, "redo": 1, "discarded": 1}


def start(config: Path, *words: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(Path(rewardlab.__file__).parents[1])}
    command = [sys.executable, "-m", "rewardlab.cli", "run", str(config), *FAST, *words]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_bytes(path: Path, count: int, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_collection_has_every_finished_episode(config: Path, number: int) -> None:
    process = start(
        config, "env.train.max_episode_steps=6", "data.collection.save_dir=out", "data.collection.episodes=99"
    )
    wait_for_bytes(Path("out/data.pkl"), 100_000, process)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    episodes = episodes_of(load(Path("out/data.pkl")))
    assert len(episodes) >= 2
    assert {len(episode) for episode in episodes} == {6}
    assert all(recorded.episode is not None for recorded in read_recording("out/data.pkl"))
    if number == signal.SIGINT:
        assert process.returncode == 130
        found = re.search(r"(\d+) episodes \(0 success, (\d+) failure\) in out/data\.pkl", " ".join(said.split()))
        assert found is not None
        assert int(found[1]) == len(episodes)
        assert len(episodes) - int(found[2]) in (0, 1)  # Ctrl-C may come after it is written, before it is counted


def test_robots_that_nobody_named_are_an_error_that_says_how_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(CONFIG), "runner.page.port=null"]) == 2
    assert "rewardlab robot-sim" in capsys.readouterr().err
    assert not list(tmp_path.glob("logs/*"))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"frames": "every:5"}, r"data\.collection\.frames: found every:5, but transitions have a picture of every"),
        ({"success_dir": "a"}, r"data\.collection\.success_dir: found a, but transitions go to one file"),
        ({"enabled": True}, r"data\.collection\.format: found transitions, which cannot tell"),
    ],
)
def test_keys_that_a_recording_cannot_have(keys: dict[str, Any], words: str) -> None:
    task = "train_policy" if "enabled" in keys else "collect"
    plan = {"format": "transitions", "episodes": 1, **keys}
    with pytest.raises(ConfigError, match=words):
        config_from_mapping({"runner": {"task": task}, "data": {"collection": plan}})


def test_keys_of_people_are_shown_at_the_start(config: Path) -> None:
    cfg = load_config(str(config), ["env.train.options.input=[keyboard,gamepad]"])
    console = Console(record=True, width=200, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    collect._print_keys(cfg.env.train, console)
    said = console.export_text()
    assert "keyboard: 1 success, 0 failure, r redo, space STOP" in said
    assert "gamepad: A success, B failure, X redo, Y STOP" in said
    assert json.dumps(cfg.data.collection.policy) == '"expert"'
