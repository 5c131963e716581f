"""Keeps the control rate of a robot with cameras, without learning; a loop that only sleeps runs before and after.

    .venv/bin/python benchmarks/robot_rates.py [--hz 10] [--seconds 60]

The simulated robot is a process of its own, in real time, as `rewardlab robot-sim` starts it. Prints a table of the
control period (median, p99), and exits with 1 if the p99 is more than 5 % above that of the rate, and of the bare loop.
"""

import argparse
import re
import subprocess
import sys
import time
from typing import Any

import numpy as np

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.robot.make import make_robot_env
from rewardlab.envs.robot.options import read_options

TARGET = (0.5, 0.0, 0.1, -3.14, 0.0, 0.0)
CAMERAS = ("base_camera", "wrist_camera")
EPISODE = 60  # steps, after which the robot moves to a new start
BAR = 1.05


def sleep_bare(hz: float, seconds: float) -> list[float]:
    """Return the periods of a loop that does nothing but sleep until the next tick."""
    periods, last = [], time.perf_counter()
    due = last
    for _ in range(round(seconds * hz)):
        due += 1 / hz
        time.sleep(max(0.0, due - time.perf_counter()))
        now = time.perf_counter()
        periods.append(now - last)
        last = now
    return periods


def control(address: str, hz: float, seconds: float) -> tuple[list[float], dict[str, float]]:
    """Return the control periods of a robot that is moved, and the environment's own figures."""
    cameras = {name: {"url": f"http://{{robot}}/camera/{name}.jpg"} for name in CAMERAS}
    options: dict[str, Any] = {
        "robots": [{"type": "Franka", "robot_ip": address}],
        "control_hz": hz,
        "cameras": cameras,
    }
    cfg = EnvConfig(id="robot/peg_insertion", target_ee_pose=TARGET, options=options)
    env = make_robot_env(cfg, read_options(cfg.id, cfg.options))
    periods: list[float] = []
    rng = np.random.default_rng(0)
    try:
        while len(periods) < seconds * hz:
            env.reset(seed=0)
            before = len(env._rate.periods)
            for _ in range(EPISODE):
                env.step(rng.uniform(-1, 1, 3))
            periods += list(env._rate.periods)[before:]
        return periods, env.figures()
    finally:
        env.close()


def row(name: str, periods: list[float], hz: float) -> str:
    p50, p99 = np.quantile(periods, (0.5, 0.99)).tolist()
    over = 100 * (p99 * hz - 1)
    milliseconds = " | ".join(f"{value * 1e3:.2f}" for value in (p50, p99, max(periods)))
    return f"| {name} | {1 / np.mean(periods):.3f} | {milliseconds} | {over:+.1f} % |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    hz, seconds = arguments.hz, arguments.seconds
    command = [sys.executable, "-m", "rewardlab.cli", "robot-sim", "--port", "0"]
    simulation = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert simulation.stdout is not None
        found = re.search(r"http://([\d.]+:\d+)", simulation.stdout.readline())
        assert found is not None
        before = sleep_bare(hz, seconds / 2)
        periods, figures = control(found[1], hz, seconds)
        after = sleep_bare(hz, seconds / 2)
    finally:
        simulation.terminate()
        simulation.communicate()
    print("| loop | Hz | median (ms) | p99 (ms) | longest (ms) | p99 above the period |\n|---|---|---|---|---|---|")
    print(row("sleep only, before", before, hz))
    print(row("robot with two cameras", periods, hz))
    print(row("sleep only, after", after, hz))
    print(f"\n{len(periods)} periods; changed by limits: {figures['clipped']:.0f}, stops: {figures['stops']:.0f}")
    bare = float(np.quantile(before + after, 0.99))
    return 0 if np.quantile(periods, 0.99) <= BAR * max(1 / hz, bare) else 1


if __name__ == "__main__":
    sys.exit(main())
