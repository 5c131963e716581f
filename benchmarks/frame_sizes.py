"""What a classifier says of frames of another size than those that it was trained on.

Episodes of PickCube are recorded at one size, and a classifier is trained on them, possibly at a smaller size of its
network. The same test episodes are then drawn at several sizes and scored at the stored threshold, with
`resize: allow`. Without it, the sizes marked "refused" are an error.

    .venv/bin/python benchmarks/frame_sizes.py --recorded 128 --network 64
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from rewardlab.cli import main
from rewardlab.data import read_episodes
from rewardlab.errors import DataError
from rewardlab.rewards import load_success_classifier

TEST_SEED = 1_000


def collect(out: Path, size: int, episodes: int, seed: int) -> Path:
    image_size = f"env.train.image_size=[3,{size},{size}]"
    main(["collect", "tabletop_pickcube", "--episodes", str(episodes), "--out", str(out), image_size, f"seed={seed}"])
    return out


def train(data: Path, out: Path, network: int, epochs: int) -> Path:
    settings = ["arch=resnet10", "width=32", f"image_size=[3,{network},{network}]"]
    main(
        [
            *("train-reward", "--data", str(data), f"runner.max_epochs={epochs}", f"runner.logger.log_path={out}"),
            *(f"reward.model.{setting}" for setting in settings),
            *("data.num_samples_per_episode=20", "actor.optim.lr=0.001"),
        ]
    )
    return out / "checkpoints" / "best_model"


def measure(checkpoint: Path, data: Path, size: int) -> str:
    strict = load_success_classifier(checkpoint)
    model = load_success_classifier(checkpoint, overrides={"resize": "allow"})
    (camera,) = model.image_keys
    probabilities, labels = [], []
    for episode in read_episodes(data):
        for pictures, label in episode.batches([camera]):
            probabilities.append(model.probabilities(pictures).numpy())
            labels.append(label)
    success, truth = np.concatenate(probabilities) > model.threshold, np.concatenate(labels)
    try:
        strict.frame_sizes[camera].check((size, size), camera)
        verdict = "taken"
    except DataError:
        verdict = "refused"
    recall, fpr, accuracy = success[truth].mean(), success[~truth].mean(), (success == truth).mean()
    return f"| {size}x{size} | {verdict} | {recall:.1%} | {fpr:.2%} | {accuracy:.1%} |"


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", type=int, default=128)
    parser.add_argument("--network", type=int, default=64)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 96, 128, 256])
    parser.add_argument("--episodes", type=int, default=120)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        data = collect(place / "data", arguments.recorded, arguments.episodes, arguments.seed)
        checkpoint = train(data, place / "run", arguments.network, arguments.epochs)
        print(
            f"\nrecorded at {arguments.recorded}x{arguments.recorded}, network {arguments.network}x{arguments.network}"
        )
        print("| frames | without `resize: allow` | recall | FPR | accuracy |\n|---|---|---|---|---|")
        for size in arguments.sizes:
            print(measure(checkpoint, collect(place / f"test_{size}", size, 40, TEST_SEED), size), flush=True)


if __name__ == "__main__":
    run()
