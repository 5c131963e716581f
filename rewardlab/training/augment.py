"""Data augmentation for training frames. Never used outside training."""

from collections.abc import Mapping

import torch

from rewardlab.models.image_preprocessor import ImageArray
from rewardlab.models.image_shift import random_shift

SHIFT = 1 / 8  # of the image size, in each direction; with half of it, classifiers of 40 episodes generalised worse
JITTER = 0.3  # largest relative change of brightness, contrast and saturation


def augment(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Shift and recolour images (uint8 [B, H, W, 3]), each by its own amount; returns float [B, 3, H, W] in [0, 1]."""
    picture = random_shift(images, generator, SHIFT).permute(0, 3, 1, 2).float() / 255
    return _recolour(picture, generator).clamp(0, 1)


def augment_cameras(images: Mapping[str, ImageArray], generator: torch.Generator) -> Mapping[str, ImageArray]:
    """Return the images of each camera augmented; those that are cut out already are still marked as that."""
    kind = type(images)
    return kind({camera: augment(torch.as_tensor(pictures), generator) for camera, pictures in images.items()})  # type: ignore[call-arg]


def _recolour(picture: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.rand(3, len(picture), 1, 1, 1, generator=generator, device=picture.device)
    brightness, contrast, saturation = 1 + JITTER * (2 * drawn - 1)
    picture = picture * brightness
    mean = picture.mean(dim=(1, 2, 3), keepdim=True)
    picture = mean + contrast * (picture - mean)
    grey = picture.mean(dim=1, keepdim=True)
    return grey + saturation * (picture - grey)
