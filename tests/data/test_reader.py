import pickle

import pytest

from rewardlab.data import EpisodeWriter, read_episodes
from rewardlab.errors import DataError


def test_mixed_formats_and_nested_directories(tmp_path, make_episode):
    for name in ("safetensors", "pickle", "npy"):
        EpisodeWriter(tmp_path / "monday" / name, name).write(make_episode())
    EpisodeWriter(tmp_path).write(make_episode(success=False))
    (tmp_path / "README.md").write_text("not an episode")
    (tmp_path / ".episode_000009.1.0123abcd.tmp").write_text("half an episode")
    episodes = read_episodes(tmp_path)
    assert sorted(episode.format.name for episode in episodes) == ["npy", "pickle", "safetensors", "safetensors"]
    assert sum(episode.facts.success for episode in episodes) == 3


def test_several_directories_count_a_file_once(tmp_path, make_episode):
    writer = EpisodeWriter(tmp_path, "npy")
    writer.write(make_episode())
    writer.write(make_episode(success=False))
    assert len(read_episodes(tmp_path / "positive", tmp_path / "negative", tmp_path)) == 2


def test_opening_reads_no_file(tmp_path):
    for i in range(100):
        (tmp_path / f"{i:06d}.npy").write_bytes(b"never looked at")
    episodes = read_episodes(tmp_path)
    assert len(episodes) == 100
    assert [episode.path.stem for episode in episodes[1:3]] == ["000001", "000002"]
    assert episodes[-1].path.stem == "000099"


def test_a_stored_episode_can_be_sent_to_another_process(tmp_path, make_episode):
    EpisodeWriter(tmp_path).write(make_episode())
    stored = pickle.loads(pickle.dumps(read_episodes(tmp_path)[0]))
    assert stored.facts.task == "PickCube"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.mkdir(), "no episodes in .*safetensors, .pkl, .npy"),
        (lambda p: None, "does not exist"),
        (lambda p: p.write_text("hello"), "is not an episode: expected a file ending in"),
    ],
    ids=["empty", "missing", "another file"],
)
def test_nothing_to_read_says_what_was_looked_for(tmp_path, make, message):
    make(tmp_path / "data")
    with pytest.raises(DataError, match=message):
        read_episodes(tmp_path / "data")
