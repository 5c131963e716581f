"""Generalised advantage estimation (Schulman et al. 2016)."""

import torch
from torch import Tensor


@torch.no_grad()
def gae(
    reward_TN: Tensor,
    value_TN: Tensor,
    next_value_TN: Tensor,
    terminated_TN: Tensor,
    truncated_TN: Tensor,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns. `next_value` is the value of the state that truly followed.

    Termination means that nothing follows: its `next_value` is not read. Truncation means that the episode would have
    gone on: its `next_value` is bootstrapped from, but advantages do not flow back from the next episode.
    """
    following_TN = torch.where(terminated_TN, 0.0, next_value_TN)
    delta_TN = reward_TN + gamma * following_TN - value_TN
    decay_TN = gamma * lam * (~(terminated_TN | truncated_TN)).to(delta_TN.dtype)
    advantage_TN = torch.empty_like(delta_TN)
    advantage_N = torch.zeros_like(delta_TN[0])
    for t in reversed(range(len(delta_TN))):
        advantage_N = torch.addcmul(delta_TN[t], decay_TN[t], advantage_N, out=advantage_TN[t])
    return advantage_TN, advantage_TN + value_TN
