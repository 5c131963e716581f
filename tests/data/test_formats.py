import dataclasses
import json
import pickle
import resource
import struct
import zlib

import numpy as np
import pytest
import safetensors.numpy

from rewardlab.cli import main
from rewardlab.data import FORMATS, Episode, EpisodeWriter, convert_episodes, read_episodes
from rewardlab.data.episodes import EpisodeOrigin, content_digest
from rewardlab.data.formats.safetensors_file import _header
from rewardlab.errors import ConfigError, DataError

LEFT_OUT = {
    "safetensors": set(),
    "pickle": {"env_reward"},
    "npy": {"env_reward", "reward", "action", "terminated", "truncated", "grasp", "observation.state"},
}


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("success", [True, False])
def test_round_trip(tmp_path, make_episode, name, success):
    episode = make_episode(success=success)
    path = EpisodeWriter(tmp_path, name).write(episode)
    (stored,) = read_episodes(tmp_path)
    loaded = stored.load()
    assert set(loaded.columns) == set(episode.columns) - LEFT_OUT[name]
    for column, array in loaded.columns.items():
        np.testing.assert_array_equal(array, episode.columns[column])
        assert array.dtype == episode.columns[column].dtype
    assert stored.path == path
    assert stored.length == 6
    assert stored.facts.success == success
    assert stored.facts.cameras == episode.facts.cameras
    if name == "safetensors":
        assert loaded.facts == episode.facts
    np.testing.assert_array_equal(stored.labels(), episode.columns["success"])
    for t in (0, 3, -1):
        frame = stored.frame("wrist_camera", t)
        np.testing.assert_array_equal(frame, episode.columns["observation.images.wrist_camera"][t])


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_frame_or_camera_that_is_not_there(tmp_path, make_episode, name):
    EpisodeWriter(tmp_path, name).write(make_episode())
    (stored,) = read_episodes(tmp_path)
    with pytest.raises(DataError, match=r"no camera 'top'.*base_camera, wrist_camera"):
        stored.frame("top", 0)
    with pytest.raises(DataError, match="no frame 6; the episode has 6"):
        stored.frame("base_camera", 6)


def test_all_256_levels_survive_the_floats_of_npy(tmp_path):
    frames = np.arange(256, dtype=np.uint8).repeat(3).reshape(1, 16, 16, 3)
    columns = {"observation.images.base_camera": frames, "success": np.ones(1, dtype=bool)}
    EpisodeWriter(tmp_path, "npy").write(Episode.from_columns(columns))
    np.testing.assert_array_equal(read_episodes(tmp_path)[0].frame("base_camera", 0), frames[0])


def test_npy_has_exactly_its_layout(tmp_path, make_episode):
    writer = EpisodeWriter(tmp_path, "npy")
    positive, negative = writer.write(make_episode()), writer.write(make_episode(success=False))
    assert positive == tmp_path / "positive" / "000000.npy"
    assert negative == tmp_path / "negative" / "000000.npy"  # a counter per folder
    content = np.load(positive, allow_pickle=True).item()
    assert set(content) == {"images", "labels"}
    assert set(content["images"]) == {"base_camera", "wrist_camera"}
    image, labels = content["images"]["base_camera"], content["labels"]
    assert (image.dtype, image.shape) == (np.float32, (6, 3, 8, 8))
    assert image.min() >= 0
    assert image.max() <= 1
    assert (labels.dtype, labels.tolist()) == (np.float32, [0, 0, 0, 1, 1, 0])


def test_pickle_has_exactly_its_layout(tmp_path, make_episode):
    writer = EpisodeWriter(tmp_path, "pickle")
    first, second = writer.write(make_episode()), writer.write(make_episode(success=False))
    assert first == tmp_path / "success" / "episode_000000.pkl"
    assert second == tmp_path / "failure" / "episode_000001.pkl"  # one counter for both
    content = pickle.loads(first.read_bytes())
    assert set(content) == {"frames", "success", "label"}
    assert (content["success"], content["label"], len(content["frames"])) == (True, 1, 6)
    assert pickle.loads(second.read_bytes())["label"] == 0
    frame = content["frames"][3]
    assert set(frame) == {"obs", "action", "reward", "done", "grasp", "success"}
    assert set(frame["obs"]) == {"main_images", "wrist_images", "states"}
    assert frame["obs"]["main_images"].dtype == np.uint8
    assert (frame["done"], frame["grasp"], frame["success"]) == (False, True, True)
    assert content["frames"][-1]["done"] is True


