"""report.html of `rewardlab robot-check`: what was checked of each robot, with a picture of each camera."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rewardlab.data.atomic import replace_file
from rewardlab.envs.robot.check import Check, verdict_of
from rewardlab.reports.page import frame_png, write_page

Checks = Mapping[str, Sequence[Check]]  # by the name of the robot


def write_robot_report(directory: Path, title: str, checks: Checks, facts: Mapping[str, str]) -> Path:
    """Write the report, and each picture beside it as a PNG; return the path of the report."""
    every = [check for robot in checks.values() for check in robot]
    for number, robot in enumerate(checks.values()):
        for check in robot:
            if check.frame is not None:
                name = check.name.replace(", ", "_").replace("/", "_")
                replace_file(directory / f"robot{number}_{name}.png", frame_png(check.frame))
    return write_page(
        directory / "report.html",
        "robot_check.html",
        title=title,
        robots=checks,
        counts={
            verdict: sum(check.verdict == verdict for check in every) for verdict in ("passed", "failed", "skipped")
        },
        verdict=verdict_of(every),
        cautions=[
            f"{robot}: {c.name}: {c.found}" for robot, found in checks.items() for c in found if c.verdict == "failed"
        ],
        facts=facts,
    )
