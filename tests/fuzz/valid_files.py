"""Small valid files of every kind, from which the targets draw broken ones."""

from pathlib import Path

import numpy as np
import torch

from rewardlab.config import load_config
from rewardlab.console import make_console
from rewardlab.data import Episode, EpisodeWriter
from rewardlab.pipelines import train_policy
from rewardlab.rewards import BinaryRewardClassifier

SIZE = 16
SMALL_RUN = [
    "runner.max_epochs=1",
    "env.train.num_envs=2",
    "env.eval.num_envs=2",
    "env.train.max_episode_steps=3",
    "algorithm.ppo.rollout_steps=4",
    "algorithm.ppo.update_epochs=1",
    "actor.global_batch_size=8",
    "actor.model.hidden_sizes=[8]",
    "runner.logger.experiment_name=''",
]


def write_episodes(directory: Path, format: str = "safetensors", count: int = 2) -> None:
    rng = np.random.default_rng(0)
    writer = EpisodeWriter(directory, format, durable=False)
    for number in range(count):
        labels = np.arange(4) >= (2 if number % 2 == 0 else 4)
        columns = {
            "success": labels,
            "observation.state": rng.normal(size=(4, 3)).astype(np.float32),
            "observation.images.base_camera": rng.integers(0, 256, (4, SIZE, SIZE, 3), dtype=np.uint8),
            "action": rng.normal(size=(4, 2)).astype(np.float32),
        }
        writer.write(Episode.from_columns(columns, task="toy", policy="expert", seed=number))


def write_classifier(path: Path) -> None:
    torch.manual_seed(0)
    model = BinaryRewardClassifier(image_size=(3, SIZE, SIZE), width=4, hidden_dim=8, num_spatial_blocks=2)
    model.save(path)


def write_policy_run(path: Path) -> None:
    cfg = load_config("tabletop_ppo_mlp", [*SMALL_RUN, f"runner.logger.log_path={path}"])
    train_policy.run(cfg, console=make_console(quiet=True))
