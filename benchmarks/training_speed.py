"""Frames per second of training from files on disk, against the same steps on one batch that stays in memory.

    .venv/bin/python benchmarks/training_speed.py

Both augment, and make the same optimizer steps of the same network. Rounds alternate; the ratio is the median.

    .venv/bin/python benchmarks/training_speed.py layouts

Forward and backward through the encoder alone: pictures in memory with their colours last against colours first.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from rewardlab.config import config_from_mapping, load_config, text_override
from rewardlab.data import read_episodes
from rewardlab.data.frames import tabulate
from rewardlab.models.resnet import ResNet
from rewardlab.pipelines import collect
from rewardlab.rewards import BinaryRewardClassifier, ResNetRewardModel, SuccessClassifier
from rewardlab.training.fit import Fit

BATCH, STEPS, ROUNDS = 64, 12, 5


def episodes(place: Path, size: int) -> Path:
    overrides = [
        "data.collection.episodes=100",
        f"env.train.image_size=[3,{size},{size}]",
        text_override("data.collection.save_dir", str(place)),
    ]
    return collect.run(load_config("tabletop_pickcube", overrides), console=Console(quiet=True))


def compare(name: str, model: SuccessClassifier, place: Path, table: Table) -> None:
    cfg = config_from_mapping(
        {"runner": {"max_epochs": 1000}, "actor": {"global_batch_size": BATCH}}, check_files=False
    )
    fit = Fit(model.network, tabulate(read_episodes(place)), cfg, lambda weights: {})
    held = next(fit.loader.epoch(0))
    fit._step(held)

    def seconds(from_disk: bool, number: int) -> float:
        start = time.perf_counter()
        batches = fit.loader.epoch(number) if from_disk else iter([held] * STEPS)
        for _, batch in zip(range(STEPS), batches, strict=False):
            fit._step(batch)
        return time.perf_counter() - start

    times = [(seconds(True, n), seconds(False, n)) for n in range(ROUNDS)]
    ratios = sorted(memory / disk for disk, memory in times)
    speeds = [f"{BATCH * STEPS / statistics.median(column):,.0f}" for column in zip(*times, strict=True)]
    table.add_row(name, *speeds, f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})", "0.80x")


def layouts() -> None:
    table = Table("encoder", "frames/s, colours first", "colours last", "last / first (spread)")
    for arch, width, size in (("resnet10", 32, 64), ("resnet10", 32, 128), ("resnet18", 64, 128)):
        encoder = ResNet(arch, width=width)
        pixels = torch.rand(BATCH, 3, size, size)
        inputs = [pixels, pixels.contiguous(memory_format=torch.channels_last)]
        times = []
        for _ in range(ROUNDS + 1):
            times.append([])
            for images in inputs:
                start = time.perf_counter()
                encoder(images).mean().backward()
                times[-1].append(time.perf_counter() - start)
        ratios = sorted(first / last for first, last in times[1:])
        speeds = [f"{BATCH / statistics.median(column):,.0f}" for column in zip(*times[1:], strict=True)]
        spread = f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        table.add_row(f"{arch}, width {width}, {size}x{size}", *speeds, spread)
    Console(width=120).print(table)


def main() -> None:
    if sys.argv[1:] == ["layouts"]:
        return layouts()
    title = f"{torch.get_num_threads()} threads, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    table = Table("network", "frames/s from disk", "from memory", "disk / memory (spread)", "bar", title=title)
    with tempfile.TemporaryDirectory() as folder:
        for size in (64, 128):
            place = episodes(Path(folder, str(size)), size)
            shape = (3, size, size)
            compare(
                f"ResNet-10 width 32, {size}x{size}",
                ResNetRewardModel("resnet10", image_size=shape, width=32),
                place,
                table,
            )
            compare(
                f"spatial, width 32, {size}x{size}", BinaryRewardClassifier(image_size=shape, width=32), place, table
            )
    table.caption = f"load {os.getloadavg()[0]:.1f} at the end"
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
