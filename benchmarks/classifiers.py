"""How good the success classifiers are on episodes they never saw, and how long training takes.

    .venv/bin/python benchmarks/classifiers.py default       # few frames, one appearance
    .venv/bin/python benchmarks/classifiers.py randomized    # random light, colours, camera pose and distractors

Each run collects its own episodes with its own seed, trains through the pipeline of `rewardlab train-reward`, and is
judged on 200 further episodes at the threshold stored in its checkpoint. `default` counts every frame it uses, held-out
ones included; `randomized` trains on 5 frames of each episode and holds out a fifth of the episodes, with all frames.
"""

import argparse
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from rewardlab.config import load_config, text_override
from rewardlab.data import read_episodes
from rewardlab.data.frames import tabulate
from rewardlab.data.stored_frames import validation_logits
from rewardlab.figures.metrics import FrameScores, frame_figures
from rewardlab.pipelines import collect, train_reward
from rewardlab.rewards import load_success_classifier

NETWORKS = ("resnet_reward", "binary_classifier")
TEST_EPISODES = 200
BARS = {"accuracy": 0.97, "fpr": 0.01, "recall": 0.90}


@dataclass(frozen=True)
class Setting:
    """A budget of labelled frames, and how to spend it."""

    config: str
    episodes: int
    success_frames: int | None  # null: whatever the episodes show
    failure_frames: int | None
    minutes: int  # the bar for training
    overrides: tuple[str, ...]
    collection: tuple[str, ...] = ()


SETTINGS = {
    "default": Setting(
        config="tabletop_pickcube",
        collection=("env.train.success_hold_steps=10",),
        episodes=64,
        success_frames=200,
        failure_frames=1000,
        minutes=4,
        overrides=("runner.max_epochs=50", "runner.early_stop.patience=null"),
    ),
    "randomized": Setting(
        config="tabletop_pickcube_randomized",
        episodes=2000,
        success_frames=None,
        failure_frames=None,
        minutes=15,
        overrides=(
            "data.num_samples_per_episode=5",
            "runner.max_epochs=12",
            "runner.val_check_interval=3",
            "runner.early_stop.patience=null",
        ),
    ),
}


def collected(setting: Setting, episodes: int, seed: int, place: Path, more: tuple[str, ...] = ()) -> Path:
    if not place.exists():
        overrides = [
            f"seed={seed}",
            f"data.collection.episodes={episodes}",
            "data.collection.policy=noisy_expert",
            text_override("data.collection.save_dir", str(place)),
            *more,
        ]
        collect.run(load_config(setting.config, overrides), console=Console(quiet=True))
    return place


def within_budget(setting: Setting, pool: Path, place: Path) -> Path:
    """Whole episodes, in random order (short ones end first), as long as neither class exceeds its budget."""
    if setting.success_frames is None or setting.failure_frames is None:
        return pool
    shutil.rmtree(place, ignore_errors=True)
    left = {True: setting.success_frames, False: setting.failure_frames}
    episodes = read_episodes(pool)
    for number in np.random.default_rng(0).permutation(len(episodes)):
        episode = episodes[int(number)]
        labels = episode.labels()
        shown = {True: int(labels.sum()), False: int((~labels).sum())}
        if all(shown[label] <= left[label] for label in left):
            left = {label: left[label] - shown[label] for label in left}
            target = place / episode.path.parent.name / episode.path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(episode.path, target)
    return place


def judged(checkpoint: Path, test: Path) -> dict[str, float | None]:
    """Figures on fresh episodes, at the stored threshold."""
    model = load_success_classifier(checkpoint)
    table = tabulate(read_episodes(test))
    logits = validation_logits(model.logits, table, model.image_keys)
    scores = FrameScores(table.episode, table.time, table.label, logits, tuple(e.path.stem for e in table.episodes))
    probability = 1 / (1 + np.exp(-logits / model.temperature))
    return {name: e.value for name, e in frame_figures(scores, probability > model.threshold).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark_classifiers"))
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the training config")
    arguments, more = parser.parse_known_args()
    setting = SETTINGS[arguments.setting]
    out = arguments.out / arguments.setting

    print("| network | seed | episodes | minutes | threshold | accuracy | FPR | recall | ROC-AUC | bars |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for seed in arguments.seeds:
        pool = collected(setting, setting.episodes, 1000 + seed, out / f"pool_{seed}", setting.collection)
        data = within_budget(setting, pool, out / f"data_{seed}")
        test = collected(setting, TEST_EPISODES, 2000 + seed, out / f"test_{seed}")
        for network in arguments.networks:
            run = out / f"{network}_{seed}"
            shutil.rmtree(run, ignore_errors=True)
            overrides = [
                f"seed={seed}",
                f"reward.model.model_type={network}",
                "reward.model.width=32",
                text_override("data.data_path", str(data)),
                text_override("runner.logger.log_path", str(run)),
                *setting.overrides,
                *arguments.overrides,
                *more,
            ]
            start = time.perf_counter()
            checkpoint = train_reward.run(load_config("reward_training", overrides), console=Console(quiet=True))
            minutes = (time.perf_counter() - start) / 60
            figures = judged(checkpoint, test)
            model = load_success_classifier(checkpoint)
            met = minutes < setting.minutes and all(
                (figures[name] <= bar) if name == "fpr" else (figures[name] >= bar)  # type: ignore[operator]
                for name, bar in BARS.items()
            )
            shares = [f"{100 * figures[name]:.2f} %" for name in ("accuracy", "fpr", "recall")]  # type: ignore[operator]
            row = [network, seed, len(read_episodes(data)), f"{minutes:.1f}", f"{model.threshold:.3f}", *shares]
            row += [f"{figures['roc_auc']:.4f}", "met" if met else "missed"]
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
