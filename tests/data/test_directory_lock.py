"""One run in a directory: who comes second is told who is there, and a killed process holds nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rewardlab.data.directory_lock import LOCK, locked, run_lock
from rewardlab.errors import DataError

HOLD = """
import os, sys, time
from pathlib import Path
from rewardlab.data.directory_lock import run_lock
with run_lock(Path(sys.argv[1])):
    if len(sys.argv) > 2 and os.fork() == 0:
        time.sleep(60)  # a child that outlives its parent, as those of vector environments do
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("forks", [[], ["forks"]], ids=["alone", "with a fork"])
def test_a_second_process_is_told_who_holds_it_and_a_kill_sets_it_free(tmp_path: Path, forks: list[str]) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path), *forks]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(DataError, match=rf"is writing to {tmp_path}: process {process.pid} on .*, since \d{{4}}-"):
            run_lock(tmp_path).__enter__()
        process.send_signal(signal.SIGKILL)
        process.wait()
        with run_lock(tmp_path):
            pass
        if forks:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_second_run_of_the_same_process_is_kept_out_too(tmp_path: Path) -> None:
    with locked(tmp_path, "a run", "Wait"):
        with pytest.raises(DataError, match=r"of this process is writing to .*Wait"), locked(tmp_path, "a run", "Wait"):
            pass
        assert (tmp_path / LOCK).exists()
    with locked(tmp_path, "a run", "Wait"):
        pass


def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    with run_lock(tmp_path / "new", tmp_path / "new" / "checkpoints"):
        assert (tmp_path / "new" / "checkpoints" / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / ".last.4194999.0123abcd.tmp").mkdir(parents=True)
    (tmp_path / ".report.1.0123abcd.tmp").write_text("<ht")  # of a process with a number that is in use again
    (tmp_path / ".hidden").write_text("somebody's")
    with run_lock(tmp_path, tmp_path / "checkpoints"):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".hidden", "checkpoints"]


def test_a_place_that_cannot_be_written_to_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot write to the directory .*/file/run: Not a directory"):
        run_lock(tmp_path / "file" / "run").__enter__()
