"""A recording of a robot becomes labelled episodes."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rewardlab.data import read_episodes
from rewardlab.data.process import process_recording
from rewardlab.errors import DataError


def observation(value: float) -> dict[str, Any]:
    return {"main_images": torch.full((8, 8, 3), value), "states": torch.tensor([value, 0.0])}


def transition(number: int, reward: float = 0.0, *, ends: bool = False) -> dict[str, Any]:
    """As the collection wrote it: tensors, a chunk axis, float pictures."""
    return {
        "transitions": {"obs": observation(number / 10), "next_obs": observation((number + 1) / 10)},
        "action": torch.full((6,), float(number)),
        "rewards": torch.tensor([reward]),
        "dones": torch.tensor([ends]),
        "terminations": torch.tensor([ends]),
        "truncations": torch.tensor([False]),
    }


def write(path: Path, content: Any) -> Path:
    path.write_bytes(pickle.dumps(content))
    return path


def test_episodes_labels_and_pictures(tmp_path: Path) -> None:
    recording = [transition(0), transition(1, 1.0), transition(2, 1.0, ends=True), transition(4), transition(5)]
    assert process_recording(write(tmp_path / "data.pkl", recording)).directory == tmp_path / "collected_data"
    episodes = [episode.load() for episode in read_episodes(tmp_path / "collected_data")]
    failure, success = sorted(episodes, key=lambda episode: episode.facts.success)
    assert success.columns["success"].tolist() == [False, False, True, True]
    assert success.columns["reward"].tolist() == success.columns["env_reward"].tolist() == [0, 0, 1, 1]
    assert success.columns["terminated"].tolist() == [False, False, False, True]
    assert success.columns["action"][:, 0].tolist() == [0, 0, 1, 2]
    assert success.columns["observation.images.base_camera"][:, 0, 0, 0].tolist() == [0, 26, 51, 76]
    assert failure.columns["observation.state"][:, 0].tolist() == pytest.approx([0.4, 0.5, 0.6])
    assert (failure.facts.success, failure.facts.length) == (False, 3)  # the recording ended, and it with it


def test_arrays_beside_each_other_are_read_too(tmp_path: Path) -> None:
    picture = np.full((8, 8, 3), 9, np.uint8)
    item = {"obs": {"main_images": picture}, "next_obs": {"main_images": picture}, "action": 1, "reward": 0.4}
    process_recording(write(tmp_path / "data.pkl", [item, {**item, "done": True}]))
    (episode,) = read_episodes(tmp_path / "collected_data")
    assert len(episode.load()) == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"a": 1}, r"data\.pkl: found a dict of 1, expected a list of transitions"),
        ([], "found a list of 0"),
        ([3], "transition 0: found a int, expected a dictionary"),
        ([{"action": 1}], "no 'obs' and 'next_obs'; found action"),
        ([{k: v for k, v in transition(0).items() if k != "rewards"}], "transition 0: no 'rewards'; found"),
        (
            [transition(0), {**transition(1), "action": torch.zeros(2)}],
            "transition 1: the episode that ends here is not uniform",
        ),
    ],
)
def test_other_content_is_named(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        process_recording(write(tmp_path / "data.pkl", content))
    assert not (tmp_path / "collected_data").exists()


def test_what_is_there_stays(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no recording"):
        process_recording(tmp_path / "data.pkl")
    recording = write(tmp_path / "data.pkl", [transition(0)])
    process_recording(recording)
    with pytest.raises(DataError, match="collected_data is not empty; move it away"):
        process_recording(recording)
