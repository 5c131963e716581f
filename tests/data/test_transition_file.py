"""data.pkl: what `pickle.load` reads of it, at every moment of its life."""

import pickle
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab import unpickle
from rewardlab.data import Episode
from rewardlab.data.recordings import read_recording
from rewardlab.data.transition_file import RecordingWriter, TransitionFile, count_recorded, transitions_of
from rewardlab.errors import DataError, StorageError

MakeEpisode = Callable[..., Episode]


def load(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        found: list[dict[str, Any]] = pickle.load(file)
    return found


def numbered(number: int, length: int = 3) -> list[dict[str, Any]]:
    """An episode of transitions that all say its number."""
    frames = [{"camera": np.full((4, 4, 3), (number + t) % 256, np.uint8)} for t in range(length + 1)]
    return [
        {
            "observations": dict(frames[t]),
            "next_observations": frames[t + 1],
            "number": number,
            "dones": t == length - 1,
        }
        for t in range(length)
    ]


def opened(path: Path) -> tuple[TransitionFile, list[dict[str, Any]]]:
    file = TransitionFile(path)
    return file, list(file.open())


def test_the_list_is_as_users_of_serl_know_it(tmp_path: Path, make_episode: MakeEpisode) -> None:
    episode = make_episode(length=6)
    writer = RecordingWriter(tmp_path)
    for _ in range(2):
        writer.write(episode)
    writer.close()
    found, columns = load(tmp_path / "data.pkl"), episode.columns
    assert len(found) == 10
    for t, step in enumerate(found[:5]):
        assert list(step) == ["observations", "actions", "next_observations", "rewards", "masks", "dones", "infos"]
        assert sorted(step["observations"]) == ["base_camera", "state", "wrist_camera"]
        for name, key in (("state", "state"), ("images.base_camera", "base_camera")):
            assert (step["observations"][key] == columns[f"observation.{name}"][t]).all()
            assert (step["next_observations"][key] == columns[f"observation.{name}"][t + 1]).all()
        assert (step["actions"] == columns["action"][t + 1]).all()
        assert step["rewards"] == columns["reward"][t + 1]
        assert (step["masks"], step["dones"]) == (1.0, t == 4)  # truncated: what follows still has a value
        assert step["infos"]["success"] == columns["success"][t + 1]
    assert found[0]["next_observations"]["base_camera"] is found[1]["observations"]["base_camera"]
    assert found[0]["next_observations"] is not found[1]["observations"]  # so that one can be changed
    found[0]["observations"]["state"][:] = 0  # arrays can be written to
    pictures = 2 * sum(columns[name].nbytes for name in columns if "images" in name)
    assert (tmp_path / "data.pkl").stat().st_size < pictures + 8_000  # none is stored twice


def test_an_episode_comes_back_from_it(tmp_path: Path, make_episode: MakeEpisode) -> None:
    episode = make_episode(length=6)
    writer = RecordingWriter(tmp_path)
    writer.write(episode)
    writer.close()
    (recorded,) = read_recording(tmp_path / "data.pkl")
    assert recorded.episode is not None
    for name in ("success", "terminated", "truncated", "observation.state", "observation.images.wrist_camera"):
        assert (recorded.episode.columns[name] == episode.columns[name]).all(), name
    assert (recorded.episode.columns["action"][1:] == episode.columns["action"][1:]).all()
    assert (recorded.episode.facts.task, recorded.episode.facts.policy) == ("PickCube", "expert")


@pytest.mark.parametrize("length", [1, 2, 999, 1000, 1001, 2500])
def test_episodes_of_any_length(tmp_path: Path, length: int) -> None:
    """Pickle writes lists in thousands, and a single item in another way."""
    path = tmp_path / "data.pkl"
    file, _ = opened(path)
    file.append(numbered(0, 2))
    file.append(numbered(1, length))
    file.append(numbered(2, 1))
    assert [step["number"] for step in load(path)] == [0] * 2 + [1] * length + [2]
    file.close()
    file, found = opened(path)
    assert [step["number"] for step in found] == [0] * 2 + [1] * length + [2]
    file.append(numbered(3))
    assert [step["number"] for step in load(path)[-4:]] == [2, 3, 3, 3]
    file.close()


def test_more_memo_entries_than_two_bytes_can_number(tmp_path: Path) -> None:
    path, count = tmp_path / "data.pkl", 70_000
    file, _ = opened(path)
    shared = [[number] for number in range(count)]
    file.append([{"lists": shared, "again": shared[::-1]}])
    file.append([{"lists": shared[:3], "again": shared[:3]}])
    file.close()
    first, second = load(path)
    assert first["again"][0] is first["lists"][-1]
    assert first["again"] == shared[::-1]
    assert second["again"][2] is second["lists"][2]
    with path.open("rb") as opened_file:
        assert len(list(unpickle.read_list(opened_file, "data.pkl", "transitions"))) == 2


def test_at_every_moment_of_an_append_the_file_is_a_whole_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk holds each of these states between two writes, if writes are cut anywhere."""
    path = tmp_path / "data.pkl"
    file, _ = opened(path)
    file.append(numbered(0))
    before = path.read_bytes()
    file.append(numbered(1))
    after = path.read_bytes()
    file.close()
    body = after[len(before) :]
    for cut in range(0, len(body) + 1, 7):
        path.write_bytes(before + body[:cut])
        assert [step["number"] for step in load(path)] == [0] * 3
        again, found = opened(path)
        assert len(found) == 3
        again.append(numbered(2))
        again.close()
        assert [step["number"] for step in load(path)] == [0] * 3 + [2] * 3
        assert path.stat().st_size == len(after)  # nothing of the torn one is left
    path.write_bytes(b"")  # killed in the moment in which it began
    again, found = opened(path)
    assert (found, load(path)) == ([], [])
    again.close()


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_transition_file import numbered
from rewardlab.data.transition_file import TransitionFile

file = TransitionFile(Path(sys.argv[1]))
number = sum(step["dones"] for step in file.open())
while True:
    file.append(numbered(number, 1 + number % 40))
    print(number, flush=True)
    number += 1
"""


def test_after_kill_9_at_any_moment_every_finished_episode_is_there(tmp_path: Path) -> None:
    path, rng = tmp_path / "data.pkl", random.Random(0)
    acknowledged = -1
    for _ in range(4):
        command = [sys.executable, "-c", KILLED, str(path), str(Path(__file__).parent)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged = max(acknowledged, int(process.stdout.readline()))
        time.sleep(rng.random() / 5)
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].split()
        acknowledged = max([acknowledged, *map(int, rest)])
        found = load(path)
        numbers = [step["number"] for step in found if step["dones"]]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) in (acknowledged + 1, acknowledged + 2)  # killed before it could say so
        assert len(found) == sum(1 + number % 40 for number in numbers)  # and none is cut


