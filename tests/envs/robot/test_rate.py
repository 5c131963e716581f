"""The control rate, on a clock that stands still while nobody sleeps."""

import pytest

from rewardlab.envs.robot.rate import ControlRate


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rate(clock: Clock) -> ControlRate:
    one = ControlRate(10, clock, clock.pass_by)
    one.begin()
    return one


def ticks(rate: ControlRate, clock: Clock, work: list[float]) -> list[float]:
    """Return when the ticks come, in seconds from the start, with so much work before each."""
    found = []
    for seconds in work:
        clock.pass_by(seconds)
        rate.wait()
        found.append(round(clock.now - 100, 6))
    return found


def test_work_that_is_shorter_than_a_period_does_not_move_the_ticks(rate: ControlRate, clock: Clock) -> None:
    assert ticks(rate, clock, [0.03, 0.09, 0.0, 0.05]) == [0.1, 0.2, 0.3, 0.4]
    assert rate.figures() == pytest.approx({"hz": 10, "p50": 0.1, "p99": 0.1})


def test_after_a_late_tick_the_next_ones_are_in_time_again(rate: ControlRate, clock: Clock) -> None:
    assert ticks(rate, clock, [0.13, 0.01, 0.01]) == [0.13, 0.2, 0.3]


def test_after_a_pause_a_command_has_a_whole_period_to_take_effect(rate: ControlRate, clock: Clock) -> None:
    """A learner that pauses between steps must not see the state from before its action as the one after it."""
    assert ticks(rate, clock, [0.05, 2.0, 0.05]) == [0.1, 2.2, 2.3]


def test_hours_of_ticks_do_not_drift(rate: ControlRate, clock: Clock) -> None:
    assert ticks(rate, clock, [0.033] * 36_000)[-1] == pytest.approx(3600, abs=1e-6)


def test_the_time_before_a_start_is_no_period(rate: ControlRate, clock: Clock) -> None:
    ticks(rate, clock, [0.0, 0.0])
    clock.pass_by(50)
    rate.begin()
    ticks(rate, clock, [0.0, 0.0])
    assert list(rate.periods) == pytest.approx([0.1, 0.1])
