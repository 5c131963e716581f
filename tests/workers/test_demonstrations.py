"""Demonstrations are read from every format that has actions, and from the others with a sentence."""

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from rewardlab.data import Episode, EpisodeWriter
from rewardlab.errors import DataError
from rewardlab.workers.demonstrations import read_demonstrations

STEPS = 4
SPACE = spaces.Box(-1, 1, (3,), np.float32)


def write(directory: Path, format: str, side: int = 8) -> Path:
    columns = {
        "observation.state": np.arange(3 * STEPS, dtype=np.float32).reshape(STEPS, 3),
        "observation.images.base_camera": np.full((STEPS, side, side, 3), 7, np.uint8),
        "action": np.linspace(-1, 1, 2 * STEPS, dtype=np.float32).reshape(STEPS, 2),
        "reward": np.arange(STEPS, dtype=np.float32),
        "success": np.arange(STEPS) == STEPS - 1,
        "terminated": np.zeros(STEPS, bool),
        "truncated": np.zeros(STEPS, bool),
    }
    if format == "safetensors":  # pickle has one reward
        columns["env_reward"] = columns["reward"]
    EpisodeWriter(directory, format, durable=False).write(Episode.from_columns(columns))
    return directory


@pytest.mark.parametrize("format", ["safetensors", "pickle"])
def test_rewards_and_frames(tmp_path: Path, format: str) -> None:
    demos, frames = read_demonstrations(write(tmp_path, format), SPACE, ["base_camera"])
    assert demos["env_reward"].tolist() == [1, 2, 3]
    assert demos["next_observation", "state"].tolist() == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert (demos["terminated"] | demos["truncated"]).tolist() == [False, False, True]
    assert demos["success"].tolist() == [False, False, True]
    assert frames["base_camera"].shape == (3, 8, 8, 3)


def test_a_format_without_actions_is_refused_with_the_formats_that_have_them(tmp_path: Path) -> None:
    pictures = spaces.Dict({"images": spaces.Dict({"base_camera": spaces.Box(0, 255, (8, 8, 3), np.uint8)})})
    with pytest.raises(DataError, match=r"000000\.npy: no terminated in it.*as safetensors or pickle"):
        read_demonstrations(write(tmp_path, "npy"), pictures)


def test_frames_of_two_sizes_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "safetensors")
    with pytest.raises(DataError, match="images of camera 'base_camera' are 16x16, 8x8; expected one size"):
        read_demonstrations(write(tmp_path, "safetensors", side=16), SPACE, ["base_camera"])
