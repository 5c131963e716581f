"""DrQ's random shift: pictures moved by a few pixels, the border's own pixels filling the gap."""

import torch
from torch import Tensor

SHIFT = 1 / 16  # of the picture's size, in each direction


def random_shift(images: Tensor, generator: torch.Generator, shift: float = SHIFT) -> Tensor:
    """Shift [B, H, W, C] of any dtype, each picture by its own amount, at most the part `shift` of its size."""
    batch, height, width, _ = images.shape
    reach = max(1, round(shift * min(height, width)))
    down, right = torch.randint(0, 2 * reach + 1, (2, batch), generator=generator) - reach
    rows = (down[:, None] + torch.arange(height)).clamp(0, height - 1)
    columns = (right[:, None] + torch.arange(width)).clamp(0, width - 1)
    return images[torch.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]]
