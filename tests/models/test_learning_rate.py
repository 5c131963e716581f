"""The learning-rate schedule: constant, or a warm-up and a cosine, from any position in the run."""

import math

import pytest
import torch

from rewardlab.models.learning_rate import RunSchedule


def make(schedule: str, lr: float = 1.0) -> tuple[torch.optim.Optimizer, RunSchedule]:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    return optimizer, RunSchedule(optimizer, schedule)


def rate(schedule: str, done: float, lr: float = 1.0, warm_up: float | None = None) -> float:
    optimizer, scheduler = make(schedule, lr)
    scheduler.set_progress(done, warm_up)
    assert scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]]
    return float(optimizer.param_groups[0]["lr"])


def test_rates_warm_up_and_fall_to_a_tenth_or_stay() -> None:
    assert rate("cosine", 0) == pytest.approx(0.1)
    assert rate("cosine", 0.05) == pytest.approx(1.0, abs=0.01)
    assert rate("cosine", 0.5) == pytest.approx(0.55)
    assert rate("cosine", 1.0) == pytest.approx(0.1)
    assert rate("cosine", 1.2) == rate("cosine", 1.0)
    assert rate("constant", 0.7, lr=0.3) == 0.3


def test_rates_are_those_of_the_formula_to_the_bit() -> None:
    for step in range(0, 1001, 7):
        done = step / 1000
        cosine = 0.1 + 0.45 * (1 + math.cos(math.pi * done))
        assert rate("cosine", done, lr=3e-4) == 3e-4 * min(cosine, 0.1 + done / 0.05)
        first = (step + 1) / 50
        assert rate("cosine", done, lr=3e-4, warm_up=first) == 3e-4 * min(cosine, first)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_resumed_run_uses_the_configured_rate_not_that_of_the_checkpoint(schedule: str) -> None:
    optimizer, scheduler = make(schedule, lr=0.5)
    stored = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=7.0).state_dict()  # before there was a schedule
    optimizer.load_state_dict(stored)
    scheduler.set_progress(0.5)
    assert optimizer.param_groups[0]["lr"] == rate(schedule, 0.5, lr=0.5)


def test_it_can_be_set_before_the_first_optimizer_step(recwarn: pytest.WarningsRecorder) -> None:
    optimizer, scheduler = make("cosine")
    assert optimizer.param_groups[0]["lr"] == 1.0
    for done in (0.0, 0.1, 0.05):
        scheduler.set_progress(done)
    assert not recwarn.list
