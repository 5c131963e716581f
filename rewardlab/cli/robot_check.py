"""`rewardlab robot-check`: is a robot of a config ready to be used? The first command for a new robot."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.cli.command import CONFIG_HELP, OVERRIDES_HELP, Commands, add_command, path_name
from rewardlab.screen import PatientStream, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from rewardlab.envs.robot.check import Check

WIDTH = 22  # of the names of checks on the screen
QUESTION_NEEDS_TERMINAL = "motions are skipped: there is no terminal to ask whether the robot may move (--yes agrees)"


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab robot-check my_robot.yaml --yes"
    summary = "check robots and their cameras, with motions of millimetres, before they are used"
    command = add_command(commands, "robot-check", summary, example, _check)
    command.add_argument("config", metavar="CONFIG", help=CONFIG_HELP)
    command.add_argument("--yes", action="store_true", help="the robots may move: ask nothing")
    command.add_argument(
        "--out", metavar="DIR", type=path_name, default="robot_check", help="where reports go (default: %(default)s)"
    )
    command.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=OVERRIDES_HELP)


def _check(arguments: argparse.Namespace) -> int:
    import dataclasses

    from rewardlab.config import load_config
    from rewardlab.config.robots import attach_robots, is_robot
    from rewardlab.envs.robot.check import check_robot, verdict_of
    from rewardlab.envs.robot.options import read_options
    from rewardlab.errors import ConfigError
    from rewardlab.reports.robot_report import write_robot_report

    # Data and reward models of the config may come later: a robot is checked before anything is collected.
    cfg = load_config(arguments.config, arguments.overrides, check_files=False)
    env = attach_robots(cfg).env.train
    options = read_options(env.id, env.options) if is_robot(env) else None
    if options is None or not options.robots:
        raise ConfigError(
            f"'{arguments.config}' names no robot. Expected cluster.node_groups with hardware {{type: Franka, configs: "
            "[{robot_ip: 172.16.0.1}]}, and env.train.id=robot/<task>"
        )
    directory = Path(arguments.out) / time.strftime("%Y%m%d-%H%M%S")
    found: dict[str, list[Check]] = {}
    for robot in options.robots:
        address = str(robot.get("robot_ip", robot.get("url", "")))
        title = f"{robot['type']} {address}".strip()
        say(title)
        checks = found[title] = []
        for check in check_robot(env, dataclasses.replace(options, robots=(robot,)), _agreed(arguments.yes)):
            checks.append(check)
            _show(check)
    facts = {
        "config": arguments.config,
        "task": env.id,
        "target_ee_pose": str(list(env.target_ee_pose or ())),
        "control_hz": f"{options.control_hz:g}",
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    directory.mkdir(parents=True, exist_ok=True)
    report = write_robot_report(directory, f"robot-check of {arguments.config}", found, facts)
    verdict = verdict_of([check for checks in found.values() for check in checks])
    words = {"passed": "all checks passed", "failed": "not ready: see what failed", "skipped": "not all was checked"}
    say(f"{words[verdict]}\nreport: {report}")
    return 0 if verdict == "passed" else 1


def _agreed(yes: bool) -> "Callable[[str], bool]":
    def ask(question: str) -> bool:
        if yes:
            return True
        if not sys.stdin.isatty():
            say(f"  {QUESTION_NEEDS_TERMINAL}")
            return False
        say(f"  {question} [y/N] ", end="")
        PatientStream().flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return ask


def _show(check: "Check") -> None:
    mark = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}[check.verdict]
    first, *others = check.found.splitlines() or [""]
    say(f"  {mark:8}{check.name:{WIDTH}}  {first}")
    for line in others:
        say(f"  {'':{8 + WIDTH}}  {line}")
    PatientStream().flush()
