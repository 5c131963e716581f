import numpy as np
import pytest

from rewardlab.data import EpisodeCollector, EpisodeWriter, read_episodes
from rewardlab.errors import DataError


def rows(values, success=False):
    count = len(values)
    images = np.broadcast_to(np.array(values, np.uint8)[:, None, None, None], (count, 4, 4, 3))
    return {
        "observation.images.base_camera": images,
        "observation.state": np.array(values, np.float32)[:, None],
        "success": np.full(count, success),
    }


def run_episode(collector, env, value, success):
    collector.begin([env], rows([value]))
    collector.add([env], rows([value], success))
    collector.end([env])


def test_environments_of_different_pace_do_not_mix(tmp_path):
    with EpisodeCollector(EpisodeWriter(tmp_path), 2, task="Reach", policy="random") as collector:
        collector.begin([0, 1], rows([10, 20]))
        for step in range(1, 7):
            collector.add([0, 1], rows([10 + step, 20 + step]))
            if step % 2 == 0:
                collector.end([0])
                collector.begin([0], rows([100 + step]))
        collector.end([1])
    states = [stored.load().columns["observation.state"][:, 0].tolist() for stored in read_episodes(tmp_path)]
    assert states == [[10, 11, 12], [102, 13, 14], [104, 15, 16], [20, 21, 22, 23, 24, 25, 26]]
    assert {(e.facts.task, e.facts.policy) for e in read_episodes(tmp_path)} == {("Reach", "random")}


def test_a_full_class_is_counted_not_kept(tmp_path):
    writer = EpisodeWriter(tmp_path)
    with EpisodeCollector(writer, 1, target_success=2, target_failure=1) as collector:
        for _ in range(4):
            run_episode(collector, 0, 1, success=True)
        assert not collector.full
        run_episode(collector, 0, 1, success=False)
        assert collector.full
        counts = {name: (count.kept, count.seen) for name, count in collector.counts.items()}
    assert counts == {"success": (2, 4), "failure": (1, 1)}
    assert (writer.count(True), writer.count(False)) == (2, 1)
    # What is on disk counts towards the target of the next run.
    with EpisodeCollector(EpisodeWriter(tmp_path), 1, target_success=3, target_failure=1) as again:
        run_episode(again, 0, 1, success=False)
        run_episode(again, 0, 1, success=True)
        assert again.full
        assert again.counts["success"].on_disk == 2
    assert (writer.count(True), writer.count(False)) == (3, 1)


def test_no_target_means_no_limit(tmp_path):
    with EpisodeCollector(EpisodeWriter(tmp_path), 1) as collector:
        for i in range(5):
            run_episode(collector, 0, i, success=False)
        assert not collector.full
    assert len(read_episodes(tmp_path)) == 5


def test_rows_are_copies(tmp_path):
    reused = {name: column.copy() for name, column in rows([1, 1]).items()}
    with EpisodeCollector(EpisodeWriter(tmp_path), 2) as collector:
        collector.begin([0, 1], reused)
        reused["observation.images.base_camera"][:] = 2
        reused["observation.state"][:] = 2
        collector.add([0, 1], reused)
        collector.end([0, 1])
        reused["observation.images.base_camera"][:] = 9
    for stored in read_episodes(tmp_path):
        columns = stored.load().columns
        assert columns["observation.state"].tolist() == [[1], [2]]
        assert columns["observation.images.base_camera"][:, 0, 0, 0].tolist() == [1, 2]


def test_an_unfinished_episode_is_not_written(tmp_path):
    with EpisodeCollector(EpisodeWriter(tmp_path), 2) as collector:
        run_episode(collector, 0, 1, success=True)
        collector.begin([0, 1], rows([2, 2]))
    assert len(read_episodes(tmp_path)) == 1


@pytest.mark.parametrize(
    ("column", "spoil", "message"),
    [
        ("observation.state", lambda a: a * np.nan, r"'observation.state' is nan at env 5, step 1; expected finite"),
        ("observation.images.base_camera", lambda a: a / 255, r"env 5, step 1: .*base_camera' is float64"),
        (
            "observation.images.base_camera",
            lambda a: a[:, :2],
            r"env 5, step 1: .*is uint8 \[2, 4, 3\]; it was uint8 \[4,",
        ),
        ("success", lambda a: a.repeat(2), r"env 5, step 1: .* the labels \('success'\) have 4"),
    ],
)
def test_bad_rows_are_named_and_finished_episodes_stay(tmp_path, column, spoil, message):
    with EpisodeCollector(EpisodeWriter(tmp_path), 8) as collector:
        run_episode(collector, 0, 1, success=True)
        collector.begin([5, 6], rows([1, 1]))
        bad = rows([2, 2])
        bad[column] = spoil(bad[column])
        with pytest.raises(DataError, match=message):
            collector.add([5, 6], bad)
    assert len(read_episodes(tmp_path)) == 1


def test_a_step_before_any_reset_says_so(tmp_path):
    collector = EpisodeCollector(EpisodeWriter(tmp_path), 1)
    with pytest.raises(DataError, match="reset the environment first"):
        collector.add([0], rows([1]))


def test_an_episode_longer_than_any_before_keeps_every_frame(tmp_path):
    with EpisodeCollector(EpisodeWriter(tmp_path), 1) as collector:
        for length in (3, 100):
            collector.begin([0], rows([0]))
            for t in range(1, length):
                collector.add([0], rows([t]))
            collector.end([0])
    for stored, length in zip(read_episodes(tmp_path), (3, 100), strict=True):
        frames = stored.load().columns["observation.images.base_camera"]
        assert frames[:, 0, 0, 0].tolist() == list(range(length))
