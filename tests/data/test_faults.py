"""What real faults do: killed processes, full disks, two collectors at once, Ctrl-C, damaged files."""

import dataclasses
import errno
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack

import numpy as np
import pytest

from rewardlab.data import FORMATS, Episode, EpisodeCollector, EpisodeWriter, read_episodes, summarize, verify
from rewardlab.errors import DataError

# Writes episodes of which every number is known: all of episode n in process p is (p, n).
PROGRAM = """
    import signal, sys, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the children of a shell's background job ignore Ctrl-C
    import numpy as np
    from rewardlab.data import EpisodeCollector, EpisodeWriter
    from rewardlab.errors import DataError

    def rows(process, number):
        return {
            "observation.images.base_camera": np.full((1, 64, 64, 3), number % 256, np.uint8),
            "observation.state": np.array([[process, number]], np.float32),
            "success": np.array([number % 3 == 0]),
        }

    def run(collector, process, number, length=20):
        collector.begin([0], rows(process, number))
        for _ in range(length - 1):
            collector.add([0], rows(process, number))
        collector.end([0])
"""


@pytest.fixture
def start():
    """Starts programs, and ends those that are still there when the test is over."""
    with ExitStack() as stack:

        def start(directory, program, *args):
            code = textwrap.dedent(PROGRAM) + textwrap.dedent(program)
            command = [sys.executable, "-c", code, str(directory), *map(str, args)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = stack.enter_context(subprocess.Popen(command, **pipes))
            stack.callback(process.kill)
            return process

        yield start


def wait_for_episodes(directory, count, process):
    deadline = time.monotonic() + 30
    while sum(len(files) for _, _, files in os.walk(directory)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def try_to_load(path):
    try:
        return read_episodes(path)[0].load(), ""
    except DataError as error:
        return None, str(error)


def contents(directory):
    """(process, number) of each episode; a mixed or half-written one fails here."""
    found = []
    for stored in read_episodes(directory):
        columns = stored.load().columns
        (state,) = np.unique(columns["observation.state"], axis=0)
        (level,) = np.unique(columns["observation.images.base_camera"])
        assert level == state[1] % 256
        found.append(tuple(state.astype(int).tolist()))
    return found


def test_kill_9_loses_at_most_what_was_in_flight(tmp_path, start):
    process = start(
        tmp_path,
        """
        with EpisodeCollector(EpisodeWriter(sys.argv[1], durable=False), 1) as collector:
            for number in range(10**9):
                run(collector, 0, number)
        """,
    )
    wait_for_episodes(tmp_path, 60, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    numbers = [number for _, number in contents(tmp_path)]
    assert len(numbers) >= 50
    assert numbers == list(range(len(numbers)))  # none lost in between
    assert all("half-written" in problem for _, problem in verify(tmp_path))
    # The next run goes on behind them.
    process = start(
        tmp_path,
        """
        with EpisodeCollector(EpisodeWriter(sys.argv[1]), 1) as collector:
            run(collector, 1, 0)
        """,
    )
    assert process.wait(30) == 0, process.communicate()
    assert contents(tmp_path)[-1] == (1, 0)


def test_two_collectors_in_one_directory(tmp_path, start):
    program = """
        with EpisodeCollector(EpisodeWriter(sys.argv[1], durable=False), 1) as collector:
            for number in range(60):
                run(collector, int(sys.argv[2]), number, length=2)
    """
    for process in [start(tmp_path, program, 0), start(tmp_path, program, 1)]:
        assert process.wait(30) == 0, process.communicate()
    assert sorted(contents(tmp_path)) == [(process, number) for process in range(2) for number in range(60)]
    assert verify(tmp_path) == []


@pytest.mark.parametrize("closes", [True, False], ids=["with", "without close"])
def test_ctrl_c_writes_all_that_had_ended(tmp_path, start, closes):
    process = start(
        tmp_path,
        """
        class SlowWriter(EpisodeWriter):
            def write(self, episode):
                time.sleep(0.02)
                return super().write(episode)

        collector = EpisodeCollector(SlowWriter(sys.argv[1], durable=False), 1)
        try:
            for number in range(10**9):
                run(collector, 0, number)
        except KeyboardInterrupt:
            if int(sys.argv[2]):
                collector.close()
            print(collector.counts["success"].kept + collector.counts["failure"].kept)
        """,
        int(closes),
    )
    wait_for_episodes(tmp_path, 5, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    written = len(contents(tmp_path))
    # Interrupted inside `end`, an episode may be counted but not yet in the queue: the one in flight.
    assert int(output) - 1 <= written <= int(output)
    assert written > 5
    assert verify(tmp_path) == []


def test_a_file_system_that_takes_no_more(tmp_path, start):
    """The kernel refuses to let files grow, as it does on a full disk, in the middle of the write."""
    process = start(
        tmp_path,
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
        collector = EpisodeCollector(EpisodeWriter(sys.argv[1]), 1)
        run(collector, 0, 0)
        run(collector, 0, 1)
        run(collector, 0, 2, length=100)
        try:
            collector.close()
        except DataError as error:
            print(error)
        """,
    )
    output, errors = process.communicate(timeout=30)
    assert "could not write an episode to" in output, errors
    assert "File too large" in output
    assert "complete and safe" in output
    assert contents(tmp_path) == [(0, 0), (0, 1)]
    assert sorted(p.suffix for p in tmp_path.rglob("*") if p.is_file()) == [".safetensors"] * 2


@pytest.mark.parametrize("name", list(FORMATS))
def test_truncated_and_empty_files_are_errors_with_their_name(tmp_path, make_episode, name):
    path = EpisodeWriter(tmp_path, name).write(make_episode(length=3, size=4))
    whole = path.read_bytes()
    for length in [0, 1, 7, 8, 60, *range(100, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=path.name):
            read_episodes(tmp_path)[0].load()
        assert [problem.path for problem in verify(tmp_path)] == [path]


def test_every_flipped_bit_of_the_default_format_is_noticed(tmp_path, make_episode):
    episode = make_episode(length=3, size=4)
    path = EpisodeWriter(tmp_path).write(episode)
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        loaded, error = try_to_load(path)
        if loaded is None:
            assert path.name in error
            continue
        # White space between header and data is all that may change without harm.
        assert loaded.facts == episode.facts
        for name, column in episode.columns.items():
            np.testing.assert_array_equal(loaded.columns[name], column)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize("name", ["pickle", "npy"])
def test_a_flipped_bit_in_pickle_or_npy_is_an_error_or_a_valid_episode(tmp_path, make_episode, name):
    """They have no place for a checksum: a wrong pixel cannot be seen, but nothing else may come through."""
    path = EpisodeWriter(tmp_path, name).write(make_episode(length=3, size=4))
    whole = path.read_bytes()
    noticed = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        loaded, error = try_to_load(path)
        if loaded is None:
            assert path.name in error
            noticed += 1
        else:
            assert loaded.columns["success"].dtype == bool
    assert noticed > 50


def test_a_flipped_bit_names_the_tensor(tmp_path, make_episode):
    path = EpisodeWriter(tmp_path).write(make_episode())
    data = bytearray(path.read_bytes())
    data[-6:] = bytes(b ^ 1 for b in data[-6:])  # the last tensor of the file is `truncated`
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"episode_000000\.safetensors: tensor 'truncated' does not match its checksum"):
        read_episodes(path)[0].load()
    assert read_episodes(path)[0].labels().sum() == 2  # the labels are whole


@pytest.mark.parametrize("name", ["pickle", "npy"])
def test_labels_of_another_length_than_the_frames(tmp_path, make_episode, name):
    path = EpisodeWriter(tmp_path, name).write(make_episode())
    if name == "npy":
        content = np.load(path, allow_pickle=True).item()
        content["labels"] = content["labels"][:-1]
        np.save(path, content, allow_pickle=True)
        message = "has 6 rows, the labels .* have 5"
    else:
        content = pickle.loads(path.read_bytes())
        del content["frames"][4]["obs"]["main_images"]
        path.write_bytes(pickle.dumps(content))
        message = "frame 4 has no 'main_images'"
    with pytest.raises(DataError, match=message):
        read_episodes(path)[0].labels()


@pytest.mark.parametrize(
    "content",
    [
        {"frames": [{"obs": {1: np.zeros((4, 4, 3), np.uint8)}, "success": True}], "success": True},
        {"frames": [{"obs": {"states": [[1], [2, 3]]}, "success": True}], "success": True},
        {"frames": [{"obs": {"states": np.zeros(2)}, "reward": np.zeros(2), "success": False}], "success": False},
        {"frames": [{"obs": {"states": np.zeros(2)}, "success": np.zeros((2, 2))}], "success": False},
    ],
)
def test_an_odd_file_is_named_and_the_others_are_still_counted(tmp_path, content):
    path = EpisodeWriter(tmp_path, "pickle").write(tiny_episode())
    odd = path.with_name("episode_000009.pkl")
    odd.write_bytes(pickle.dumps(content))
    summary = summarize(tmp_path)
    assert summary.episodes == 1
    assert [problem.path for problem in summary.damaged] == [odd]
    assert [problem.path for problem in verify(tmp_path)] == [odd]


def test_facts_that_contradict_the_columns_are_found(tmp_path):
    episode = tiny_episode()
    lying = dataclasses.replace(episode, facts=dataclasses.replace(episode.facts, success_at_end=True, success=True))
    with pytest.raises(DataError, match="the facts say success_at_end = True, the columns say False"):
        EpisodeWriter(tmp_path).write(lying)


def test_a_pipe_among_the_episodes_is_passed_over(tmp_path):
    EpisodeWriter(tmp_path).write(tiny_episode())
    os.mkfifo(tmp_path / "failure" / "episode_000007.safetensors")
    assert len(read_episodes(tmp_path)) == 1


def test_after_a_failed_write_the_other_episodes_are_whole(tmp_path, monkeypatch):
    writer = EpisodeWriter(tmp_path)
    collector = EpisodeCollector(writer, 4)
    failing = iter([True])
    encode = type(writer.format).encode

    def full_disk_once(self, episode):
        if next(failing, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        return encode(self, episode)

    monkeypatch.setattr(type(writer.format), "encode", full_disk_once)
    envs, errors = [0, 1, 2, 3], 0
    for _ in range(3):
        rows = {"success": np.zeros(4, bool)}
        collector.begin(envs, rows)
        for _ in range(5):
            collector.add(envs, rows)
        try:
            collector.end(envs)
        except DataError:
            errors += 1
        time.sleep(0.2)
    try:
        collector.close()
    except DataError:
        errors += 1
    assert errors == 1
    assert [episode.length for episode in read_episodes(tmp_path)] == [6] * 11


def test_columns_in_another_order_stay_what_they_are(tmp_path):
    with EpisodeCollector(EpisodeWriter(tmp_path), 1) as collector:
        no, yes = np.zeros(1, bool), np.ones(1, bool)
        collector.begin([0], {"success": no, "terminated": no, "truncated": yes})
        collector.add([0], {"truncated": yes, "terminated": no, "success": no})
        collector.end([0])
    columns = read_episodes(tmp_path)[0].load().columns
    assert columns["success"].tolist() == [False, False]
    assert columns["truncated"].tolist() == [True, True]


def tiny_episode():
    columns = {"observation.state": np.zeros((3, 2), np.float32), "success": np.zeros(3, bool)}
    return Episode.from_columns(columns)
