"""Episodes built from frames and labels, as a script has them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rewardlab.data import Episode, EpisodeWriter, read_episodes
from rewardlab.errors import DataError

FRAMES = np.random.default_rng(0).integers(0, 255, (4, 8, 10, 3), dtype=np.uint8)


def test_an_episode_of_frames_is_written_and_read(tmp_path: Path) -> None:
    state = [[0, 1], [2, 3], [4, 5], [6, 7]]
    episode = Episode.from_frames(list(FRAMES), [0, 0, 1, 1], state=state, task="peg")
    EpisodeWriter(tmp_path).write(episode)
    (read,) = read_episodes(tmp_path)

    assert (read.facts.task, read.facts.success, read.facts.cameras) == ("peg", True, {"base_camera": (8, 10)})
    assert read.labels().tolist() == [False, False, True, True]
    assert np.array_equal(read.frame("base_camera", 2), FRAMES[2])
    assert read.load().columns["observation.state"].tolist() == state


@pytest.mark.parametrize(
    "frames",
    [FRAMES, list(FRAMES), torch.from_numpy(FRAMES).permute(0, 3, 1, 2), FRAMES / 255, list(torch.from_numpy(FRAMES))],
)
def test_every_form_of_frames_is_stored_alike(frames: Any) -> None:
    assert np.array_equal(Episode.from_frames(frames, False).columns["observation.images.base_camera"], FRAMES)


def test_one_label_is_that_of_all_frames_and_cameras_have_names() -> None:
    episode = Episode.from_frames({"front": FRAMES, "wrist": FRAMES[:, :4]}, True)
    assert episode.columns["success"].tolist() == [True] * 4
    assert episode.facts.cameras == {"front": (8, 10), "wrist": (4, 10)}


@pytest.mark.parametrize(
    ("frames", "success", "message"),
    [
        (FRAMES, [True, False], r"success: found bool \[2\], expected true or false for each of the 4 frames"),
        (FRAMES, [0, 1, 2, 0], "expected true or false for each of the 4 frames"),
        ([FRAMES[0], FRAMES[0, :4]], False, r"found \[8, 10, 3\], \[4, 10, 3\], expected one size"),
        (FRAMES[0], False, r"found \[8, 10, 3\], expected \[T, height, width, 3\]"),
        ([], False, "found no frames"),
        ({}, False, "found an empty dictionary"),
        ({"front": FRAMES, "wrist": FRAMES[:2]}, False, "'observation.images.wrist' has 2 rows"),
    ],
)
def test_mistakes_are_named(frames: Any, success: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Episode.from_frames(frames, success)
