"""Advantages by hand."""

import pytest
import torch

from rewardlab.rl import gae

FALSE, TRUE = False, True


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)[:, None]


def test_three_steps_by_hand() -> None:
    advantage, returns = gae(
        column(1.0, 2.0, 3.0),
        column(10.0, 20.0, 30.0),
        column(20.0, 30.0, 40.0),
        column(FALSE, FALSE, FALSE).bool(),
        column(FALSE, FALSE, FALSE).bool(),
        gamma=0.5,
        lam=0.5,
    )
    # delta: 1 + 10 - 10 = 1; 2 + 15 - 20 = -3; 3 + 20 - 30 = -7. Each advantage adds a quarter of the next one.
    assert advantage.squeeze().tolist() == pytest.approx([1 - 3 / 4 - 7 / 16, -3 - 7 / 4, -7])
    assert torch.allclose(returns, advantage + column(10.0, 20.0, 30.0))


def test_truncation_bootstraps_and_termination_does_not_and_neither_lets_the_next_episode_through() -> None:
    terminated = torch.tensor([[FALSE, FALSE], [TRUE, FALSE], [FALSE, FALSE]])
    truncated = torch.tensor([[FALSE, FALSE], [FALSE, TRUE], [FALSE, FALSE]])
    value = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    # What follows a termination is not read, even if it is nonsense.
    next_value = torch.tensor([[2.0, 2.0], [torch.nan, 8.0], [5.0, 5.0]])
    advantage, _ = gae(torch.ones(3, 2), value, next_value, terminated, truncated, gamma=0.5, lam=1.0)
    last = 1 + 2.5 - 3
    ended, cut = 1 - 2, 1 + 4 - 2
    assert advantage[2].tolist() == pytest.approx([last, last])
    assert advantage[1].tolist() == pytest.approx([ended, cut])
    assert advantage[0].tolist() == pytest.approx([1 + 1 - 1 + 0.5 * ended, 1 + 1 - 1 + 0.5 * cut])


def test_with_lambda_1_returns_are_discounted_sums() -> None:
    reward = torch.rand(20, 4)
    nothing = torch.zeros(20, 4)
    never = nothing.bool()
    next_value = nothing.clone()
    next_value[-1] = 7.0
    _, returns = gae(reward, nothing, next_value, never, never, gamma=0.9, lam=1.0)
    by_hand = sum(0.9**t * reward[t] for t in range(20)) + 0.9**20 * 7.0
    assert torch.allclose(returns[0], by_hand)
