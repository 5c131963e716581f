"""Small models and toy frames: a red square is a success, a blue one is not."""

import itertools
from multiprocessing.synchronize import Event
from pathlib import Path

import torch
from tensordict import TensorDict
from torch import Tensor

from rewardlab.rewards import BinaryRewardClassifier, ResNetRewardModel


def make_frames(count: int, size: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(0, 60, (count, size, size, 3), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 2 == 0
    for image, label in zip(images, labels, strict=True):
        row, column = torch.randint(0, size - 12, (2,), generator=generator).tolist()
        image[row : row + 12, column : column + 12, 0 if label else 2] = 230
    return images, labels


def make_batch(count: int, size: int = 32) -> TensorDict:
    images, labels = make_frames(count, size)
    columns = {
        "observation": {"state": torch.zeros(count, 2), "images": {"base_camera": images}},
        "reward": torch.arange(count).float(),
        "success": labels,
    }
    return TensorDict(columns, batch_size=[count])


SMALL = {"image_size": (3, 32, 32), "hidden_dim": 16, "width": 8}


def small_resnet(**settings: object) -> ResNetRewardModel:
    return ResNetRewardModel(**{"arch": "resnet10", **SMALL, **settings})  # type: ignore[arg-type]


def small_binary(**settings: object) -> BinaryRewardClassifier:
    return BinaryRewardClassifier(**{**SMALL, "num_spatial_blocks": 4, **settings})  # type: ignore[arg-type]


def save_again_and_again(path: Path, saved: Event) -> None:
    """Does nothing but save, until it is killed; sets `saved` after the first time."""
    model = small_resnet()
    for number in itertools.count():
        model.threshold = 0.1 + (number % 8) / 10
        model.save(path)
        if number == 0:
            saved.set()
