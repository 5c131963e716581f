"""Episodes in batches: nothing lost, little in memory, damage found."""

import tracemalloc

import numpy as np
import pytest

from rewardlab.data import EpisodeWriter, read_episodes
from rewardlab.errors import DataError

CAMERAS = ("base_camera", "wrist_camera")


@pytest.mark.parametrize("format", ["safetensors", "pickle", "npy"])
@pytest.mark.parametrize("size", [1, 4, 11, 256])
def test_batches_hold_every_frame_once_in_order(tmp_path, make_episode, format, size):
    episode = make_episode(length=11)
    EpisodeWriter(tmp_path, format).write(episode)
    batches = list(read_episodes(tmp_path)[0].batches(CAMERAS, size))
    assert [len(labels) for _, labels in batches[:-1]] == [size] * (len(batches) - 1)
    for camera in CAMERAS:
        frames = np.concatenate([pictures[camera] for pictures, _ in batches])
        np.testing.assert_array_equal(frames, episode.columns[f"observation.images.{camera}"])
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in batches]), episode.columns["success"])


def test_memory_holds_a_batch_and_not_the_episode(tmp_path, make_episode):
    EpisodeWriter(tmp_path).write(make_episode(length=4000, size=16))
    episode = read_episodes(tmp_path)[0]
    tracemalloc.start()
    rows = sum(len(labels) for _, labels in episode.batches(CAMERAS, 64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 4000
    assert peak < episode.path.stat().st_size / 10


def test_a_flipped_bit_in_a_picture_is_found_by_the_last_batch(tmp_path, make_episode):
    path = EpisodeWriter(tmp_path).write(make_episode(length=9, size=32))
    content = bytearray(path.read_bytes())
    content[-len(content) // 4] ^= 1  # pictures fill most of the file
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"episode_000000\.safetensors: tensor .* does not match its checksum"):
        list(read_episodes(tmp_path)[0].batches(CAMERAS, 4))


@pytest.mark.parametrize("format", ["safetensors", "pickle", "npy"])
def test_a_camera_that_is_not_there_is_named_with_those_that_are(tmp_path, make_episode, format):
    EpisodeWriter(tmp_path, format).write(make_episode())
    with pytest.raises(DataError, match=r"no camera 'base'; this episode has base_camera, wrist_camera"):
        list(read_episodes(tmp_path)[0].batches(["base"]))
