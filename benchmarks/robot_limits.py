"""Sends random and adversarial actions to the simulated robot, and asks it what commands reached it.

    .venv/bin/python benchmarks/robot_limits.py [--actions 100000]

The server notes each command at its arrival: the corners of the box that they fill, and how far each is from the pose
that the client was told last. Prints a table; exits with 1 if a command was outside of the box or further than a step.
"""

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.robot.env import RobotEnv
from rewardlab.envs.robot.make import make_robot_env
from rewardlab.envs.robot.options import read_options
from rewardlab.envs.robot.protocol import RobotError
from rewardlab.envs.robot_sim.server import SimOptions, SimServer

TARGET = (0.5, 0.0, 0.1, -3.14, 0.0, 0.0)
AXES = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
ROUNDING = 1e-6  # metres or radians
KINDS = ("within bounds", "always the same way", "beyond bounds", "huge", "not finite", "wrong shape", "no numbers")
SHARES = (0.3, 0.3, 0.15, 0.1, 0.05, 0.05, 0.05)


class Outcome(NamedTuple):
    sent: Counter[str]
    refused: Counter[str]


def draw_actions(count: int, size: int, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield actions with their kind, one of KINDS."""
    rng = np.random.default_rng(seed)
    way = np.ones(size)
    for kind in rng.choice(KINDS, count, p=SHARES):
        if kind == "within bounds":
            yield kind, rng.uniform(-1, 1, size)
        elif kind == "always the same way":  # into the walls and corners of the box
            if rng.random() < 0.02:
                way = rng.choice((-1.0, 1.0), size)
            yield kind, way
        elif kind == "beyond bounds":
            yield kind, rng.normal(size=size) * 10
        elif kind == "huge":
            yield kind, rng.choice((-1, 1), size) * 10.0 ** rng.uniform(3, 300, size)
        elif kind == "not finite":
            action = rng.uniform(-1, 1, size)
            action[rng.integers(size)] = rng.choice((np.nan, np.inf, -np.inf))
            yield kind, action
        elif kind == "wrong shape":
            shapes = ((size + 1,), (size - 1,), (1, size), (), (0,), (size, size))
            yield kind, rng.uniform(-1, 1, shapes[rng.integers(len(shapes))])
        else:
            things = (None, "0", {}, np.full(size, None), np.zeros(size, object), ["x"] * size, np.ones(size) * 1j)
            yield kind, things[rng.integers(len(things))]


def step_all(env: RobotEnv, count: int, seed: int = 0) -> Outcome:
    """Step with each of these actions; those that are none must be refused."""
    env.reset(seed=seed)
    sent, refused = Counter[str](), Counter[str]()
    for kind, action in draw_actions(count, len(env.scale.axes), seed):
        try:
            *_, terminated, truncated, info = env.step(action)
            if terminated or truncated:  # by noise the robot may say that it is beyond its limits: nothing was sent
                env.reset()
                *_, terminated, truncated, info = env.step(action)
        except RobotError:
            refused[kind] += 1
            continue
        if terminated or truncated:
            raise RuntimeError(f"an episode ended: {info['message']}")
        sent[kind] += 1
    return Outcome(sent, refused)


def make_env(address: str, hz: float, **options: Any) -> RobotEnv:
    given = {"robots": [{"type": "Franka", "robot_ip": address}], "axes": list(AXES), "control_hz": hz, **options}
    cfg = EnvConfig(id="robot/peg_insertion", target_ee_pose=TARGET, options=given)
    return make_robot_env(cfg, read_options(cfg.id, cfg.options))


def violations(env: RobotEnv, statistics: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Return rows: what was limited, the largest that reached the server, the limit, and whether it was kept."""
    low: npt.NDArray[np.float64] = np.array(statistics["low"])
    high: npt.NDArray[np.float64] = np.array(statistics["high"])
    limits, rows = env.limits, []
    for axis, name in enumerate("xyz"):
        kept = low[axis] >= limits.low[axis] - ROUNDING and high[axis] <= limits.high[axis] + ROUNDING
        reached = f"{low[axis]:.4f} to {high[axis]:.4f}"
        rows.append((f"box, {name} (m)", reached, f"{limits.low[axis]:.4f} to {limits.high[axis]:.4f}", bool(kept)))
    for name, key, limit in (
        ("step (m)", "largest_step_from_answer", limits.step),
        ("turn in a step (rad)", "largest_turn_from_answer", limits.rotation_step),
    ):
        rows.append((name, f"{statistics[key]:.6f}", f"{limit:.6f}", bool(statistics[key] <= limit + ROUNDING)))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    server = SimServer(SimOptions(port=0, speed=20.0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = make_env(server.address, hz=2000.0, watchdog_seconds=None)
    start = time.monotonic()
    try:
        outcome = step_all(env, arguments.actions, arguments.seed)
        rows = violations(env, server.calls.statistics.values())
        commands = server.calls.statistics.values()["commands"]
    finally:
        env.close()
        server.shutdown()
        server.close()
    print(f"{arguments.actions:,} actions in {time.monotonic() - start:.0f} s, {commands:,} commands\n")
    print("| actions | sent within the limits | refused, nothing sent |\n|---|---|---|")
    for kind in KINDS:
        print(f"| {kind} | {outcome.sent[kind]:,} | {outcome.refused[kind]:,} |")
    print("\n| what reached the server | measured | limit | kept |\n|---|---|---|---|")
    for name, reached, limit, kept in rows:
        print(f"| {name} | {reached} | {limit} | {'yes' if kept else 'NO'} |")
    return 0 if all(kept for *_, kept in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
