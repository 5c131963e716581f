"""A recording of a robot becomes labelled episodes."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rewardlab.cli import main
from rewardlab.data import Episode, read_episodes
from rewardlab.data.process import process_recording
from rewardlab.data.recordings import RecordedEpisode, read_recording
from rewardlab.data.screening import find_standstill
from rewardlab.data.transition_file import RecordingWriter
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


def serl(number: int, *, ends: bool = False, terminated: bool = False, success: bool | None = None) -> dict[str, Any]:
    """As HIL-SERL records: each part of an observation stacked over one frame, masks, infos of the environment."""

    def seen(value: int) -> dict[str, Any]:
        frame = np.full((1, 16, 16, 3), 20 * value % 256, np.uint8)
        return {"wrist_1": frame, "side": frame[..., :8, :], "state": np.full((1, 4), value, np.float32)}

    step: dict[str, Any] = {
        "observations": seen(number),
        "actions": np.full(7, number, np.float32),
        "next_observations": seen(number + 1),
        "rewards": np.float64(0.0),
        "masks": 1.0 - terminated,
        "dones": ends,
    }
    return step if success is None else {**step, "infos": {"succeed": success}}


def episodes_of(path: Path) -> list[RecordedEpisode]:
    return list(read_recording(path))


def test_recordings_of_serl(tmp_path: Path) -> None:
    steps = [serl(0), serl(1, success=True), serl(2, ends=True, terminated=True, success=False), serl(7, ends=True)]
    first, second = (each.episode for each in episodes_of(write(tmp_path / "data.pkl", steps)))
    assert first is not None
    assert second is not None
    columns = first.columns
    assert columns["success"].tolist() == [False, False, True, False]  # the infos say so, whatever the reward is
    assert columns["observation.images.wrist_1"].shape == (4, 16, 16, 3)
    assert columns["observation.images.side"].shape == (4, 16, 8, 3)
    assert columns["observation.state"][:, 0].tolist() == [0, 1, 2, 3]
    assert columns["action"].shape == (4, 7)
    ends = [(bool(e.columns["terminated"][-1]), bool(e.columns["truncated"][-1])) for e in (first, second)]
    assert ends == [(True, False), (False, True)]  # the mask says whether what follows has a value


def test_a_transition_that_begins_elsewhere_begins_an_episode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """HIL-SERL's recordings of success and failure frames are not in a row."""
    found = episodes_of(write(tmp_path / "data.pkl", [serl(0), serl(1), serl(5), serl(6)]))
    assert [(each.first, each.last, len(each.episode or ())) for each in found] == [(0, 1, 3), (2, 3, 3)]
    assert [each.gap for each in found] == [True, False]
    assert main(["data", "process", str(tmp_path / "data.pkl")]) == 0
    assert "1 episodes end where the next transition begins in another state" in capsys.readouterr().out


def long_recording(count: int = 6, length: int = 14) -> list[dict[str, Any]]:
    return [
        serl(number, ends=number == length - 1, terminated=number == length - 1, success=number > 9)
        for _ in range(count)
        for number in range(length)
    ]


