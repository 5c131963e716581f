"""Fixtures: a simulated robot behind its real protocol, 20 times as fast as a real one, and environments of it."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.robot.env import RobotEnv
from rewardlab.envs.robot.make import make_robot_env
from rewardlab.envs.robot.options import read_options
from rewardlab.envs.robot.people import Queue

sys.path.insert(0, str(Path(__file__).parent))
from sim_robot import CAMERAS, SPEED, TARGET, MakeEnv, Sim, SimProcess


@pytest.fixture
def sim() -> Iterator[Sim]:
    one = Sim()
    yield one
    one.close()


@pytest.fixture
def sim_process() -> Iterator[SimProcess]:
    one = SimProcess()
    yield one
    one.kill()


@pytest.fixture
def make_env(sim: Sim) -> Iterator[MakeEnv]:
    """Builds environments of the simulated robot; keyword arguments are env.train.options. They are closed."""
    with ExitStack() as opened:

        def make(address: str = "", robot: dict[str, Any] | None = None, **options: Any) -> RobotEnv:
            given = {
                "robots": [robot or {"type": "Franka", "robot_ip": address or sim.address}],
                "control_hz": 10 * SPEED,
                "cameras": CAMERAS,
                "watchdog_seconds": None,
                "patience_seconds": 0.5,
                **options,
            }
            cfg = EnvConfig(id="robot/peg_insertion", target_ee_pose=TARGET, options=given)
            env = make_robot_env(cfg, read_options(cfg.id, cfg.options))
            opened.callback(env.close)
            return env

        yield make


@pytest.fixture
def person() -> Queue:
    """What a person presses; an environment reads it after `env.people.add(person)`."""
    return Queue()
