"""DrQ's random shift: moves pictures by a few pixels and fills the gap with copies of the border."""

import torch
from torch import Tensor

SHIFT = 1 / 16  # fraction of the picture's size, in each direction


def random_shift(images: Tensor, generator: torch.Generator, shift: float = SHIFT) -> Tensor:
    """Shift each picture of [B, H, W, C] by a random amount, at most the fraction `shift` of its size."""
    batch, height, width, _ = images.shape
    reach = max(1, round(shift * min(height, width)))
    device = images.device
    down, right = torch.randint(0, 2 * reach + 1, (2, batch), generator=generator, device=device) - reach
    rows = (down[:, None] + torch.arange(height, device=device)).clamp(0, height - 1)
    columns = (right[:, None] + torch.arange(width, device=device)).clamp(0, width - 1)
    return images[torch.arange(batch, device=device)[:, None, None], rows[:, :, None], columns[:, None, :]]
