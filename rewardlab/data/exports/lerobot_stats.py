"""The statistics that a LeRobotDataset has of each feature: of each episode, and of all together."""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from rewardlab.data.episodes import Array

Stats: TypeAlias = dict[str, Array]

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
_MOST_FRAMES = 100  # of an episode, for the statistics of its pictures
_MOST_PIXELS = 150  # a side


def number_stats(values: Array) -> Stats:
    """Return the statistics of numbers [T] or [T, N], each as [1] or [N]."""
    return _stats(values.reshape(len(values), -1).astype(np.float64), len(values))


def picture_stats(frames: Array) -> Stats:
    """Return the statistics of pictures [T, H, W, 3] by colour, in [0, 1] and as [3, 1, 1]."""
    some = np.unique(np.linspace(0, len(frames) - 1, min(_MOST_FRAMES, len(frames))).round().astype(int))
    step = max(1, max(frames.shape[1:3]) // _MOST_PIXELS)
    pixels = frames[some][:, ::step, ::step].reshape(-1, 3) / 255.0
    return {
        name: value if name == "count" else value[:, None, None] for name, value in _stats(pixels, len(some)).items()
    }


def merge_stats(parts: Iterable[Stats]) -> Stats:
    """Return the statistics of all episodes from those of each.

    Quantiles cannot be had from quantiles: as in lerobot, lower ones are the least, upper ones the greatest of all.
    """
    parts = list(parts)
    counts = np.stack([part["count"] for part in parts])
    weights = (counts / counts.sum()).reshape(-1, *[1] * parts[0]["mean"].ndim)
    means = np.stack([part["mean"] for part in parts])
    mean = (weights * means).sum(axis=0)
    variances = np.stack([part["std"] for part in parts]) ** 2 + (means - mean) ** 2
    merged = {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": mean,
        "std": np.sqrt((weights * variances).sum(axis=0)),
        "count": counts.sum(axis=0),
    }
    for name, share in QUANTILES.items():
        extreme = np.min if share <= 0.5 else np.max
        merged[name] = extreme([part[name] for part in parts], axis=0)
    return merged


def _stats(rows: Array, count: int) -> Stats:
    quantiles = np.quantile(rows, list(QUANTILES.values()), axis=0)
    return {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0),
        "std": rows.std(axis=0),
        "count": np.array([count]),
        **dict(zip(QUANTILES, quantiles, strict=True)),
    }