def test_damaged_episodes_are_dropped_and_the_others_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = long_recording()
    steps[20] = {**steps[20], "actions": np.full(7, np.nan, np.float32)}
    seen = dict(steps[30]["next_observations"])
    del seen["side"]
    steps[30] = {**steps[30], "next_observations": seen}
    narrow = {**steps[48]["next_observations"], "side": np.zeros((1, 16, 9, 3), np.uint8)}
    steps[48] = {**steps[48], "next_observations": narrow}
    steps[60] = {**steps[60], "next_observations": None}
    assert main(["data", "process", str(write(tmp_path / "data.pkl", steps))]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "6 episodes of 84 transitions episodes kept 2 with success 2 without 0" in printed
    assert "frames kept 30 success 8 failure 22 dropped, damaged 4 dropped, static 0" in printed
    assert (
        "transitions 14 to 27, damaged: transition 27: the episode that ends here is not uniform ('action' is nan"
        in printed
    )
    assert "transitions 28 to 41, damaged" in printed
    assert "observation.images.side is in some of its transitions only" in printed
    assert "transitions 42 to 55, damaged" in printed
    assert "transitions 56 to 69, damaged: transition 60: no 'obs' and 'next_obs'" in printed
    assert f"next: rewardlab train-reward --data {tmp_path / 'collected_data'}" in printed
    assert len(read_episodes(tmp_path / "collected_data")) == 2


def test_of_a_file_that_is_cut_short_the_whole_episodes_are_kept(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path)
    for recorded in episodes_of(write(tmp_path / "other.pkl", long_recording(3))):
        assert recorded.episode is not None
        writer.write(recorded.episode)
    writer.close()
    path = tmp_path / "data.pkl"
    path.write_bytes(path.read_bytes()[:-5_000])
    result = process_recording(path)
    assert result.kept.total() == 2
    ((kind, place, reason),) = result.dropped
    assert (kind, place) == ("damaged", "transition 28")
    assert "the file is cut short here" in reason


def moving(frozen: slice | None = None, *, still: bool = False) -> Episode:
    """An episode of 30 frames with a bright spot that wanders, and the noise of a camera."""
    rng, count = np.random.default_rng(0), 30
    cameras: dict[str, Any] = {}
    for camera in ("base_camera", "wrist_camera"):
        frames = np.full((count, 32, 32, 3), 90, np.int16)
        for t in range(count):
            place = 0 if still else t % 24
            frames[t, place : place + 8, place : place + 8] = 250
        noisy = frames + np.round(2 * rng.standard_normal(frames.shape)).astype(np.int16)
        cameras[camera] = np.clip(noisy, 0, 255).astype(np.uint8)
    if frozen is not None:
        cameras["wrist_camera"][frozen] = cameras["wrist_camera"][frozen.start]
    columns = {f"observation.images.{camera}": frames for camera, frames in cameras.items()}
    ends = np.arange(count) == count - 1
    action = np.zeros((count, 3), np.float32)
    return Episode.from_columns({**columns, "success": ends, "truncated": ends, "action": action})


@pytest.mark.parametrize(
    ("episode", "words"),
    [
        (moving(), ""),
        (moving(still=True), "nothing moves in any picture"),
        (moving(slice(4, 15)), "the picture of 'wrist_camera' is the very same in frames 4 to 14"),
        (moving(slice(4, 13)), ""),  # 9 frames: the robot may have waited for a camera
    ],
    ids=["moving", "still", "frozen", "for a moment"],
)
def test_static_episodes_are_dropped(tmp_path: Path, episode: Episode, words: str) -> None:
    assert find_standstill(episode).startswith(words)
    assert bool(find_standstill(episode)) == bool(words)
    writer = RecordingWriter(tmp_path)
    for each in (episode, moving()):
        writer.write(each)
    writer.close()
    result = process_recording(tmp_path / "data.pkl")
    assert [kind for kind, _, _ in result.dropped] == (["static"] if words else [])
    assert result.kept.total() == 2 - len(result.dropped)


def test_one_camera_is_frozen_where_the_state_moved() -> None:
    episode = moving(slice(4, 20))
    alone = {name: column for name, column in episode.columns.items() if "base_camera" not in name}
    rests, moves = (np.full((30, 3), 0.1, np.float32), np.linspace(0, 0.1, 90, dtype=np.float32).reshape(30, 3))
    assert find_standstill(Episode.from_columns({**alone, "observation.state": rests})) == ""
    frozen = find_standstill(Episode.from_columns({**alone, "observation.state": moves}))
    assert "the camera was frozen" in frozen


def test_without_a_usable_episode_nothing_is_written(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path)
    writer.write(moving(still=True))
    writer.close()
    with pytest.raises(DataError, match=r"no episode of it can be used\. transitions 0 to 28 \(static\): nothing"):
        process_recording(tmp_path / "data.pkl")
    assert not (tmp_path / "collected_data").exists()


def test_a_recording_is_not_taken_for_an_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "data.pkl", long_recording(1))
    assert main(["data", "info", str(path)]) == 1
    assert "is a recording of transitions: cut it into episodes by `rewardlab data process`" in capsys.readouterr().out
