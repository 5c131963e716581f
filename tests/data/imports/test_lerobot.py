"""LeRobotDatasets in: the right pictures, actions and labels in the right rows, and what is wrong with a data set."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_sets import FPS, IMAGE, VIDEO, grey, write_v3, write_v21, write_video

from rewardlab.data.imports.lerobot import LeRobotSource
from rewardlab.data.imports.picture_size import PictureSize
from rewardlab.data.imports.source import ImportedEpisode, ImportOptions
from rewardlab.errors import ConfigError, DataError

NO, YES = 0.0, 1.0
REWARDS = [[NO] * 6 + [YES] * 3, [NO] * 8, [NO] * 5, [NO] * 4 + [YES] + [NO] * 4]
OPTIONS = ImportOptions(size=PictureSize(original=True))
WRITERS = {"v3": write_v3, "v2": write_v21}


def read(root: Path, skip: frozenset[int] = frozenset(), **options: object) -> list[ImportedEpisode]:
    return list(LeRobotSource(root, ImportOptions(**{**vars(OPTIONS), **options})).episodes(skip))


@pytest.fixture(params=WRITERS)
def data(request, tmp_path):
    return WRITERS[request.param](tmp_path / "set", REWARDS)


def levels(frames: np.ndarray) -> list[float]:
    return frames.mean(axis=(1, 2, 3)).round().tolist()


def test_rows_are_arrivals_with_their_pictures(data):
    assert LeRobotSource.recognises(data)
    assert len(LeRobotSource(data, OPTIONS)) == 4
    for number, imported in enumerate(read(data)):
        assert imported.problem == ""
        assert imported.number == number
        columns, length = imported.episode.columns, len(REWARDS[number])
        expected = [grey(number, row) for row in range(length)]
        assert levels(columns["observation.images.wrist"]) == expected  # PNG: exact
        np.testing.assert_allclose(levels(columns["observation.images.front"]), expected, atol=2)  # a video: nearly
        assert columns["observation.state"][:, 1].tolist() == list(range(length))
        assert columns["action"][:, 0].tolist() == list(range(length))  # 0 at reset, then that of the row before
        assert columns["truncated"].tolist() == [False] * (length - 1) + [not REWARDS[number][-1]]
        assert columns["terminated"].tolist() == [False] * (length - 1) + [bool(REWARDS[number][-1])]
        assert set(imported.episode.facts.cameras) == {"front", "wrist"}  # no depth


def test_videos_of_lerobots_own_codec(tmp_path):
    root = write_v21(tmp_path / "set", [REWARDS[0]])
    frames = [np.full((64, 64, 3), 20 + 8 * row, np.uint8) for row in range(9)]
    write_video(next(root.rglob("*.mp4")), frames, "libsvtav1")
    found = levels(read(root)[0].episode.columns["observation.images.front"])
    np.testing.assert_allclose(found, levels(np.stack(frames)), atol=2)


def test_the_task_is_the_one_of_the_episode_unless_told(data):
    assert read(data)[0].episode.facts.task == "push the cube"
    assert read(data, task="other")[0].episode.facts.task == "other"


def test_a_key_judges_its_own_row_after_a_reaction_time(tmp_path):
    first, _, _, last = read(write_v3(tmp_path / "set", REWARDS))
    columns = first.episode.columns
    assert columns["success"].tolist() == [reward > 0 for reward in REWARDS[0]]
    assert np.flatnonzero(columns["unsure"]).tolist() == [2, 3, 4, 5]  # .4 s at 10 Hz
    assert np.flatnonzero(last.episode.columns["unsure"]).tolist() == [0, 1, 2, 3, 5, 6, 7, 8]  # a single press
    assert sum(first.notes.values()) == 4
    assert columns["reward"].tolist() == REWARDS[0]


def test_align_and_the_band_are_the_users_choice(tmp_path):
    root = write_v3(tmp_path / "set", REWARDS)
    columns = read(root, align="next", unsure_seconds=0.1)[0].episode.columns
    assert np.flatnonzero(columns["success"]).tolist() == [7, 8]
    assert np.flatnonzero(columns["unsure"]).tolist() == [6]
    assert columns["reward"].tolist() == [NO, *REWARDS[0][:-1]]
    assert "unsure" not in read(root, align="same", unsure_seconds=0.0)[0].episode.columns


def test_next_success_judges_the_next_frame(tmp_path):
    marks = [[False] * (len(rewards) - 1) + [True] for rewards in REWARDS]
    marks[1][3] = True
    root = write_v3(tmp_path / "set", REWARDS, **{"next.success": marks})
    imported = read(root)
    assert not imported[0].episode.columns["success"].any()  # its frame was not recorded ...
    assert imported[0].episode.facts.success  # ... but the episode is a success
    assert any("without a frame" in words for words in imported[0].notes)
    assert np.flatnonzero(imported[1].episode.columns["success"]).tolist() == [4]


def test_rewards_of_a_simulator_judge_the_next_frame(tmp_path):
    root = write_v3(tmp_path / "set", REWARDS)
    edit_info(root, robot_type="gym_hil")
    assert np.flatnonzero(read(root)[0].episode.columns["success"]).tolist() == [7, 8]


def test_rewards_that_are_all_zero_are_no_labels(tmp_path):
    source = LeRobotSource(write_v3(tmp_path / "set", [[NO] * 4, [NO] * 3]), OPTIONS)
    assert any("NO LABELS" in line and "next.reward is 0" in line for line in source.remarks)
    for imported in source.episodes(frozenset()):
        assert imported.episode.columns["unsure"].all()
        assert not imported.episode.columns["success"].any()


def test_a_lone_success_is_the_outcome_of_the_episode_and_no_label(tmp_path):
    outcomes = [[True] * len(rewards) for rewards in REWARDS]
    source = LeRobotSource(write_v3(tmp_path / "set", REWARDS, success=outcomes), OPTIONS)
    columns = next(source.episodes(frozenset())).episode.columns
    assert columns["success"].tolist() == [reward > 0 for reward in REWARDS[0]]
    assert any("left out" in line and "success" in line for line in source.remarks)


def test_rewards_between_0_and_1_are_counted(tmp_path):
    imported = read(write_v3(tmp_path / "set", [[0.2, 0.7, 1.0]]))[0]
    assert imported.episode.columns["success"].tolist() == [False, True, True]
    assert any("neither 0 nor 1" in words and count == 2 for words, count in imported.notes.items())


def test_every_nth_picture_and_all_rows(data):
    columns = read(data, every=4)[0].episode.columns
    assert columns["frame_rows"].tolist() == [0, 4, 8]
    np.testing.assert_allclose(levels(columns["observation.images.front"]), [grey(0, t) for t in (0, 4, 8)], atol=2)
    assert len(columns["success"]) == 9


def test_episodes_that_are_skipped_do_not_shift_the_others(data):
    imported = read(data, skip=frozenset({0, 2}))
    assert [one.number for one in imported] == [1, 3]
    for one in imported:
        assert levels(one.episode.columns["observation.images.wrist"])[0] == grey(one.number, 0)
        assert (
            abs(levels(one.episode.columns["observation.images.front"])[-1] - grey(one.number, 8 - (one.number == 1)))
            <= 2
        )


def test_large_pictures_are_reduced(data):
    source = LeRobotSource(data, ImportOptions(size=PictureSize(wanted=(24, 32))))
    columns = next(source.episodes(frozenset())).episode.columns
    assert columns["observation.images.front"].shape[1:] == columns["observation.images.wrist"].shape[1:] == (24, 32, 3)
    assert any("front: pictures resized from 48x64 to 24x32" in line for line in source.remarks)


def test_cameras_are_chosen_by_name_or_key(tmp_path):
    root = write_v3(tmp_path / "set", REWARDS)
    assert list(read(root, cameras=(VIDEO,))[0].episode.facts.cameras) == ["front"]
    assert list(read(root, cameras=("wrist",))[0].episode.facts.cameras) == ["wrist"]
    with pytest.raises(DataError, match=r"--camera frnt: no such camera. Did you mean 'front'"):
        read(root, cameras=("frnt",))
    with pytest.raises(DataError, match=r"is no camera \(float32 \[3\]\). The cameras are front, wrist"):
        read(root, cameras=("observation.state",))
    with pytest.raises(DataError, match="depth"):
        read(root, cameras=("observation.images.depth",))


def test_a_data_set_without_cameras_is_imported_and_said(tmp_path):
    root = write_v3(tmp_path / "set", REWARDS)
    edit_info(root, features={key: value for key, value in info_of(root)["features"].items() if "images" not in key})
    source = LeRobotSource(root, OPTIONS)
    assert any("no cameras" in line for line in source.remarks)
    assert not next(source.episodes(frozenset())).episode.facts.cameras


# What is wrong with a data set.


def info_of(root: Path) -> dict:
    return json.loads((root / "meta/info.json").read_text())


def edit_info(root: Path, **values: object) -> None:
    (root / "meta/info.json").write_text(json.dumps(info_of(root) | values))


def test_a_video_shorter_than_its_rows_leaves_that_episode_out(tmp_path):
    root = write_v21(tmp_path / "set", REWARDS)
    path = root / f"videos/chunk-000/{VIDEO}/episode_000001.mp4"
    write_video(path, [np.zeros((48, 64, 3), np.uint8)] * 5)
    imported = read(root)
    assert [one.episode is not None for one in imported] == [True, False, True, True]
    assert "episode_000001.mp4 has 5 frames of it, its rows are 8" in imported[1].problem


def test_a_shared_video_that_ends_early_leaves_its_last_episode_out(tmp_path):
    root = write_v3(tmp_path / "set", REWARDS)
    path = root / f"videos/{VIDEO}/chunk-000/file-000.mp4"
    write_video(path, [np.full((48, 64, 3), 90, np.uint8)] * (9 + 8 + 3))
    imported = read(root)
    assert [one.episode is not None for one in imported] == [True, True, False, True]
    assert "no picture at 2.000 s, for row 3 of 5" in imported[2].problem


def test_fewer_rows_than_the_metadata_say(tmp_path):
    root = write_v21(tmp_path / "set", REWARDS)
    path = root / "data/chunk-000/episode_000002.parquet"
    pq.write_table(pq.read_table(path).slice(0, 3), path)
    assert "has 3 rows of it; the metadata say 5" in read(root)[2].problem


@pytest.mark.parametrize("suffix", ["parquet", "mp4"])
def test_missing_and_damaged_files_are_named(tmp_path, suffix):
    root = write_v21(tmp_path / "set", REWARDS)
    files = sorted(root.rglob(f"*.{suffix}"))
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:100])
    imported = read(root)
    assert [one.episode is not None for one in imported] == [False, False, True, True]
    assert f"{files[0]} does not exist" in imported[0].problem
    assert f"{files[1]} is damaged" in imported[1].problem


def test_row_groups_that_are_no_episodes(tmp_path):
    """Data sets that were converted from v2.1 have them as pandas wrote them."""
    root = write_v3(tmp_path / "set", REWARDS)
    path = root / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=7)
    for number, one in enumerate(read(root, skip=frozenset({1}))):
        assert one.problem == ""
        assert one.episode.columns["observation.state"][0, 0] == [0, 2, 3][number]


@pytest.mark.parametrize("version", ["v1.6", "v4.0", None, 3])
def test_a_version_that_we_do_not_know(tmp_path, version):
    root = write_v3(tmp_path / "set", REWARDS)
    edit_info(root, codebase_version=version)
    with pytest.raises(DataError, match=r"codebase_version is .*; this rewardlab reads v2.0, v2.1, v3.0"):
        LeRobotSource(root, OPTIONS)


@pytest.mark.parametrize(
    "template", ["../../{chunk_index}.parquet", "/etc/passwd", "data/../../x", "{chunk_index.x}/../../y"]
)
def test_paths_that_leave_the_directory_are_refused(tmp_path, template):
    root = write_v3(tmp_path / "set", REWARDS)
    edit_info(root, data_path=template)
    with pytest.raises(DataError, match=r"outside of .*: refused"):
        LeRobotSource(root, OPTIONS)


def test_links_that_leave_the_directory_are_refused_but_for_those_of_the_hub(tmp_path):
    root = write_v3(tmp_path / "hub/snapshots/abc", REWARDS)
    path = root / "data/chunk-000/file-000.parquet"
    blob = tmp_path / "hub/blobs/0123"
    blob.parent.mkdir()
    path.rename(blob)
    path.symlink_to(blob)
    assert read(root)[0].problem == ""
    blob.rename(tmp_path / "elsewhere")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="refused"):
        LeRobotSource(root, OPTIONS)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"fps": 0}, "fps is 0"),
        ({"features": {}}, "no features"),
        ({"features": {"action": {"shape": [2]}}}, "'action' has no dtype"),
        ({"data_path": "data/{episode}.parquet"}, "expected chunk_index, file_index"),
        ({"data_path": None}, "no data_path"),
    ],
)
def test_odd_metadata_are_named(tmp_path, values, words):
    root = write_v3(tmp_path / "set", REWARDS)
    edit_info(root, **values)
    with pytest.raises(DataError, match=words):
        LeRobotSource(root, OPTIONS)


def test_pictures_that_are_not_in_the_file(tmp_path):
    root = write_v21(tmp_path / "set", REWARDS)
    path = root / "data/chunk-000/episode_000000.parquet"
    table = pq.read_table(path)
    gone = pa.array([{"bytes": None, "path": "images/frame.png"}] * len(table))
    pq.write_table(table.set_column(table.column_names.index(IMAGE), IMAGE, gone), path)
    assert "row 0 has no picture in the file (path 'images/frame.png')" in read(root)[0].problem


def test_timestamps_lead_to_the_pictures(tmp_path):
    """As in lerobot: a frame is at the start of its episode in the video plus its timestamp."""
    root = write_v21(tmp_path / "set", [[NO, NO, YES, YES]])
    path = root / "data/chunk-000/episode_000000.parquet"
    table = pq.read_table(path)
    times = pa.array([0.0, 0.1, 0.3, 0.3 + 0.2 / FPS], pa.float32())
    pq.write_table(table.set_column(table.column_names.index("timestamp"), "timestamp", times), path)
    assert "no picture at" in read(root)[0].problem


@pytest.mark.parametrize(("module", "name"), [("pyarrow.parquet", "pyarrow"), ("av", "PyAV")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, module, name):
    root = write_v3(tmp_path / "set", REWARDS)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ConfigError, match=rf"needs {name}, which is not installed .*: pip install 'rewardlab\[import\]'"
    ):
        read(root)
