"""What a run and its page share: events reach the robot that they are for, and a stop comes before everything else."""

import threading

import numpy as np
import pytest

from rewardlab import live_state
from rewardlab.live_state import KEPT_POINTS, LiveState


def test_a_stop_reaches_all_robots_and_a_label_only_one() -> None:
    live = LiveState()
    first, second = live.env("first", controls=True), live.env("second", controls=True)
    second.press("success")
    live.stop()
    live.resume()
    second.press("failure")
    assert first.take_events() == []  # stopped and let go on before the run looked
    assert second.take_events() == ["success", "failure"]
    live.stop()
    assert (first.take_events(), second.take_events()) == (["stop"], ["stop"])
    assert first.stopped
    live.resume()
    assert (first.take_events(), second.take_events()) == (["resume"], ["resume"])
    assert not first.stopped


def test_an_event_is_queued_before_the_robot_is_stopped() -> None:
    """Or the run would send a command between the two, which starts the robot again."""
    live = LiveState()
    robot = live.env("robot", controls=True)
    seen: list[list[str]] = []
    robot.on_stop(lambda: seen.append(robot.take_events()))
    live.stop()
    assert seen == [["stop"]]


def test_a_robot_that_cannot_be_stopped_does_not_keep_others_from_it() -> None:
    live, stopped = LiveState(), threading.Event()
    broken, slow, other = (live.env(name, controls=True) for name in ("broken", "slow", "other"))

    def fail() -> None:
        raise OSError("no route to host")

    broken.on_stop(fail)
    slow.on_stop(lambda: stopped.wait(20) or fail())  # answers when the one behind it has stopped
    other.on_stop(stopped.set)
    assert live.stop() == ["no route to host"]


def test_a_motion_ends_when_it_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(live_state.time, "monotonic", lambda: now)
    robot = LiveState().env("robot", controls=True)
    robot.hold([0, 0, 2, 0, 0, 0, 0])
    motion = robot.motion()
    assert motion is not None
    assert motion.tolist() == [0, 0, 1, 0, 0, 0, 0]
    now += 0.31
    assert robot.motion() is None


def test_letting_go_and_a_stop_end_a_motion_at_once() -> None:
    live = LiveState()
    robot = live.env("robot", controls=True)
    robot.hold([1, 0, 0, 0, 0, 0, 0])
    robot.hold([0] * 7)
    assert robot.motion() is None
    robot.hold([1, 0, 0, 0, 0, 0, 0])
    live.stop()
    assert robot.motion() is None


def test_long_curves_are_thinned_out_and_keep_their_newest_point() -> None:
    live = LiveState()
    for step in range(5 * KEPT_POINTS):
        live.add_metrics(step, {"loss": float(step), "broken": float("nan")})
    curves = live.curves()
    assert set(curves) == {"loss"}
    steps = [step for step, _ in curves["loss"]]
    assert len(steps) <= KEPT_POINTS
    assert steps[-1] == 5 * KEPT_POINTS - 1
    assert steps == sorted(steps)


def test_a_run_that_goes_back_draws_its_curve_again() -> None:
    live = LiveState()
    for step, value in ((10, 1.0), (20, 2.0), (30, 3.0), (20, 5.0)):
        live.add_metrics(step, {"loss": value})
    assert live.curves() == {"loss": [(10, 1.0), (20, 5.0)]}


def test_a_snapshot_is_a_copy() -> None:
    live = LiveState("a run")
    env = live.env("robot")
    env.show(hold=1)
    env.show_frames({"base": np.zeros((4, 4, 3), np.uint8)})
    live.count_episode("success")
    before = live.snapshot()
    env.show(hold=2)
    env.show_frames({"base": np.ones((4, 4, 3), np.uint8)})
    live.count_episode("success")
    after = live.snapshot()
    assert (before.envs[0].values, after.envs[0].values) == ({"hold": 1}, {"hold": 2})
    assert (before.envs[0].frame_number, after.envs[0].frame_number) == (1, 2)
    assert (before.outcomes, after.outcomes) == ({"success": 1}, {"success": 2})


def test_a_robot_that_is_attached_again_stays_stopped() -> None:
    """A run that goes back to a checkpoint builds its environments anew."""
    live = LiveState()
    live.env("robot", controls=True)
    live.stop()
    again = live.env("robot", controls=True)
    assert again.stopped
    assert again.take_events() == ["stop"]
    again.press("resume")
    assert not live.env("robot", controls=True).stopped
