"""Random changes to training pictures that do not change their label. Never used outside training."""

import torch
import torch.nn.functional as F

SHIFT = 1 / 16  # of the picture's size, in each direction
JITTER = 0.2  # brightness, contrast and saturation, up and down


def augment(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Shift and recolour uint8 [B, H, W, 3], each picture by its own amount; gives float [B, 3, H, W] in [0, 1]."""
    picture = images.permute(0, 3, 1, 2).float() / 255
    return _recolour(_shift(picture, generator), generator).clamp(0, 1)


def _shift(picture: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Pad with the border's own pixels, then crop at a random place (DrQ's random shift)."""
    batch, _, height, width = picture.shape
    pad = max(1, round(SHIFT * min(height, width)))
    padded = F.pad(picture, (pad,) * 4, mode="replicate")
    top, left = torch.randint(0, 2 * pad + 1, (2, batch), generator=generator)
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    index = torch.arange(batch)[:, None, None]
    return padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _recolour(picture: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    brightness, contrast, saturation = 1 + JITTER * (2 * torch.rand(3, len(picture), 1, 1, 1, generator=generator) - 1)
    picture = picture * brightness
    mean = picture.mean(dim=(1, 2, 3), keepdim=True)
    picture = mean + contrast * (picture - mean)
    grey = picture.mean(dim=1, keepdim=True)
    return grey + saturation * (picture - grey)
