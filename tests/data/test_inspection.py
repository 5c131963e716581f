import numpy as np
import pytest
from PIL import Image

from rewardlab.cli import main
from rewardlab.data import EpisodeWriter, convert_episodes, draw_contact_sheet, read_episodes, summarize, verify
from rewardlab.data.contact_sheet import _places
from rewardlab.errors import DataError


@pytest.fixture
def data(tmp_path, make_episode):
    writer = EpisodeWriter(tmp_path / "data")
    for i in range(5):
        writer.write(make_episode(seed=i, success=i % 2 == 0))
    return tmp_path / "data"


def test_summary_counts_by_hand(data, make_episode):
    EpisodeWriter(data, "npy").write(make_episode(success=False))
    (data / "success" / "episode_000099.safetensors").write_bytes(b"")
    summary = summarize(data)
    assert (summary.success_episodes, summary.failure_episodes, summary.episodes) == (3, 3, 6)
    assert (summary.success_frames, summary.failure_frames) == (3 * 2, 6 * 6 - 6)
    assert summary.cameras == {"base_camera 8x8": 6, "wrist_camera 8x10": 6}
    assert summary.formats == {"safetensors": 5, "npy": 1}
    assert summary.tasks == {"PickCube": 5, "unknown": 1}
    assert summary.policies == {"expert": 5, "unknown": 1}
    assert summary.bytes == sum(p.stat().st_size for p in data.rglob("*") if p.is_file())
    assert [problem.path.name for problem in summary.damaged] == ["episode_000099.safetensors"]


def test_verify_names_damaged_misplaced_and_left_over_files(data):
    assert verify(data) == []
    episodes = read_episodes(data)
    flipped = bytearray(episodes[0].path.read_bytes())
    flipped[-400] ^= 1
    episodes[0].path.write_bytes(flipped)
    misplaced = data / "failure" / "episode_000002.safetensors"
    episodes[2].path.rename(misplaced)
    leftover = data / "success" / ".episode_000003.4194999.0123abcd.tmp"
    leftover.write_bytes(b"half")
    problems = dict(verify(data))
    assert set(problems) == {episodes[0].path, misplaced, leftover}
    assert "does not match its checksum" in problems[episodes[0].path]
    assert "is a success, but in the folder 'failure'" in problems[misplaced]
    assert "half-written by process 4194999" in problems[leftover]


def test_a_pickle_in_the_wrong_folder_is_found(data, tmp_path):
    convert_episodes(data, tmp_path / "pickles", "pickle")
    moved = next((tmp_path / "pickles" / "failure").iterdir())
    moved.rename(tmp_path / "pickles" / "success" / moved.name)
    assert [problem.path.name for problem in verify(tmp_path / "pickles")] == [moved.name]


@pytest.mark.parametrize("name", ["pickle", "npy"])
def test_there_and_back_again_keeps_frames_and_labels(data, tmp_path, name):
    seen = []

    def progress(episodes):
        for done, episode in enumerate(episodes, start=1):
            yield episode
            seen.append((done, len(episodes)))

    assert convert_episodes(data, tmp_path / "there", name, progress) == 5
    assert seen == [(i, 5) for i in range(1, 6)]
    assert convert_episodes(tmp_path / "there", tmp_path / "back") == 5
    assert verify(tmp_path / "there") == verify(tmp_path / "back") == []
    key = "observation.images.base_camera"
    before = sorted((e.load().columns[key].tobytes(), e.labels().tolist()) for e in read_episodes(data))
    after = sorted((e.load().columns[key].tobytes(), e.labels().tolist()) for e in read_episodes(tmp_path / "back"))
    assert before == after
    if name == "pickle":  # a shared counter on both sides: the same episode keeps its number
        for one, other in zip(read_episodes(data), read_episodes(tmp_path / "there"), strict=True):
            assert (one.path.stem, one.path.parent.name) == (other.path.stem, other.path.parent.name)


def test_convert_refuses_places_that_hold_something(data, tmp_path):
    with pytest.raises(DataError, match="is inside"):
        convert_episodes(data, data, "npy")
    with pytest.raises(DataError, match="is inside"):
        convert_episodes(data, data / "npy", "npy")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(DataError, match="is not empty"):
        convert_episodes(data, tmp_path / "other", "npy")


def test_a_conversion_that_fails_leaves_nothing(data, tmp_path):
    (data / "success" / "episode_000099.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="episode_000099"):
        convert_episodes(data, tmp_path / "new", "npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_contact_sheet_marks_each_frame_by_its_own_label(tmp_path, make_episode):
    EpisodeWriter(tmp_path / "data").write(make_episode(size=64))
    sheet = np.asarray(Image.open(draw_contact_sheet(tmp_path / "data", tmp_path / "out" / "sheet.png", frames=6)))
    row = sheet[50]  # the top border of the first row of tiles lies at y = 44..47
    border = sheet[45]
    green = (border == (24, 140, 60)).all(axis=-1)
    red = (border == (200, 44, 44)).all(axis=-1)
    runs = np.flatnonzero(np.diff(np.concatenate([[0], (green | red).astype(int), [0]])) > 0)
    assert ["green" if green[start] else "red" for start in runs] == ["red", "red", "red", "green", "green", "red"]
    assert row.shape[1] == 3
    frame = make_episode(size=64).columns["observation.images.base_camera"][0]
    left = runs[0] + 4
    np.testing.assert_array_equal(sheet[48 : 48 + 128 : 2, left : left + 128 : 2], frame)  # twice the size, same pixels


def test_contact_sheet_shows_a_success_frame_of_a_success():
    labels = np.zeros(50, bool)
    assert _places(labels, 5).tolist() == [0, 12, 24, 37, 49]
    labels[29:32] = True
    assert _places(labels, 5).tolist() == [0, 12, 30, 37, 49]
    assert _places(np.ones(2, bool), 5).tolist() == [0, 1]


def test_contact_sheet_shows_both_outcomes(data, tmp_path):
    chosen = draw_contact_sheet(data, tmp_path / "sheet.png", episodes=4, frames=3, camera="wrist_camera")
    assert Image.open(chosen).height > 4 * 128
    with pytest.raises(DataError, match="no camera 'top'"):
        draw_contact_sheet(data, tmp_path / "sheet.png", camera="top")


def test_copies_are_counted(tmp_path, make_episode, capsys):
    writer = EpisodeWriter(tmp_path)
    for seed in (0, 1, 0, 0):
        writer.write(make_episode(seed=seed))
    assert summarize(tmp_path).copies == 2
    assert main(["data", "info", str(tmp_path)]) == 0
    assert "2 episodes have the content of another one" in capsys.readouterr().out
