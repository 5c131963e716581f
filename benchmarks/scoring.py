"""Speed of scoring against a plain forward of the same weights, and how far the answers are apart.

    .venv/bin/python benchmarks/scoring.py

Both see the same uint8 frames and include preprocessing. Rounds alternate, and the ratio is the median over rounds.
Other programs still distort it, two threads waiting for each other most of all: mind the load in the title.
"""

import os
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from rewardlab.rewards import BinaryRewardClassifier, ResNetRewardModel, SuccessClassifier

ROUNDS = 9
MODELS: dict[str, Callable[[], SuccessClassifier]] = {
    "ResNetRewardModel resnet18, 128x128": lambda: ResNetRewardModel(arch="resnet18", image_size=(3, 128, 128)),
    "ResNetRewardModel resnet10, 64x64": lambda: ResNetRewardModel(arch="resnet10", image_size=(3, 64, 64)),
    "BinaryRewardClassifier resnet10, 64x64": lambda: BinaryRewardClassifier(image_size=(3, 64, 64)),
}


def seconds(work: Callable[[Tensor], Tensor], images: Tensor) -> float:
    start = time.perf_counter()
    work(images)
    return time.perf_counter() - start


def compare(name: str, model: SuccessClassifier, batch: int, table: Table) -> None:
    _, height, width = model.image_size
    images = torch.randint(0, 256, (batch, height, width, 3), dtype=torch.uint8)
    warm = torch.randint(0, 256, (16, height, width, 3), dtype=torch.uint8)
    model.network.train()(warm)  # running statistics as after training
    model.network.eval()

    def plain(frames: Tensor) -> Tensor:
        with torch.inference_mode():
            return torch.sigmoid(model.network(frames))

    apart = float((plain(images) - model.probabilities(images)).abs().max())
    times = [(seconds(plain, images), seconds(model.probabilities, images)) for _ in range(ROUNDS)]
    ratios = sorted(slow / fast for slow, fast in times)
    speeds = [f"{batch / statistics.median(column):,.0f}" for column in zip(*times, strict=True)]
    spread = f"{statistics.median(ratios):.2f}x ({ratios[1]:.2f}-{ratios[-2]:.2f})"
    table.add_row(name, str(batch), *speeds, spread, "1.30x" if batch > 1 else "none", f"{apart:.0e}")


def main() -> None:
    title = f"{torch.get_num_threads()} threads, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    table = Table("model", "batch", "plain images/s", "ours", "ratio (spread)", "bar", "apart (bar 1e-03)", title=title)
    for name, make in MODELS.items():
        for batch in (1, 64, 256):
            torch.manual_seed(0)
            compare(name, make(), batch, table)
    table.caption = f"load {os.getloadavg()[0]:.1f} at the end"
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
