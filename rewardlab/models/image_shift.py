"""DrQ's random shift: moves pictures by a few pixels and fills the gap with copies of the border."""

import torch
from torch import Tensor

SHIFT = 1 / 16  # fraction of the picture's size, in each direction


def random_shift(images: Tensor, generator: torch.Generator, shift: float = SHIFT) -> Tensor:
    """Shift each picture of [B, H, W, C] by a random amount, at most the fraction `shift` of its size."""
    batch, height, width, _ = images.shape
    reach = max(1, round(shift * min(height, width)))
    down, right = torch.randint(0, 2 * reach + 1, (2, batch), generator=generator) - reach
    rows = (down[:, None] + torch.arange(height)).clamp(0, height - 1)
    columns = (right[:, None] + torch.arange(width)).clamp(0, width - 1)
    return images[torch.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]]
