import errno
import os
import threading
import time

import numpy as np
import pytest

from rewardlab.data import BackgroundWriter, EpisodeWriter, atomic, read_episodes
from rewardlab.errors import DataError


def names(directory):
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_successes_and_failures_share_a_counter_and_a_second_run_goes_on(tmp_path, make_episode):
    for _ in range(2):
        writer = EpisodeWriter(tmp_path)
        writer.write(make_episode())
        writer.write(make_episode(success=False))
    assert names(tmp_path / "success") == ["episode_000000.safetensors", "episode_000002.safetensors"]
    assert names(tmp_path / "failure") == ["episode_000001.safetensors", "episode_000003.safetensors"]


def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path, make_episode):
    writer = EpisodeWriter(tmp_path)
    writer.write(make_episode())
    other = tmp_path / "success" / "episode_000001.safetensors"
    other.write_text("somebody else's")
    third = tmp_path / "failure" / "episode_000002.safetensors"
    third.write_text("somebody else's")
    assert writer.write(make_episode()).name == "episode_000003.safetensors"
    assert other.read_text() == third.read_text() == "somebody else's"


def test_without_hard_links_nothing_is_overwritten_either(tmp_path, make_episode, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EOPNOTSUPP, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    writer = EpisodeWriter(tmp_path)
    writer.write(make_episode())
    (tmp_path / "success" / "episode_000001.safetensors").write_text("somebody else's")
    assert writer.write(make_episode(seed=3)).name == "episode_000002.safetensors"
    assert names(tmp_path) == [f"episode_00000{i}.safetensors" for i in range(3)]
    np.testing.assert_array_equal(
        read_episodes(tmp_path)[2].load().columns["action"], make_episode(seed=3).columns["action"]
    )


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_disk_full_leaves_nothing_half_written_and_says_what_is_safe(tmp_path, make_episode, monkeypatch, call):
    writer = EpisodeWriter(tmp_path)
    writer.write(make_episode())

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(DataError, match=r"success: No space left on device\. Episodes finished before it are complete"):
        writer.write(make_episode())
    assert names(tmp_path) == ["episode_000000.safetensors"]
    monkeypatch.undo()
    assert writer.write(make_episode()).name == "episode_000001.safetensors"


def test_ctrl_c_while_writing_removes_the_temporary_file(tmp_path, make_episode, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        EpisodeWriter(tmp_path).write(make_episode())
    assert names(tmp_path) == []


def test_a_temporary_file_tells_whether_its_process_is_gone(tmp_path):
    alive = atomic.temporary_path(tmp_path / "episode_000000.safetensors")
    assert atomic.leftover_of(alive) is None
    dead = tmp_path / ".episode_000000.4194999.0123abcd.tmp"
    assert atomic.leftover_of(dead) == 4194999
    assert atomic.leftover_of(tmp_path / ".hidden") is None


def test_what_a_killed_process_of_this_machine_left_is_removed(tmp_path, make_episode):
    EpisodeWriter(tmp_path).write(make_episode())
    folder = tmp_path / "success"
    here = atomic.temporary_path(folder / "episode_000001.safetensors").name.replace(str(os.getpid()), "4194999")
    elsewhere = ".episode_000001.4194999.0123abcd0123abcd.tmp"
    earlier = ".episode_000001.4194999.0123abcd.tmp"
    for name in (here, elsewhere, earlier):
        (folder / name).write_text("half an epis")
        assert atomic.leftover_of(folder / name) == 4194999
    EpisodeWriter(tmp_path).write(make_episode())
    assert names(folder) == [earlier, elsewhere, "episode_000000.safetensors", "episode_000001.safetensors"]


class SlowWriter(EpisodeWriter):
    """Writes when it is allowed to."""

    def __init__(self, *args):
        super().__init__(*args)
        self.gate = threading.Event()

    def write(self, episode):
        self.gate.wait(timeout=60)
        return super().write(episode)


def test_a_slow_disk_makes_submit_wait_so_that_memory_stays_flat(tmp_path, make_episode):
    writer = SlowWriter(tmp_path)
    background = BackgroundWriter(writer, capacity=3)
    submitted = []

    def submit_ten():
        for i in range(10):
            background.submit(lambda i=i: make_episode(seed=i))
            submitted.append(i)

    thread = threading.Thread(target=submit_ten)
    thread.start()
    while len(submitted) < 3:
        time.sleep(0.01)
    time.sleep(0.1)  # for a fourth, if it could
    assert len(submitted) == 3
    writer.gate.set()
    thread.join()
    background.close()
    assert len(read_episodes(tmp_path)) == 10


def test_the_order_of_submission_is_the_order_of_the_numbers(tmp_path, make_episode):
    with BackgroundWriter(EpisodeWriter(tmp_path)) as background:
        for i in range(8):
            background.submit(lambda i=i: make_episode(seed=i, success=i % 3 == 0))
    for i, stored in enumerate(read_episodes(tmp_path)):
        np.testing.assert_array_equal(stored.load().columns["reward"], make_episode(seed=i).columns["reward"])


def test_an_error_in_the_thread_comes_out_and_the_other_episodes_are_written(tmp_path, make_episode):
    background = BackgroundWriter(EpisodeWriter(tmp_path))
    gate = threading.Event()

    def broken():
        gate.wait(timeout=2)
        raise DataError("env 3, step 7: nonsense")

    background.submit(broken)
    background.submit(make_episode)
    gate.set()
    with pytest.raises(DataError, match="env 3, step 7"):
        background.flush()
    background.submit(make_episode)
    background.close()
    background.close()
    assert len(read_episodes(tmp_path)) == 2


def test_ctrl_c_in_submit_still_lets_close_write_what_was_queued(tmp_path, make_episode, monkeypatch):
    writer = SlowWriter(tmp_path)
    background = BackgroundWriter(writer, capacity=2)
    background.submit(make_episode)
    background.submit(make_episode)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(background._slots, "acquire", interrupted)
    threading.Timer(0.05, writer.gate.set).start()
    with pytest.raises(KeyboardInterrupt), background:
        background.submit(make_episode)
    assert len(read_episodes(tmp_path)) == 2


def test_the_users_own_error_is_not_hidden_by_one_of_the_writer(tmp_path):
    def broken():
        raise DataError("disk full")

    background = BackgroundWriter(EpisodeWriter(tmp_path))
    background.submit(broken)
    with pytest.raises(ZeroDivisionError) as error, background:
        raise ZeroDivisionError
    assert error.value.__notes__ == ["disk full"]
