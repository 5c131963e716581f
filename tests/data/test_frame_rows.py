"""Episodes that have pictures of some rows only: every format, every reader, and what needs all pictures says so."""

import dataclasses
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from rewardlab.cli import main
from rewardlab.data import Episode, EpisodeWriter, read_episodes, summarize, verify
from rewardlab.data.contact_sheet import draw_contact_sheet
from rewardlab.data.convert import convert_episodes
from rewardlab.data.episodes import EpisodeOrigin, content_digest
from rewardlab.data.frames import sample_per_episode, tabulate
from rewardlab.data.stored_frames import StoredFrames
from rewardlab.errors import DataError
from rewardlab.rewards.zoo.experts import expert_transitions
from rewardlab.workers.demonstrations import read_demonstrations

ROWS = [1, 3, 4, 5]  # of 6; the labels are 0 0 0 1 1 0
IMAGES = "observation.images."
Make = Callable[..., Episode]


@pytest.fixture
def sparse(make_episode: Make) -> Episode:
    return thin(make_episode())


def thin(episode: Episode, rows: list[int] = ROWS) -> Episode:
    columns = {name: column[rows] if name.startswith(IMAGES) else column for name, column in episode.columns.items()}
    columns["frame_rows"] = np.array(rows, np.int64)
    thinned = Episode.from_columns(columns, task="PickCube", seed=7, policy="expert")
    origin = EpisodeOrigin("run", 0, 4, content_digest(thinned.checksums))
    return dataclasses.replace(thinned, origin=origin)


@pytest.mark.parametrize("name", ["safetensors", "pickle", "npy"])
def test_round_trip(tmp_path: Path, sparse: Episode, make_episode: Make, name: str) -> None:
    stored = read_episodes(EpisodeWriter(tmp_path, name).write(sparse))[0]
    whole, labels = make_episode(), sparse.columns["success"]
    rows = list(range(4)) if name == "npy" else ROWS  # npy has no place for rows without pictures
    times = dict(zip(rows, ROWS, strict=True))
    assert stored.frame_rows().tolist() == rows
    assert stored.length == (4 if name == "npy" else 6)
    assert stored.labels()[rows].tolist() == labels[ROWS].tolist()
    assert stored.facts.success
    for row, time in times.items():
        np.testing.assert_array_equal(stored.frame("wrist_camera", row), whole.columns[IMAGES + "wrist_camera"][time])
    np.testing.assert_array_equal(stored.frame("base_camera", -1), whole.columns[IMAGES + "base_camera"][-1])
    batches = list(stored.batches(["base_camera"], 3))
    assert [len(found) for _, found in batches] == [3, 1]
    np.testing.assert_array_equal(np.concatenate([found for _, found in batches]), labels[ROWS])
    pictures = np.concatenate([part["base_camera"] for part, _ in batches])
    np.testing.assert_array_equal(pictures, sparse.columns[IMAGES + "base_camera"])
    assert stored.origin == sparse.origin
    assert verify(tmp_path) == []
    if name == "safetensors":
        assert stored.load().checksums == sparse.checksums
    if name == "pickle":
        content = pickle.loads(stored.path.read_bytes())
        assert ["main_images" in frame["obs"] for frame in content["frames"]] == [t in ROWS for t in range(6)]
        assert all("states" in frame["obs"] for frame in content["frames"])


@pytest.mark.parametrize("name", ["safetensors", "pickle"])
def test_a_frame_without_a_picture(tmp_path: Path, sparse: Episode, name: str) -> None:
    stored = read_episodes(EpisodeWriter(tmp_path, name).write(sparse))[0]
    with pytest.raises(DataError, match=r"episode_000000\..*: frame 2 has no picture; 4 of 6 frames have one"):
        stored.frame("base_camera", 2)
    with pytest.raises(DataError, match="no frame 6; the episode has 6 frames"):
        stored.frame("base_camera", 6)