def test_the_library_reads_our_safetensors(tmp_path, make_episode):
    episode = make_episode()
    path = EpisodeWriter(tmp_path).write(episode)
    tensors = safetensors.numpy.load_file(path)
    for name, column in episode.columns.items():
        np.testing.assert_array_equal(tensors[name], column)


def test_foreign_pickle_with_tensors_channels_first_floats(tmp_path):
    torch = pytest.importorskip("torch")
    images = torch.randint(0, 256, (3, 3, 4, 5), dtype=torch.uint8)
    frames = [
        {
            "obs": {"main_images": images[t].float() / 255, "states": torch.tensor([float(t), 1.0])},
            "action": torch.tensor([0.5]),
            "reward": np.float64(0.25),
            "done": torch.tensor([t == 2]),
            "grasp": None,
            "success": np.bool_(t == 2),
        }
        for t in range(3)
    ]
    path = tmp_path / "episode.pkl"
    path.write_bytes(pickle.dumps({"frames": frames, "success": torch.tensor(True), "label": 1}))
    columns = read_episodes(path)[0].load().columns
    np.testing.assert_array_equal(columns["observation.images.base_camera"], images.permute(0, 2, 3, 1))
    assert columns["terminated"].tolist() == [False, False, True]  # done and a success
    assert not columns["truncated"].any()
    assert columns["observation.state"].tolist() == [[0, 1], [1, 1], [2, 1]]
    assert columns["reward"].dtype == np.float32
    assert "grasp" not in columns


def test_images_on_another_scale_are_refused(tmp_path, make_episode):
    path = EpisodeWriter(tmp_path, "npy").write(make_episode())
    content = np.load(path, allow_pickle=True).item()
    content["images"]["base_camera"] *= 255
    np.save(path, content, allow_pickle=True)
    with pytest.raises(DataError, match=r"values from 0 to 255; expected \[0, 1\]"):
        read_episodes(path)[0].load()


@pytest.mark.parametrize("name", list(FORMATS))
def test_an_episode_without_states_or_actions(tmp_path, make_episode, name):
    keep = ("observation.images.base_camera", "success")
    episode = Episode.from_columns({name: make_episode().columns[name] for name in keep})
    EpisodeWriter(tmp_path, name).write(episode)
    loaded = read_episodes(tmp_path)[0].load()
    assert set(loaded.columns) - {"terminated", "truncated"} == set(keep)


def test_states_alone_fit_all_formats_but_npy(tmp_path, make_episode):
    columns = make_episode().columns
    episode = Episode.from_columns({name: columns[name] for name in ("observation.state", "action", "success")})
    for name in ("safetensors", "pickle"):
        EpisodeWriter(tmp_path / name, name).write(episode)
        assert read_episodes(tmp_path / name)[0].facts.cameras == {}
    with pytest.raises(DataError, match="no images"):
        EpisodeWriter(tmp_path / "npy", "npy").write(episode)


def test_size_is_at_most_5_percent_above_the_raw_bytes(tmp_path, make_episode):
    episode = make_episode(length=51, size=64)
    path = EpisodeWriter(tmp_path).write(episode)
    assert path.stat().st_size <= 1.05 * sum(column.nbytes for column in episode.columns.values())


def test_one_frame_of_a_huge_episode_does_not_read_the_file(tmp_path, make_episode):
    """4.6 GB of frames, sparse on disk: reading them would show in the memory of this process."""
    length = 6_000
    episode = make_episode(length=1, size=512)
    path = EpisodeWriter(tmp_path).write(episode)
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    frames = np.lib.stride_tricks.as_strided(np.zeros((512, 512, 3), np.uint8), (length, 512, 512, 3), (0, 1536, 3, 1))
    header = _header({"observation.images.base_camera": frames}, metadata)
    frame = episode.columns["observation.images.base_camera"][0]
    wanted = length - 10
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        start = file.tell()
        file.seek(start + wanted * frame.nbytes)
        file.write(frame.tobytes())
        file.truncate(start + length * frame.nbytes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    np.testing.assert_array_equal(read_episodes(path)[0].frame("base_camera", wanted), frame)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024  # KiB


def test_a_file_of_weights_is_not_an_episode(tmp_path):
    safetensors.numpy.save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match="not an episode"):
        read_episodes(tmp_path)[0].load()


def test_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'safetensors'"):
        EpisodeWriter(tmp_path, "safetensor")


