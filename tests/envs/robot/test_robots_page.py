"""What docs/robots.md says is so: its config, its commands, its table of options."""

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from sim_robot import Sim

from rewardlab.cli import main
from rewardlab.config import load_config
from rewardlab.config.robots import attach_robots
from rewardlab.envs.robot import check
from rewardlab.envs.robot.cameras import CameraConfig
from rewardlab.envs.robot.options import RobotOptions, read_options

PAGE = (Path(__file__).parents[3] / "docs/robots.md").read_text()


def defaults(options: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            found |= defaults(value, f"{prefix}{field.name}.")
        elif field.name != "robots":
            found[f"{prefix}{field.name}"] = list(value) if isinstance(value, tuple) else value
    return found


def test_the_options_of_the_page_are_those_there_are_with_their_defaults() -> None:
    said = {key: yaml.safe_load(value) for key, value in re.findall(r"^\| `([\w.<>]+)` \| `(.+?)` \|", PAGE, re.M)}
    assert said == defaults(RobotOptions()) | defaults(CameraConfig(), "cameras.<name>.")


def test_the_config_and_the_commands_of_the_page(
    sim: Sim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "SLOWEST", 0.1)  # of the control rate: how busy this machine is, is not the subject
    monkeypatch.setattr(check, "HOLD_SECONDS", 0.3)
    (block,) = re.findall(r"^```yaml\n(# my_robot.yaml\n.+?)^```", PAGE, re.M | re.S)
    Path("my_robot.yaml").write_text(block)
    env = attach_robots(load_config("my_robot.yaml", check_files=False)).env.train
    options = read_options(env.id, env.options)
    assert options.robots == ({"type": "Franka", "robot_ip": "127.0.0.1:5000"},)

    simulate, inspect = re.findall(r"^rewardlab (robot-\w+ .+)$", PAGE, re.M)
    assert simulate.endswith(f"--port {options.robots[0]['robot_ip'].rpartition(':')[2]}")
    with pytest.raises(SystemExit) as left:
        main([*shlex.split(simulate), "--help"])
    assert left.value.code == 0
    Path("my_robot.yaml").write_text(block.replace("127.0.0.1:5000", sim.address))
    assert main([*shlex.split(inspect), "--yes"]) == 0, capsys.readouterr().out
    assert list(Path("robot_check").glob("*/report.html"))
