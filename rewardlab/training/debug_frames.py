"""Saves training frames as PNGs, cropped, augmented and resized as the network sees them, to check data and labels."""

import dataclasses
import warnings
from pathlib import Path

import torch

from rewardlab.data.images import write_png
from rewardlab.errors import StorageError
from rewardlab.training.augment import augment_cameras
from rewardlab.training.fit import Fit

LIMIT = 200  # frames


def save_training_frames(directory: Path, fit: Fit, limit: int = LIMIT) -> int:
    """Write the first frames of the first epoch to `success/` and `failure/` by their label; returns how many.

    Names say episode, frame and camera. A directory with pictures of an earlier run is left as it is, with a warning.
    """
    folders = {True: directory / "success", False: directory / "failure"}
    if any(folder.is_dir() and any(folder.iterdir()) for folder in folders.values()):
        warnings.warn(f"data.debug_save_dir: {directory} has pictures of an earlier run; none are added", stacklevel=2)
        return 0
    table, generator = fit.loader.table, torch.Generator().manual_seed(fit.cfg.seed)
    # Without normalisation, whose colours nobody can judge; the rest is the network's own preprocessing.
    prepare = dataclasses.replace(fit.network.preprocess, normalize=False)
    written: set[Path] = set()
    try:
        for batch in fit.loader.epoch(0):
            images = prepare.cut(batch.images)
            if fit.cfg.data.augment:
                images = augment_cameras(images, generator)
            pixels = (prepare(images).permute(0, 1, 3, 4, 2) * 255).round().byte().cpu().numpy()
            for row, cameras in zip(batch.rows, pixels, strict=True):
                episode = table.episodes[table.episode[row]].path
                name = f"{episode.parent.name}_{episode.stem}_frame{table.time[row]:03d}"
                place = folders[bool(table.label[row])] / name
                if len(written) == limit:
                    return limit
                if place not in written:  # a balanced epoch repeats frames of the rarer class
                    for camera, picture in zip(prepare.image_keys, cameras, strict=True):
                        write_png(place.with_name(f"{name}_{camera}.png"), picture)
                    written.add(place)
    except StorageError as error:
        raise StorageError(f"data.debug_save_dir: cannot write to {directory} ({error})") from error
    return len(written)
