"""The physics of the simulated robot, tick by tick, on a clock that a test moves."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from rewardlab.envs.robot.protocol import Floats
from rewardlab.envs.robot_sim.bench import HOME, TARGET, Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench("peg_insertion", speed=100.0)
    one.start()
    yield one
    one.close()


def move(bench: Bench, pose: Floats, tolerance: float = 0.002) -> bool:
    """Move, and return whether it arrived within ten simulated seconds."""
    end = bench.measured.tick + 200
    while bench.measured.tick < end:
        bench.move_to(pose)  # again and again: without commands, time stands still after a while
        if np.abs(bench.measured.pose[:3] - pose[:3]).max() < tolerance:
            return True
        time.sleep(0.001)
    return False


def above(height: float, aside: float = 0.0) -> Floats:
    pose = TARGET.copy()
    pose[:3] += aside, 0, height
    return pose


def test_the_peg_goes_into_the_hole_at_the_target(bench: Bench) -> None:
    assert move(bench, above(0.08))
    assert not bench.truth()["success"]
    assert move(bench, TARGET)
    assert bench.truth()["success"]


def test_beside_the_hole_the_peg_is_held_up_and_pushes(bench: Bench) -> None:
    assert move(bench, above(0.08, aside=0.03))
    assert not move(bench, above(0.0, aside=0.03))
    assert not bench.truth()["success"]
    assert bench.measured.force[2] > 5  # N, upwards
    assert bench.measured.pose[2] > TARGET[2] + 0.01


def test_it_holds_where_it_is_stopped(bench: Bench) -> None:
    bench.move_to(above(0.0))
    bench.hold()
    where = bench.measured.pose.copy()
    tick = bench.measured.tick
    while bench.measured.tick < tick + 20:
        time.sleep(0.001)
    assert np.abs(bench.measured.pose - where).max() < 0.003


def test_home_is_where_it_began_with_the_peg_in_its_gripper(bench: Bench) -> None:
    assert move(bench, above(0.08, aside=0.03))
    bench.move_gripper(1.0)
    while bench.truth()["held"]:
        time.sleep(0.001)
    assert bench.go_home()
    np.testing.assert_allclose(bench.measured.pose[:3], HOME[:3], atol=0.006)
    assert bench.truth()["held"]


def test_while_nothing_is_asked_of_it_time_stands_still(bench: Bench) -> None:
    move(bench, above(0.1))
    while True:
        tick = bench.measured.tick
        time.sleep(0.05)  # five simulated seconds
        if bench.measured.tick == tick:
            break
    assert move(bench, above(0.12))