def test_a_full_disk_leaves_the_episodes_before(tmp_path: Path) -> None:
    program = """
    import resource, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from test_transition_file import numbered
    from rewardlab.data.transition_file import TransitionFile
    from rewardlab.errors import StorageError

    file = TransitionFile(Path(sys.argv[1]))
    assert list(file.open()) == []
    file.append(numbered(0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(sys.argv[1]).stat().st_size + 3_000, hard))
    try:
        file.append(numbered(1, 200))
    except StorageError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    file.append(numbered(2))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "data.pkl"), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "File too large. Episodes finished before it are complete and safe" in done.stdout
    assert [step["number"] for step in load(tmp_path / "data.pkl")] == [0] * 3 + [2] * 3


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(StorageError, match=r"could not write .*logs/data\.pkl"):
        RecordingWriter(tmp_path / "logs").open()


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    file, _ = opened(tmp_path / "data.pkl")
    with pytest.raises(DataError, match="is being written by another process"):
        opened(tmp_path / "data.pkl")
    file.close()
    opened(tmp_path / "data.pkl")[0].close()


def test_pickles_of_others_are_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "data.pkl"
    path.write_bytes(pickle.dumps([{"a": 1}]))
    with pytest.raises(DataError, match="was not written by rewardlab"):
        opened(path)
    assert load(path) == [{"a": 1}]


def test_episodes_are_counted_by_their_outcome(tmp_path: Path, make_episode: MakeEpisode) -> None:
    assert count_recorded(tmp_path) == 0
    assert not (tmp_path / "data.pkl").exists()
    for success in (True, False, True):
        writer = RecordingWriter(tmp_path)
        writer.write(make_episode(success=success))
        writer.close()
    again = RecordingWriter(tmp_path)
    assert (again.count(True), again.count(False)) == (2, 1)
    again.close()
    assert count_recorded(tmp_path) == 3


def test_a_picture_of_every_frame_is_needed(make_episode: MakeEpisode) -> None:
    columns = make_episode(length=6).columns
    some = {name: column[:2] if "images" in name else column for name, column in columns.items()}
    with pytest.raises(DataError, match=r"need a picture of every frame.*data\.collection\.frames=all"):
        transitions_of(Episode.from_columns({**some, "frame_rows": np.array([0, 5])}))


def test_reading_holds_an_episode_in_memory_not_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data.pkl"
    file, _ = opened(path)
    for _ in range(20):
        file.append([{"picture": np.zeros((1000, 1000), np.uint8)}])
    file.close()
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    with path.open("rb") as opened_file:
        for step in unpickle.read_list(opened_file, "data.pkl", "transitions"):
            assert step["picture"].shape == (1000, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000


def test_a_list_that_is_cut_short_gives_what_is_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "data.pkl"
    content = pickle.dumps([{"number": number} for number in range(2500)])  # in batches of 1000
    path.write_bytes(content[: len(content) * 9 // 10])
    found = []
    with path.open("rb") as file:
        items = unpickle.read_list(file, str(path), "numbers")
        with pytest.raises(DataError, match="is damaged or not a pickle"):
            found.extend(item["number"] for item in items)
    assert found == list(range(2000))


def test_a_length_that_the_file_does_not_have_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "data.pkl"
    path.write_bytes(b"\x80\x03]B\xff\xff\xff\x7fabc.")  # BINBYTES of 2 GB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with path.open("rb") as file, pytest.raises(DataError, match="it is cut short"):
        list(unpickle.read_list(file, str(path), "numbers"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB
