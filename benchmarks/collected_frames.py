"""What `data.collection.frames` saves in collecting, and what fewer pictures do to a classifier.

    .venv/bin/python benchmarks/collected_frames.py time [CONFIG] [key=value ...]
    .venv/bin/python benchmarks/collected_frames.py classifier

`time` collects the same 200 episodes with each choice, in turn, and prints CPU seconds of all processes. `classifier`
trains on 200 episodes of each choice, with the same number of optimizer steps, and on so few whole episodes that they
have as many pictures; it judges each on all frames of 200 other episodes, at the stored threshold.
"""

import argparse
import os
import tempfile
from pathlib import Path
from statistics import mean, median

from classifiers import judged
from rich.console import Console

from rewardlab.config import load_config, text_override
from rewardlab.data import summarize
from rewardlab.pipelines import collect, train_reward

CHOICES = ("all", "every:5", "last:10")
EPISODES = 200
NONE = "none"  # states only: what collecting costs without pictures
FEW = 40  # whole episodes with about as many pictures
QUIET = Console(quiet=True)


def collected(place: Path, config: str, frames: str, episodes: int, seed: int, more: tuple[str, ...] = ()) -> float:
    """Collect, and return the CPU seconds that it took."""
    overrides = [
        f"seed={seed}",
        f"data.collection.episodes={episodes}",
        f"data.collection.frames={frames}",
        text_override("data.collection.save_dir", str(place)),
        *more,
    ]
    cfg = load_config(config, overrides)
    start = cpu_seconds()
    collect.run(cfg, console=QUIET)
    return cpu_seconds() - start


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def compare_times(config: str, more: tuple[str, ...], rounds: int) -> None:
    seconds: dict[str, list[float]] = {choice: [] for choice in (*CHOICES, NONE)}
    with tempfile.TemporaryDirectory() as place:
        collected(Path(place, "warm"), config, "all", 4, 0, more)
        for number in range(rounds):
            for choice, times in seconds.items():
                kind = ("all", ("data.collection.cameras=[]",)) if choice == NONE else (choice, ())
                out = Path(place, f"{choice}_{number}")
                times.append(collected(out, config, kind[0], EPISODES, 0, (*more, *kind[1])))
        found = {choice: summarize(Path(place, f"{choice}_0")) for choice in seconds}
    print("| frames | pictures | MB | CPU seconds | of `all` | of what pictures cost |\n|---|---|---|---|---|---|")
    for choice, times in seconds.items():
        pictures = 0 if choice == NONE else found[choice].frames
        ratios = [a / b for a, b in zip(times, seconds["all"], strict=True)]
        drawing = [(a - c) / (b - c) for a, b, c in zip(times, seconds["all"], seconds[NONE], strict=True)]
        row = (choice, f"{pictures:,}", f"{found[choice].bytes / 1e6:.1f}", f"{median(times):.2f}")
        print(f"| {' | '.join(row)} | {median(ratios):.2f}x | {median(drawing):.2f}x |")


def compare_classifiers(seeds: list[int], more: tuple[str, ...]) -> None:
    print("| data | pictures | FPR | recall | accuracy | ROC-AUC |\n|---|---|---|---|---|---|", flush=True)
    for choice, episodes in (*((choice, EPISODES) for choice in CHOICES), ("all", FEW)):
        figures, pictures = [], []
        for seed in seeds:
            with tempfile.TemporaryDirectory() as place:
                data, test = Path(place, "data"), Path(place, "test")
                collected(data, "tabletop_pickcube", choice, episodes, 1000 + seed)
                collected(test, "tabletop_pickcube", "all", EPISODES, 2000 + seed)
                pictures.append(summarize(data).frames)
                overrides = [
                    f"seed={seed}",
                    "reward.model.width=8",
                    "runner.max_steps=400",
                    "runner.max_epochs=1000",
                    "runner.val_check_interval=5",
                    "runner.early_stop.patience=null",
                    text_override("data.data_path", str(data)),
                    text_override("runner.logger.log_path", str(Path(place, "run"))),
                    *more,
                ]
                figures.append(judged(train_reward.run(load_config("reward_training", overrides), console=QUIET), test))
        shares = [
            " ".join(f"{100 * (one[name] or 0):.2f}" for one in figures) + " %"
            for name in ("fpr", "recall", "accuracy")
        ]
        areas = " ".join(f"{one['roc_auc'] or 0:.4f}" for one in figures)
        print(
            f"| `{choice}`, {episodes} episodes | {mean(pictures):,.0f} | {' | '.join(shares)} | {areas} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("time", "classifier"))
    parser.add_argument("config", nargs="?", default="tabletop_pickcube", help="of the collection that is timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments, more = parser.parse_known_args()
    if arguments.what == "time":
        compare_times(arguments.config, tuple(more), arguments.rounds)
    else:
        compare_classifiers(arguments.seeds, tuple(more))


if __name__ == "__main__":
    main()
