"""The learning-rate schedule that classifier training and the RL algorithms share."""

import math

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

WARM_UP = 0.05  # fraction of a run
FINAL_RATE = 0.1  # fraction of the configured learning rate that is left at the end


class RunSchedule(LRScheduler):
    """Keeps the learning rate constant, or warms it up and then lowers it along a cosine to a tenth.

    Like torch's CosineAnnealingWarmRestarts it is told the position in the run instead of counting calls of `step`:
    environment steps come by the hundred, and a resumed run starts in the middle.
    """

    def __init__(self, optimizer: Optimizer, schedule: str) -> None:
        self.constant = schedule == "constant"
        self.factor = 1.0  # until the first `set_progress`, the rate is the configured one
        super().__init__(optimizer)

    def get_lr(self) -> list[float | Tensor]:
        return [rate * self.factor for rate in self.base_lrs]

    def set_progress(self, done: float, warm_up: float | None = None) -> None:
        """Set the rate for the fraction `done` of the run.

        `warm_up` is the largest factor that is allowed yet; by default it rises linearly from a tenth.
        """
        if not self.constant:
            cosine = FINAL_RATE + (1 - FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
            self.factor = min(cosine, FINAL_RATE + done / WARM_UP if warm_up is None else warm_up)
        self._last_lr = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = rate
