"""RewardDataCollector."""

from types import SimpleNamespace

import numpy as np
import pytest

from rewardlab.data import RewardDataCollector, read_episodes
from rewardlab.errors import DataError


def output(values, success=(0, 0), done=(0, 0), final=None):
    def images(levels):
        return np.broadcast_to(np.array(levels, np.uint8)[:, None, None, None], (len(levels), 4, 5, 3))

    values = {"obs": {"images": {"base_camera": images(values)}}, "success_frame": np.array(success), "dones": done}
    return {**values, "final_obs": None if final is None else {"images": {"base_camera": images(final)}}}


def levels(path):
    return np.rint(np.load(path, allow_pickle=True).item()["images"]["base_camera"][:, 0, 0, 0] * 255).tolist()


@pytest.fixture
def collector(tmp_path):
    with RewardDataCollector(positive_dir=tmp_path / "positive", negative_dir=tmp_path / "negative") as collector:
        yield collector


def test_defaults_write_something(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    collector = RewardDataCollector()
    collector.add_env_output(output([1, 2]), {}, False)
    collector.add_env_output(output([3, 4], success=[1, 0]), {}, is_last_step=True)
    assert levels("reward_data/positive/000000.npy") == [1, 3]
    assert levels("reward_data/negative/000000.npy") == [2, 4]


def test_each_environment_is_saved_when_it_is_done(tmp_path, collector):
    collector.add_env_output(output([1, 11]), {})
    collector.add_env_output(output([2, 12], success=[1, 0], done=[True, False]), {})
    collector.add_env_output(output([3, 13], success=[0, 0], done=[False, True]), {})
    collector.close()
    assert levels(tmp_path / "positive" / "000000.npy") == [1, 2]
    assert levels(tmp_path / "negative" / "000000.npy") == [11, 12, 13]
    assert len(read_episodes(tmp_path)) == 2  # the second trajectory of env 0 is unfinished


def test_the_reset_frame_opens_the_next_trajectory(tmp_path, collector):
    collector.add_env_output(output([1, 11]), {})
    done = output([101, 12], success=[1, 0], done=[True, False], final=[2, 0])
    collector.add_env_output(done, {"success_once": np.array([True, False])})
    collector.add_env_output(output([102, 13]), {"success_once": np.array([False, False])}, is_last_step=True)
    assert levels(tmp_path / "positive" / "000000.npy") == [1, 2]
    assert sorted(map(levels, (tmp_path / "negative").iterdir())) == [[11, 12, 13], [101, 102]]


def test_success_once_makes_a_trajectory_positive_but_labels_no_frame(tmp_path, collector):
    collector.add_env_output(output([1, 2]), {"success_once": np.array([True, False])})
    collector.add_env_output(output([1, 2], done=[1, 1]), {"success_once": np.array([True, False])}, True)
    content = np.load(tmp_path / "positive" / "000000.npy", allow_pickle=True).item()
    assert content["labels"].tolist() == [0, 0]
    assert read_episodes(tmp_path / "positive")[0].facts.success
    assert len(read_episodes(tmp_path / "negative")) == 1


def test_limits_count_what_is_on_disk(tmp_path):
    for expected in (2, 3):
        dirs = {"positive_dir": tmp_path / "positive", "negative_dir": tmp_path / "negative"}
        with RewardDataCollector(**dirs, max_positive_trajectories=expected, max_negative_trajectories=0) as collector:
            for _ in range(5):
                collector.add_env_output(output([1, 2], success=[1, 0], done=[1, 1]), {})
            assert collector.full
        assert len(list((tmp_path / "positive").iterdir())) == expected
    assert not (tmp_path / "negative").exists() or not list((tmp_path / "negative").iterdir())


def test_save_trajectory_ends_one_here_and_now(tmp_path, collector):
    collector.add_env_output(output([1, 2]), {})
    collector.add_env_output(output([3, 4]), {})
    collector.save_trajectory(1)
    assert levels(tmp_path / "negative" / "000000.npy") == [2, 4]
    collector.save_trajectory()
    assert len(read_episodes(tmp_path)) == 2


@pytest.mark.parametrize("place", ["images", "flat", "slashed"])
@pytest.mark.parametrize("kind", ["uint8 HWC", "uint8 CHW", "float HWC", "float CHW", "torch"])
def test_images_in_any_form(tmp_path, collector, place, kind):
    frames = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    given = np.moveaxis(frames, -1, 1) if "CHW" in kind else frames
    given = given.astype(np.float32) / 255 if "float" in kind else given
    if kind == "torch":
        given = pytest.importorskip("torch").from_numpy(frames)
    obs = {"images": {"images": {"base_camera": given}}, "flat": {"base_camera": given}}
    obs["slashed"] = {"images/base_camera": given}
    env_output = SimpleNamespace(obs=obs[place], success_frame=np.zeros((2, 3)), dones=np.zeros((2, 3)))
    collector.add_env_output(env_output, {}, is_last_step=True)
    found = {stored.frame("base_camera", 0).tobytes() for stored in read_episodes(tmp_path)}
    assert found == {frame.tobytes() for frame in frames}
    image = collector._extract_image(given, key_offset=1)
    assert (image.dtype, image.shape) == (np.float32, (3, 4, 5))
    np.testing.assert_allclose(image, np.moveaxis(frames[1], -1, 0) / 255, atol=1e-6)


@pytest.mark.parametrize(
    ("env_output", "message"),
    [
        ({"obs": {"images": {"wrist": 1}}}, "no images of camera 'base_camera' in obs; found: wrist"),
        ({"obs": {"base_camera": np.zeros((2, 4, 4), np.uint8)}}, r"shape \[2, 4, 4\]"),
        ({"obs": {"base_camera": np.zeros((4, 4, 3), np.uint8)}}, "expected one per environment"),
        ({"obs": {"base_camera": np.zeros((2, 4, 4, 3), np.int32)}}, "dtype int32; expected uint8"),
        ({"obs": {"base_camera": np.full((2, 4, 4, 3), 200.0)}}, "values from 200 to 200"),
        ({"obs": {"base_camera": np.full((2, 4, 4, 3), np.nan)}}, r"expected \[0, 1\]"),
        ({**output([1, 2]), "success_frame": np.zeros(3)}, r"2 images but values of shape \[3\]"),
    ],
)
def test_wrong_outputs_are_explained(collector, env_output, message):
    with pytest.raises(DataError, match=message):
        collector.add_env_output(env_output, {})


@pytest.mark.parametrize("value", [np.nan, "yes"])
@pytest.mark.parametrize("key", ["success_frame", "success_once"])
def test_a_success_that_is_neither_a_boolean_nor_a_number_is_an_error(collector, key, value):
    odd, frame = np.array([value, value]), output([1, 2])
    info = {"success_once": odd} if key == "success_once" else {}
    with pytest.raises(DataError, match=f"{key} has '{value}'"):
        collector.add_env_output(frame if info else {**frame, "success_frame": odd}, info)
