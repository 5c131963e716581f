"""The exit statuses of docs/runs.md, and signals that arrive anywhere in a command."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rewardlab.cli.execute import ALARM, FAILED, OK, WRONG, execute
from rewardlab.errors import (
    ConfigError,
    DataError,
    ProcessDied,
    ProcessLost,
    RewardlabError,
    StoppedByAlarm,
    StorageError,
)
from rewardlab.stopping import Interrupted, stop_signals

PAGE = Path(__file__).parents[2] / "docs" / "runs.md"


def raising(error: BaseException) -> int:
    def command() -> None:
        raise error

    return execute(command)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("unknown key"), WRONG),
        (DataError("damaged"), WRONG),
        (StorageError("full"), FAILED),
        (ProcessDied("died"), FAILED),
        (ProcessLost("lost"), FAILED),
        (RewardlabError("gone"), FAILED),
        (StoppedByAlarm("stopped: the audit", Path("here")), ALARM),
    ],
)
def test_errors_have_a_status_by_whose_fault_it_is(error: BaseException, status: int) -> None:
    assert raising(error) == status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_has_the_status_that_shells_give_it(number: int) -> None:
    before = signal.getsignal(number)
    signal.signal(number, signal.default_int_handler)  # it may be ignored where the tests run
    try:
        assert execute(lambda: signal.raise_signal(number)) == 128 + number
    finally:
        signal.signal(number, before)


def test_the_page_has_every_status() -> None:
    table = PAGE.read_text().partition("### Exit codes")[2].partition("\n## ")[0]
    listed = {int(code) for cell in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in cell.split(", ")}
    assert listed == {OK, FAILED, WRONG, ALARM, 129, 130, 143}


def test_a_deferred_signal_is_raised_at_the_end() -> None:
    done = []

    def command() -> None:
        with stop_signals() as stop:
            with stop.deferred("this test"):
                signal.raise_signal(signal.SIGTERM)
                assert stop.requested
                signal.raise_signal(signal.SIGTERM)  # at once: the same request
            done.append("written")
        done.append("not reached")

    assert execute(command) == 143
    assert done == ["written"]


def test_a_robot_is_not_waited_for() -> None:
    def command() -> None:
        with stop_signals() as stop:
            with pytest.raises(Interrupted), stop.deferred("", at_once=True):
                signal.raise_signal(signal.SIGTERM)
            assert stop.words == "SIGTERM"

    assert execute(command) == 143


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as stop, stop.deferred("this test"):
            signal.raise_signal(signal.SIGHUP)
        assert not stop.requested
        assert execute(lambda: signal.raise_signal(signal.SIGHUP)) == OK
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_ends_what_hangs_after_the_first() -> None:
    code = """
import signal, time
from rewardlab.cli.execute import execute
def command():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("closing", flush=True)
        while True:
            time.sleep(0.1)
execute(command)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "closing\n"
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        assert process.returncode == 143
