"""HDF5 files of robomimic and LIBERO in, and files that are cut short, incomplete or lead elsewhere."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from rewardlab.data.imports.hdf5 import Hdf5Source
from rewardlab.data.imports.picture_size import PictureSize
from rewardlab.data.imports.source import ImportedEpisode, ImportOptions
from rewardlab.errors import DataError

STEPS = 6
REWARDS = [0, 0, 0, 1, 1, 1]
OPTIONS = ImportOptions(size=PictureSize(original=True))


def pictures(first: int, count: int) -> np.ndarray:
    return np.stack([np.full((8, 10, 3), 10 * (first + t), np.uint8) for t in range(count)])


def write(path: Path, *, libero: bool = False, next_obs: bool = True, demos: int = 2) -> Path:
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 20}})
        if libero:
            data.attrs["problem_info"] = json.dumps({"language_instruction": "open the drawer"})
        for number in range(demos):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = STEPS
            demo["actions"] = np.arange(1.0, 1 + 2 * STEPS).reshape(STEPS, 2)
            demo["rewards"] = np.array(REWARDS if not libero else [0] * (STEPS - 1) + [1], float)
            demo["dones"] = np.arange(STEPS) == STEPS - 1
            demo["obs/agentview_rgb" if libero else "obs/agentview_image"] = pictures(number, STEPS)
            demo["obs/agentview_depth"] = np.zeros((STEPS, 8, 10, 1), np.float32)
            demo["obs/robot0_eef_pos"] = np.arange(3.0 * STEPS).reshape(STEPS, 3)
            if next_obs and not libero:
                demo["next_obs/agentview_image"] = pictures(number + 1, STEPS)
                demo["next_obs/robot0_eef_pos"] = np.arange(3.0 * STEPS).reshape(STEPS, 3) + 3
        file["mask/train"] = np.array([b"demo_0"])
    return path


def read(path: Path, skip: frozenset[int] = frozenset(), **options: object) -> list[ImportedEpisode]:
    return list(Hdf5Source(path, ImportOptions(**{**vars(OPTIONS), **options})).episodes(skip))


def levels(frames: np.ndarray) -> list[int]:
    return (frames[:, 0, 0, 0] // 10).tolist()


def test_robomimic_rows_become_arrivals_and_the_last_frame_is_in_next_obs(tmp_path):
    path = write(tmp_path / "demo.hdf5")
    assert Hdf5Source.recognises(path)
    first, second = read(path)
    columns = first.episode.columns
    assert columns["action"][:, 0].tolist() == [0, 1, 3, 5, 7, 9, 11]
    assert columns["success"].tolist() == [False, *map(bool, REWARDS)]
    assert columns["reward"].tolist() == [0, *REWARDS]
    assert columns["terminated"].tolist() == [False] * STEPS + [True]
    assert levels(columns["observation.images.agentview"]) == list(range(STEPS + 1))
    assert columns["observation.robot0_eef_pos"][:, 0].tolist() == [3 * t for t in range(STEPS + 1)]
    assert levels(second.episode.columns["observation.images.agentview"])[0] == 1
    assert first.episode.facts.task == "Lift"
    assert list(first.episode.facts.cameras) == ["agentview"]


def test_without_next_obs_the_last_verdict_has_no_frame(tmp_path):
    imported = read(write(tmp_path / "demo.hdf5", next_obs=False))[0]
    assert imported.episode.columns["success"].tolist() == [False, False, False, False, True, True]
    assert imported.episode.facts.success
    assert any("without a frame" in words for words in imported.notes)


def test_libero_has_the_frame_after_the_action_and_frames_before_the_end_may_be_successes(tmp_path):
    source = Hdf5Source(write(tmp_path / "demo.hdf5", libero=True), OPTIONS)
    columns = next(source.episodes(frozenset())).episode.columns
    assert columns["action"][:, 0].tolist() == [0, 3, 5, 7, 9, 11]
    assert np.flatnonzero(columns["success"]).tolist() == [STEPS - 1]
    assert np.flatnonzero(columns["unsure"]).tolist() == list(range(STEPS - 1))
    assert any("upside down" in line for line in source.remarks)
    assert read(source.path)[0].episode.facts.task == "open the drawer"
    assert "unsure" not in read(source.path, unsure_seconds=0.0)[0].episode.columns


def test_files_in_a_directory_and_episodes_that_are_skipped(tmp_path):
    write(tmp_path / "a.hdf5")
    write(tmp_path / "b.hdf5", demos=1)
    Path(tmp_path, "c.hdf5").write_bytes(Path(tmp_path, "a.hdf5").read_bytes()[:3000])
    source = Hdf5Source(tmp_path, OPTIONS)
    assert Hdf5Source.recognises(tmp_path)
    assert [(one.number, one.name) for one in source.episodes(frozenset({1}))] == [
        (0, "a.hdf5: demo_0"),
        (2, "b.hdf5: demo_0"),
    ]
    assert source.left_out[0][0] == "c.hdf5"


def test_every_nth_picture(tmp_path):
    columns = read(write(tmp_path / "demo.hdf5"), every=4)[0].episode.columns
    assert columns["frame_rows"].tolist() == [0, 4, 6]
    assert levels(columns["observation.images.agentview"]) == [0, 4, 6]


def test_large_pictures_are_reduced(tmp_path):
    columns = read(write(tmp_path / "demo.hdf5"), size=PictureSize(wanted=(4, 5)))[0].episode.columns
    assert columns["observation.images.agentview"].shape == (STEPS + 1, 4, 5, 3)


def test_rewards_that_are_zero_or_missing_are_no_labels(tmp_path):
    path = write(tmp_path / "demo.hdf5")
    with h5py.File(path, "a") as file:
        file["data/demo_0"].move("rewards", "reward")
        file["data/demo_1/rewards"][...] = 0
    source = Hdf5Source(path, OPTIONS)
    assert any("NO LABELS" in line for line in source.remarks)
    first, second = source.episodes(frozenset())
    assert first.episode.columns["unsure"].all()
    assert second.episode.columns["unsure"].all()
    assert any("did you mean 'reward'" in words for words in first.notes)


def test_a_file_that_is_cut_short(tmp_path):
    path = write(tmp_path / "demo.hdf5")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError, match=r"demo.hdf5 is cut short \(.*truncated"):
        Hdf5Source(path, OPTIONS)


@pytest.mark.parametrize(
    ("name", "new", "words"),
    [
        ("data", "dat", "no 'data' in /. Did you mean 'dat'? It has dat"),
        ("data/demo_0", "data/episode_0", None),
        ("data/demo_0/obs", "data/demo_0/obss", "no 'obs' in /data/demo_0. Did you mean 'obss'? It has actions, dones"),
        ("data/demo_0/actions", "data/demo_0/action", "no 'actions' in /data/demo_0. Did you mean 'action'?"),
        ("data/demo_0/obs/agentview_image", "data/demo_0/pictures", "no pictures (uint8 [steps, height, width, 3])"),
    ],
)
def test_missing_keys_are_named_with_the_nearest(tmp_path, name, new, words):
    path = write(tmp_path / "demo.hdf5")
    with h5py.File(path, "a") as file:
        file.move(name, new)
    if words is None:
        assert len(read(path)) == 1
    elif name == "data":
        with pytest.raises(DataError) as error:
            Hdf5Source(path, OPTIONS)
        assert words in str(error.value)
    else:
        first, second = read(path)
        assert words in first.problem
        assert second.problem == ""


def test_a_camera_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"--camera agentvew: no such camera in /data/demo_0/obs. Did you mean 'agentv"):
        read(write(tmp_path / "demo.hdf5"), cameras=("agentvew",))


def test_lengths_that_differ(tmp_path):
    path = write(tmp_path / "demo.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_0/obs/agentview_image"]
        file["data/demo_0/obs/agentview_image"] = pictures(0, STEPS - 1)
    assert "'agentview_image' has 5 rows, 'actions' has 6" in read(path)[0].problem


def test_other_files_are_not_read(tmp_path):
    path, other = write(tmp_path / "demo.hdf5"), write(tmp_path / "other.hdf5")
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(256)) * 10)
    with h5py.File(path, "a") as file:
        del file["data/demo_0/actions"], file["data/demo_1/obs/agentview_image"]
        file["data/demo_0/actions"] = h5py.ExternalLink(other, "/data/demo_0/actions")
        shape = (STEPS, 8, 10, 3)
        file["data/demo_1/obs"].create_dataset(
            "agentview_image", shape, np.uint8, external=[(str(secret), 0, int(np.prod(shape)))]
        )
    first, second = read(path)
    assert "is a link to another file: refused" in first.problem
    assert "has its numbers in another file: refused" in second.problem


def test_a_small_file_must_not_fill_the_memory(tmp_path):
    path = write(tmp_path / "demo.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_0/rewards"]
        file["data/demo_0"].create_dataset("rewards", (10**10,), np.float64, chunks=(1000,))
    assert "more than the limit" in read(path)[0].problem
