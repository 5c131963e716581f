"""Speed of scoring against a plain forward of the same weights in torch, and how far the probabilities are apart.

    .venv/bin/python benchmarks/scoring.py

Every way sees the same uint8 frames and includes preprocessing. Rounds alternate between them, after a warm-up, and a
ratio is the median over rounds, of wall time and of CPU time. Each number of threads has a process of its own. Run it
on a quiet machine: with 2 threads on 2 cores that others use too, threads wait for each other, "plain ms" grows up to a
hundredfold, and the ratios then say nothing about speed.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from rewardlab.models.onnx_encoder import onnx_installed
from rewardlab.rewards import BinaryRewardClassifier, ResNetRewardModel, SuccessClassifier

THREADS = (1, 2)
BATCHES = {1: 60, 8: 30, 64: 9, 256: 5}  # batch -> rounds
BARS = {1: 1.5, 8: 1.0, 64: 1.4, 256: 1.4}
MODELS: dict[str, Callable[[], SuccessClassifier]] = {
    "resnet10 64x64": lambda: ResNetRewardModel(arch="resnet10", image_size=(3, 64, 64)),
    "resnet18 128x128": lambda: ResNetRewardModel(arch="resnet18", image_size=(3, 128, 128)),
    "binary_classifier 64x64": lambda: BinaryRewardClassifier(image_size=(3, 64, 64)),
}
BACKENDS = ("torch", "onnx") if onnx_installed() else ("torch",)


class Cost(NamedTuple):
    wall: float
    cpu: float


def measure(work: Callable[[Tensor], Tensor], images: Tensor) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    work(images)
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def frames(count: int, model: SuccessClassifier) -> Tensor:
    _, height, width = model.image_size
    return torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8)


def with_backend(make: Callable[[], SuccessClassifier], backend: str) -> SuccessClassifier:
    torch.manual_seed(0)
    model = make()
    model.network.train()(frames(16, model))  # running statistics as after training
    model.network.eval()
    model.use_backend(backend)  # type: ignore[arg-type]
    return model


def compare(make: Callable[[], SuccessClassifier], batch: int) -> tuple[dict[str, list[Cost]], float]:
    """Return the costs of plain torch and of each backend, by rounds, and the largest difference to plain torch."""
    models = {backend: with_backend(make, backend) for backend in BACKENDS}
    network = models["torch"].network

    def plain(images: Tensor) -> Tensor:
        with torch.inference_mode():
            return torch.sigmoid(network(images))

    ways = {"plain": plain} | {backend: model.probabilities for backend, model in models.items()}
    images = frames(batch, models["torch"])
    results = {name: [work(images) for _ in range(2)][-1] for name, work in ways.items()}  # warm-up
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(BATCHES[batch]):
        for name, work in ways.items():
            if batch < 64:
                work(images)  # brings the weights back into the cache, as when frames are scored one after the other
            costs[name].append(measure(work, images))
    return costs, max(float((results[name] - results["plain"]).abs().max()) for name in BACKENDS)


def ratio(costs: dict[str, list[Cost]], backend: str, kind: str) -> float:
    pairs = zip(costs["plain"], costs[backend], strict=True)
    return statistics.median(getattr(slow, kind) / getattr(fast, kind) for slow, fast in pairs)


def run(threads: int) -> None:
    torch.set_num_threads(threads)
    title = f"{threads} threads of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    columns = [f"{backend}, {kind}" for kind in ("wall", "CPU time") for backend in BACKENDS]
    table = Table("model", "batch", "plain ms", *columns, "bar", "apart (bar 1e-05)", title=title)
    for name, make in MODELS.items():
        for batch, bar in BARS.items():
            costs, apart = compare(make, batch)
            ratios = [ratio(costs, backend, kind) for kind in ("wall", "cpu") for backend in BACKENDS]
            plain = 1000 * statistics.median(cost.wall for cost in costs["plain"])
            table.add_row(
                name, str(batch), f"{plain:.1f}", *(f"{value:.2f}x" for value in ratios), f"{bar:.1f}x", f"{apart:.0e}"
            )
    table.caption = f"load {os.getloadavg()[0]:.1f} at the end"
    Console(width=140).print(table)


def main() -> None:
    if len(sys.argv) > 1:
        run(int(sys.argv[1]))
        return
    for threads in THREADS:
        subprocess.run([sys.executable, __file__, str(threads)], check=True)
    if "onnx" not in BACKENDS:
        print("ONNX Runtime is not installed: pip install 'rewardlab[onnx]'")


if __name__ == "__main__":
    main()
