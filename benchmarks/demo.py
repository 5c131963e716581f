"""The demo on several seeds: true success after the warm-up, on the learned reward, on the true reward.

.venv/bin/python benchmarks/demo.py --seeds 0 1 2 3 4
"""

import argparse
import statistics
import time
from pathlib import Path

from rich.console import Console

from rewardlab.pipelines import demo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2, 3, 4))
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark_demo"))
    arguments = parser.parse_args()
    print(
        "| seed | minutes | success after the warm-up | on the learned reward | on the true reward | learned / true |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    ratios = []
    for seed in arguments.seeds:
        start = time.perf_counter()
        success = demo.run(arguments.out / f"seed_{seed}", seed=seed, console=Console(quiet=True)).success
        minutes = (time.perf_counter() - start) / 60
        ratios.append(success["learned"] / success["true"])
        shares = " | ".join(f"{success[name]:.1%}" for name in ("warm-up", "learned", "true"))
        print(f"| {seed} | {minutes:.1f} | {shares} | {ratios[-1]:.2f} |", flush=True)
    print(f"\nmedian of learned / true: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