@pytest.mark.parametrize("name", list(FORMATS))
def test_an_episode_carries_its_origin_and_a_copy_is_not_written(tmp_path, make_episode, name):
    episode = make_episode()
    first = dataclasses.replace(episode, origin=EpisodeOrigin("ppo seed 0", 1, 7, content_digest(episode.checksums)))
    for _ in range(2):
        path = EpisodeWriter(tmp_path, name).write(first)
    (stored,) = read_episodes(tmp_path)
    assert stored.path == path
    assert stored.origin == stored.load().origin == first.origin
    assert stored.digest == first.origin.digest
    other = make_episode(seed=1)
    second = dataclasses.replace(first, columns=other.columns, origin=dataclasses.replace(first.origin, digest="other"))
    assert EpisodeWriter(tmp_path, name).write(second) != path  # the same identity, another content
    EpisodeWriter(tmp_path, name).write(episode)
    assert [episode.origin is None for episode in read_episodes(tmp_path)] == [False, False, True]


@pytest.mark.parametrize(("name", "load"), [("pickle", pickle.loads), ("npy", None)])
def test_other_readers_of_pickles_see_nothing_of_the_origin(tmp_path, make_episode, name, load):
    episode = make_episode()
    path = EpisodeWriter(tmp_path, name).write(dataclasses.replace(episode, origin=EpisodeOrigin("run", 0, 0, "d")))
    content = np.load(path, allow_pickle=True).item() if load is None else load(path.read_bytes())
    assert set(content) == ({"images", "labels"} if name == "npy" else {"frames", "success", "label"})


def test_every_flipped_bit_of_an_origin_is_noticed(tmp_path, make_episode):
    origin = EpisodeOrigin("the run", 0, 12, "digest")
    path = EpisodeWriter(tmp_path).write(dataclasses.replace(make_episode(length=1, size=2), origin=origin))
    whole = path.read_bytes()
    place = whole.index(b"the run")
    for bit in range(8 * len("the run")):
        damaged = bytearray(whole)
        damaged[place + bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DataError):
            read_episodes(path)[0].load()


@pytest.mark.parametrize("name", ["pickle", "npy"])
def test_a_file_that_is_cut_within_its_origin_is_damaged(tmp_path, make_episode, name):
    episode = make_episode(length=2, size=4)
    without = len(EpisodeWriter(tmp_path / "without", name).write(episode).read_bytes())
    path = EpisodeWriter(tmp_path, name).write(dataclasses.replace(episode, origin=EpisodeOrigin("run", 0, 0, "d")))
    whole = path.read_bytes()
    for length in range(without + 1, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="is cut short"):
            read_episodes(path)[0].load()
    path.write_bytes(whole[:without])
    assert read_episodes(path)[0].load().origin is None  # as earlier versions wrote it


def test_converting_keeps_origins_and_leaves_out_copies(tmp_path, make_episode):
    origin = EpisodeOrigin("run", 0, 3, "digest")
    for place in ("a", "b"):
        EpisodeWriter(tmp_path / place).write(dataclasses.replace(make_episode(), origin=origin))
    assert convert_episodes([tmp_path / "a", tmp_path / "b"], tmp_path / "c", "pickle") == 1
    assert read_episodes(tmp_path / "c")[0].origin == origin


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task", ["PickCube"]),
        ("policy", {"a": 1}),
        ("seed", "seven"),
        ("length", "6"),
        ("length", -1),
        ("success", "yes"),
        ("success_at_end", None),
        ("cameras", ["base_camera"]),
        ("cameras", {"base_camera": "8x8"}),
        ("cameras", {"base_camera": [8, -8]}),
    ],
)
def test_facts_are_checked_when_they_are_read(tmp_path, make_episode, capsys, name, value):
    path = EpisodeWriter(tmp_path).write(make_episode())
    rewrite_facts(path, **{name: value})
    with pytest.raises(DataError, match=rf"{path}: the facts say {name}"):
        _ = read_episodes(path)[0].facts
    assert main(["data", "info", str(tmp_path)]) == 1
    assert f"the facts say {name}" in capsys.readouterr().out


def test_missing_facts_and_facts_of_later_versions(tmp_path, make_episode):
    path = EpisodeWriter(tmp_path).write(make_episode())
    rewrite_facts(path, invented_later=1)
    assert read_episodes(path)[0].facts == make_episode().facts
    rewrite_facts(path, length=...)
    with pytest.raises(DataError, match="the facts have no 'length'"):
        _ = read_episodes(path)[0].facts


def rewrite_facts(path, **changes):
    """Change facts in a file, and their checksum too; `...` removes one."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    facts = {**json.loads(header["__metadata__"]["facts"]), **changes}
    text = json.dumps({key: value for key, value in facts.items() if value is not ...})
    header["__metadata__"] |= {"facts": text, "facts_crc32": str(zlib.crc32(text.encode()))}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + content[8 + length :])
