"""Running mean and standard deviation of everything seen so far."""

import torch
from torch import Tensor, nn

CLIP = 10.0  # standard deviations; as VecNormalize of Stable-Baselines3
_EPSILON = 1e-8


class RunningMeanStd(nn.Module):
    """Normalises by running statistics, which change only in `update` and are saved with the weights."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...] = (), clip: float = CLIP) -> None:
        super().__init__()
        self.clip = clip
        # In double precision: a float32 sum stops growing after some ten million samples.
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Add `values` [..., *shape] to the statistics: the parallel update of Chan et al. (1979)."""
        rows = values.reshape(-1, *self.mean.shape).double()
        if not len(rows):
            return
        total = self.count + len(rows)
        delta = rows.mean(0) - self.mean
        own, theirs = self.variance * self.count, rows.var(0, unbiased=False) * len(rows)
        self.variance.copy_((own + theirs + delta**2 * self.count * len(rows) / total) / total)
        self.mean.add_(delta * len(rows) / total)
        self.count.copy_(total)

    @property
    def std(self) -> Tensor:
        return (self.variance + _EPSILON).sqrt().float()

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.mean.float()).div_(self.std).clamp_(-self.clip, self.clip)