def test_formats_one_after_the_other(tmp_path: Path, sparse: Episode) -> None:
    EpisodeWriter(tmp_path / "a").write(sparse)
    for before, after, name in (("a", "b", "pickle"), ("b", "c", "safetensors"), ("c", "d", "npy")):
        convert_episodes(tmp_path / before, tmp_path / after, name)
    back = read_episodes(tmp_path / "c")[0].load()
    for name in (IMAGES + "base_camera", IMAGES + "wrist_camera", "frame_rows", "success", "action", "reward"):
        np.testing.assert_array_equal(back.columns[name], sparse.columns[name])
    assert len(read_episodes(tmp_path / "d")[0].load()) == 4
    assert {episode.origin for letter in "abcd" for episode in read_episodes(tmp_path / letter)} == {sparse.origin}


def test_files_with_all_pictures_are_as_they_were(tmp_path: Path, make_episode: Make, sparse: Episode) -> None:
    """Readers of the first version would take the wrong picture for a row, so a file with fewer has the second."""
    found = [read_episodes(EpisodeWriter(tmp_path).write(episode))[0].path for episode in (make_episode(), sparse)]
    versions = [re.findall(rb'"version":"(\d)"', path.read_bytes())[0] for path in found]
    assert versions == [b"1", b"2"]
    for path in found:
        path.write_bytes(path.read_bytes().replace(b'"version":"2"', b'"version":"4"'))
    with pytest.raises(DataError, match="version 4; this rewardlab reads versions 1 to 3"):
        read_episodes(found[1])[0].load()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 1, 1, 5], r"'frame_rows' is \[0, 1, 1, 5\]; expected rising numbers from 0 to 5"),
        ([0, 1, 2, 6], "expected rising numbers from 0 to 5"),
        ([-1, 1, 2, 3], "expected rising numbers from 0 to 5"),
        ([0, 1, 2], r"base_camera' has 4 pictures, 'frame_rows' has 3"),
    ],
)
def test_wrong_rows(sparse: Episode, rows: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Episode.from_columns({**sparse.columns, "frame_rows": np.array(rows, np.int64)})


def test_rows_without_pictures_or_of_another_type(sparse: Episode, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'frame_rows' is float64"):
        Episode.from_columns({**sparse.columns, "frame_rows": np.array(ROWS, float)})
    states = {name: column for name, column in sparse.columns.items() if not name.startswith(IMAGES)}
    with pytest.raises(DataError, match="but there are no pictures"):
        Episode.from_columns(states)
    with pytest.raises(DataError, match="expected rising"):
        Episode.from_columns({**states, "frame_rows": np.zeros(0, np.int64)})


def test_a_flipped_bit_in_the_rows_is_noticed(tmp_path: Path, sparse: Episode) -> None:
    path = EpisodeWriter(tmp_path).write(sparse)
    data = path.read_bytes()
    place = data.index(sparse.columns["frame_rows"].tobytes())
    path.write_bytes(data[:place] + bytes([data[place] ^ 3]) + data[place + 1 :])
    stored = read_episodes(path)[0]
    for use in (stored.frame_rows, lambda: stored.frame("base_camera", 3), stored.load):
        with pytest.raises(DataError, match="'frame_rows' does not match its checksum"):
            use()


def test_a_pickle_with_a_picture_of_one_camera_only(tmp_path: Path, sparse: Episode) -> None:
    path = EpisodeWriter(tmp_path, "pickle").write(sparse)
    content = pickle.loads(path.read_bytes())
    del content["frames"][4]["obs"]["main_images"]
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match="frame 4 has no 'main_images', but a picture of another camera"):
        read_episodes(path)[0].load()
    content["frames"][4]["obs"] |= {"main_images": None, "wrist_images": None}
    path.write_bytes(pickle.dumps(content))
    assert read_episodes(path)[0].frame_rows().tolist() == [1, 3, 5]


def test_training_takes_rows_with_pictures(tmp_path: Path, sparse: Episode, make_episode: Make) -> None:
    writer = EpisodeWriter(tmp_path)
    writer.write(sparse)
    writer.write(make_episode(seed=1))
    table = tabulate(read_episodes(tmp_path))
    assert table.time.tolist() == [*ROWS, *range(6)]
    assert table.label.tolist() == [False, True, True, False, False, False, False, True, True, False]
    assert table.describe() == "10 frames (4 success, 6 failure) of 2 episodes"
    batch = StoredFrames(table, ["base_camera"])[np.arange(4)]
    np.testing.assert_array_equal(batch.images["base_camera"].numpy(), sparse.columns[IMAGES + "base_camera"])
    assert sample_per_episode(table, 1, 0).time.tolist() == [5, 5]


def test_frames_are_pictures_in_what_is_counted_and_shown(
    tmp_path: Path, sparse: Episode, capsys: pytest.CaptureFixture[str]
) -> None:
    EpisodeWriter(tmp_path / "data").write(sparse)
    summary = summarize(tmp_path / "data")
    assert (summary.success_frames, summary.failure_frames, summary.without_picture) == (2, 2, 2)
    assert main(["data", "info", str(tmp_path / "data")]) == 0
    assert re.search(r"frames\s+4   success 2   failure 2\n\s+2   more have no picture", capsys.readouterr().out)
    assert main(["data", "verify", str(tmp_path / "data")]) == 0
    sheet = np.asarray(Image.open(draw_contact_sheet(tmp_path / "data", tmp_path / "sheet.png", frames=4)))
    border = sheet[45]  # of the tiles
    colours = [(border == colour).all(axis=-1) for colour in ((24, 140, 60), (200, 44, 44))]
    starts = np.flatnonzero(np.diff(np.concatenate([[0], (colours[0] | colours[1]).astype(int), [0]])) > 0)
    assert ["green" if colours[0][start] else "red" for start in starts] == ["red", "green", "green", "red"]


def test_transitions_have_states_but_no_pictures(sparse: Episode, make_episode: Make) -> None:
    moves, whole = sparse.transitions(), make_episode().transitions()
    assert ("observation", "images") not in moves.keys(include_nested=True)
    assert "frame_rows" not in moves.keys()  # noqa: SIM118 - a TensorDict's `in` is another
    for key in ("action", "env_reward", ("observation", "state"), ("next", "observation", "state")):
        assert moves[key].equal(whole[key])


def test_demonstrations(tmp_path: Path, sparse: Episode) -> None:
    """For a policy and a reward that look at states they are whole; who looks at pictures is told what to do."""
    path = EpisodeWriter(tmp_path).write(sparse)
    state = spaces.Box(-9, 9, (5,), np.float32)
    demos, _ = read_demonstrations(tmp_path, state)
    assert len(demos) == 5
    assert expert_transitions(str(tmp_path))["observation", "state"].shape == (5, 5)
    needs = rf"{path}: the {{}} looks at pictures. Only 4 of its 6 frames have .* with data.collection.frames=all"
    with pytest.raises(DataError, match=needs.format("reward model")):
        read_demonstrations(tmp_path, state, ["base_camera"])
    pictures = spaces.Dict({"images": spaces.Dict({"base_camera": spaces.Box(0, 255, (8, 8, 3), np.uint8)})})
    with pytest.raises(DataError, match=needs.format("policy")):
        read_demonstrations(tmp_path, pictures)


def test_an_episode_of_pictures_alone_has_no_transitions(sparse: Episode) -> None:
    columns: dict[str, Any] = {k: v for k, v in sparse.columns.items() if k != "observation.state"}
    with pytest.raises(DataError, match=r"no transitions. Only 4 of its 6 frames .*data.collection.frames=all"):
        Episode.from_columns(columns).transitions()
