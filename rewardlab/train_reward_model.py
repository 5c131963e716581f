"""`python -m rewardlab.train_reward_model`: a BinaryRewardClassifier from a directory of positive and one of negative
trajectories, as a .pt file. The training itself is `rewardlab train-reward`'s, with held-out episodes and a report."""

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.cli.command import Parser, path_name, positive
from rewardlab.cli.execute import execute
from rewardlab.nested import nest

if TYPE_CHECKING:
    from rewardlab.config import ExperimentConfig


# Arguments that are keys of a config under another name.
CONFIG_KEYS = {
    "output_checkpoint": "runner.best_model_file",
    "epochs": "runner.max_epochs",
    "batch_size": "actor.global_batch_size",
    "lr": "actor.optim.lr",
    "backbone": "reward.model.arch",
    "image_size": "reward.model.image_size",
    "hidden_dim": "reward.model.hidden_dim",
    "num_spatial_blocks": "reward.model.num_spatial_blocks",
    "pretrained_encoder_path": "reward.model.pretrained_encoder_path",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    return execute(lambda: _train(_parser().parse_args(argv)))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m rewardlab.train_reward_model",
        description="Train a success classifier on positive and negative trajectories.",
        epilog="example:\n  python -m rewardlab.train_reward_model --positive-dir reward_data/positive "
        "--negative-dir reward_data/negative --output-checkpoint checkpoints/reward_model.pt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--positive-dir", type=path_name, required=True, metavar="DIR", help="trajectories that reach success")
    add("--negative-dir", type=path_name, required=True, metavar="DIR", help="trajectories that do not")
    add(
        "--output-checkpoint",
        type=path_name,
        required=True,
        metavar="PT",
        help="where the model goes; its report goes beside it",
    )
    add(
        "--pretrained-encoder-path",
        type=path_name,
        metavar="FILE",
        help="ResNet weights to start from, then frozen",
    )
    add("--backbone", default="resnet10", help="(default: %(default)s)")
    add("--image-key", default="base_camera", help="camera to look at (default: %(default)s)")
    add("--image-size", type=positive, nargs=3, default=[3, 64, 64], metavar=("C", "H", "W"), help="(default: 3 64 64)")
    add("--batch-size", type=positive, default=32, help="(default: %(default)s)")
    add("--epochs", type=positive, default=100, help="(default: %(default)s)")
    add("--lr", type=float, default=1e-4, help="(default: %(default)s)")
    add("--hidden-dim", type=positive, default=256, help="width of the classifier (default: %(default)s)")
    add("--num-spatial-blocks", type=positive, default=8, help="blocks of the pooling (default: %(default)s)")
    add("--visualize-positive", action="store_true", help="first write every frame labelled success as a PNG")
    add(
        "--vis-output-dir",
        type=path_name,
        default="positive_samples_vis",
        metavar="DIR",
        help="to there (default: %(default)s)",
    )
    return parser


def _train(arguments: argparse.Namespace) -> None:
    from rewardlab.pipelines import train_reward

    output = Path(arguments.output_checkpoint)
    report = output.with_name(f"{output.stem}_report")
    _check_run(output, report)
    cfg = _config(arguments, report)
    _count(arguments.positive_dir, arguments.negative_dir)
    if arguments.visualize_positive:
        _visualize(cfg.data.paths, arguments.image_key, Path(arguments.vis_output_dir))
    if arguments.pretrained_encoder_path is None:
        _say("note: without --pretrained-encoder-path the encoder starts at random, so it is trained, not frozen")
    train_reward.run(cfg)
    _say(f"model: {output}")


def _say(words: str) -> None:
    from rewardlab.console import make_console, print_line

    print_line(make_console(), words)


def _check_run(output: Path, report: Path) -> None:
    from rewardlab.errors import ConfigError, DataError
    from rewardlab.run_directories import CHECKPOINTS

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("this command trains in one process; for several: torchrun -m rewardlab.cli train-reward")
    if output.suffix not in (".pt", ".pth"):
        raise ConfigError(f"--output-checkpoint: found {output}, expected a file ending in .pt")
    for path in (output, report):
        if path.exists() and (path == output or (report / CHECKPOINTS).is_dir()):
            raise DataError(f"{path} exists already: choose another --output-checkpoint, or move it away")


def _config(arguments: argparse.Namespace, report: Path) -> "ExperimentConfig":
    from rewardlab.config import config_from_mapping

    values = {key: getattr(arguments, name) for name, key in CONFIG_KEYS.items()} | {
        "runner.task": "train_reward",
        "runner.logger.log_path": str(report),
        "data.data_path": [arguments.positive_dir, arguments.negative_dir],
        "actor.optim.schedule": "constant",
        "reward.model.model_type": "binary_classifier",
        "reward.model.image_keys": [arguments.image_key],
    }
    return config_from_mapping(nest(values))


def _count(*directories: str) -> None:
    from rewardlab.data import summarize

    for directory in directories:
        found = summarize(directory)
        _say(
            f"{directory}: {found.episodes:,} trajectories, {found.frames:,} frames "
            f"(label=1: {found.success_frames:,}, label=0: {found.failure_frames:,})"
        )


def _visualize(paths: Sequence[str], camera: str, out: Path) -> None:
    from rewardlab.data import read_episodes
    from rewardlab.data.images import write_png
    from rewardlab.errors import StorageError

    count = 0
    try:
        for episode in read_episodes(*paths):
            name = f"{episode.path.parent.name}_{episode.path.stem}"
            frames = (zip(pictures[camera], labels, strict=True) for pictures, labels in episode.batches([camera]))
            for time, (picture, label) in zip(episode.frame_rows(), chain.from_iterable(frames), strict=True):
                if label:
                    write_png(out / f"{name}_frame{time:03d}.png", picture)
                    count += 1
    except StorageError as error:
        raise StorageError(f"--vis-output-dir: cannot write to {out} ({error})") from error
    _say(f"positive samples: {count:,} pictures in {out}")


if __name__ == "__main__":
    sys.exit(main())
