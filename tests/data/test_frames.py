"""Which frames a classifier learns from, and which it is judged by."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from rewardlab.data import Episode, EpisodeWriter, read_episodes
from rewardlab.data.episodes import EpisodeOrigin
from rewardlab.data.frames import FrameTable, limit_failures, sample_per_episode, split_by_episode, tabulate
from rewardlab.errors import DataError


def write(directory: Path, *labels: list[int]) -> FrameTable:
    writer = EpisodeWriter(directory)
    for rows in labels:
        success = np.array(rows, bool)
        frames = np.zeros((len(rows), 8, 8, 3), np.uint8)
        writer.write(Episode.from_columns({"observation.images.base_camera": frames, "success": success}))
    return tabulate(read_episodes(directory))


FAILURE, SUCCESS, LEFT_AGAIN = [0, 0, 0], [0, 1, 1], [0, 1, 0]


def test_a_label_is_of_its_own_frame(tmp_path: Path) -> None:
    table = write(tmp_path, LEFT_AGAIN)
    assert table.label.tolist() == [False, True, False]
    assert table.time.tolist() == [0, 1, 2]


def test_episodes_of_several_directories_have_names_of_their_own(tmp_path: Path) -> None:
    alone = write(tmp_path / "first", SUCCESS)
    write(tmp_path / "second", SUCCESS)
    assert alone.episode_names() == ("success/episode_000000",)
    both = tabulate(read_episodes(tmp_path / "first", tmp_path / "second"))
    assert both.episode_names() == ("first/success/episode_000000", "second/success/episode_000000")
    assert both.rows(both.time > 99).episode_names() == both.episode_names()


def test_no_episode_is_on_both_sides_and_both_sides_have_both_classes(tmp_path: Path) -> None:
    table = write(tmp_path, *([SUCCESS] * 5 + [FAILURE] * 15))
    for seed in range(5):
        train, validation = split_by_episode(table, 0.2, seed)
        assert not set(train.episode) & set(validation.episode)
        assert len(train) + len(validation) == len(table)
        assert (validation.successes, validation.failures) == (2, 10)  # one of five, three of fifteen: as in the data
    again, _ = split_by_episode(table, 0.2, 0)
    assert np.array_equal(again.episode, split_by_episode(table, 0.2, 0)[0].episode)
    assert not np.array_equal(again.episode, split_by_episode(table, 0.2, 1)[0].episode)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([FAILURE] * 4, "no frame is labelled success"),
        ([[1, 1]] * 4, "no frame is labelled failure"),
        ([SUCCESS], "only 1 of 1 episodes shows success"),
        ([SUCCESS, FAILURE, FAILURE], "only 1 of 3 episodes shows success"),
    ],
)
def test_too_little_data_is_said_in_words(tmp_path: Path, labels: list[list[int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        split_by_episode(write(tmp_path, *labels), 0.2, 0)


def test_sampling_keeps_the_last_frame_of_every_episode(tmp_path: Path) -> None:
    table = write(tmp_path, [0] * 10, [0] * 9 + [1], [1])
    assert sample_per_episode(table, 0, seed=0) is table
    for seed in range(5):
        sampled = sample_per_episode(table, 3, seed)
        for episode, last in enumerate((9, 9, 0)):
            times = sampled.time[sampled.episode == episode]
            assert last in times
            assert len(times) == min(3, last + 1)


def test_failures_are_limited_to_the_ratio(tmp_path: Path) -> None:
    table = write(tmp_path, *([SUCCESS] * 2 + [FAILURE] * 10))
    limited = limit_failures(table, 3.0, seed=0)
    assert (limited.successes, limited.failures) == (4, 12)
    assert limit_failures(table, None, seed=0) is table
    assert limit_failures(table, 100.0, seed=0).failures == table.failures


def test_copies_of_an_episode_stay_on_one_side(tmp_path, make_episode):
    """As versions without identities left them: the same episodes under other names."""
    writer = EpisodeWriter(tmp_path)
    for k in [*range(12), *range(8)]:
        writer.write(make_episode(length=3, size=4, seed=k, success=k % 2 == 0))
    table = tabulate(read_episodes(tmp_path))
    for seed in range(10):
        with pytest.warns(UserWarning, match="8 of the 20 episodes are copies"):
            sides = split_by_episode(table, 0.3, seed)
        train, validation = ({table.episodes[k].digest for k in np.unique(side.episode)} for side in sides)
        assert not train & validation
        assert len(train | validation) == 12


def test_episodes_of_one_identity_stay_on_one_side_whatever_they_contain(tmp_path, make_episode):
    writer = EpisodeWriter(tmp_path)
    for k in range(20):
        origin = EpisodeOrigin("run", 0, k % 10, f"digest {k}")
        writer.write(dataclasses.replace(make_episode(length=3, size=4, seed=k, success=k % 2 == 0), origin=origin))
    table = tabulate(read_episodes(tmp_path))
    with pytest.warns(UserWarning, match="10 of the 20 episodes"):
        sides = split_by_episode(table, 0.3, 0)
    numbers = [{table.episodes[k].origin.number for k in np.unique(side.episode)} for side in sides]
    assert not numbers[0] & numbers[1]
