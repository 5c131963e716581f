"""A classifier that a policy exploits, with and without co-training: true success, and false positives on the policy.

The classifier has seen the warm-up alone, so that frames a little beside the goal are rare in its data, and its
threshold is loose. Both runs begin with the same policy and the same classifier.

.venv/bin/python benchmarks/cotraining.py --seeds 0 1 2
"""

import argparse
import statistics
import time
from pathlib import Path

from rich.console import Console

from rewardlab.pipelines.demo import Demo, Scale
from rewardlab.reports.history import HISTORY, read_history

SCALE = Scale(classifier=("threshold.target_fpr=0.01",))
RUNS = {"without": "reward.cotrain=false", "with": "reward.cotrain=true"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark_cotraining"))
    arguments = parser.parse_args()
    print("| seed | co-training | minutes | success before | at the end | precision, last 10 iterations | FPR |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for seed in arguments.seeds:
        demo = Demo(arguments.out / f"seed_{seed}", seed, SCALE, Console(quiet=True))
        warm = demo.warm_up()
        before = demo.judge(warm)
        classifier = demo.train_classifier()
        for name, cotrain in RUNS.items():
            start = time.perf_counter()
            reward = f"reward.model.checkpoint_path={classifier}"
            last = demo.go_on(warm, "tabletop_ppo_mlp_resnet_reward", name, reward, cotrain)
            minutes = (time.perf_counter() - start) / 60
            rows = read_history(demo.out / name / HISTORY)
            audit = {
                key: statistics.mean(row[f"audit/{key}"] for row in rows[-10:] if f"audit/{key}" in row)
                for key in ("precision", "fpr")
            }
            shares = [before, demo.judge(last), audit["precision"], audit["fpr"]]
            print(f"| {seed} | {name} | {minutes:.1f} | {' | '.join(f'{s:.1%}' for s in shares)} |", flush=True)


if __name__ == "__main__":
    main()
