"""Input of people: keys of a terminal, a game pad, and what programs push."""

import os
import pty
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rewardlab.envs.robot import people
from rewardlab.envs.robot.people import AllInputs, GamePad, Keyboard, Queue
from rewardlab.errors import ConfigError


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as the input of this program; returns the end at which keys are pressed."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield ours
    os.close(ours)


def is_raw(file: int) -> bool:
    return not termios.tcgetattr(file)[3] & termios.ICANON


def test_keys_are_labels_and_motions(terminal: int) -> None:
    keyboard = Keyboard()
    os.write(terminal, b"1r0 cwx-")
    assert keyboard.take_events() == ["success", "redo", "failure", "stop", "resume"]
    assert keyboard.take_events() == []
    motion = keyboard.motion()
    assert motion is not None
    np.testing.assert_array_equal(motion, [1, 0, 0, 0, 0, 0, -1])
    keyboard.close()


def test_a_key_that_is_no_longer_held_moves_nothing(terminal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(people.time, "monotonic", lambda: now)
    keyboard = Keyboard()
    os.write(terminal, b"e")
    assert keyboard.motion() is not None
    now += people.HELD_SECONDS + 0.01
    assert keyboard.motion() is None
    keyboard.close()


def test_the_terminal_is_given_back_as_it_was(terminal: int) -> None:
    keyboard = Keyboard()
    assert is_raw(terminal)
    keyboard.close()
    assert not is_raw(terminal)


def test_a_terminal_that_was_closed_is_no_error(terminal: int) -> None:
    keyboard = Keyboard()
    ours = os.dup(terminal)
    os.close(terminal)
    os.close(ours)
    assert keyboard.take_events() == []
    keyboard.close()
    os.open(os.devnull, os.O_RDONLY)  # takes the number that the fixture closes


def test_a_keyboard_without_a_terminal_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        with pytest.raises(ConfigError, match="needs a terminal"):
            Keyboard()


class Pad:
    """The device file of a game pad; Linux writes 8 bytes for each event."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self.plug_in()

    def plug_in(self) -> None:
        self._file = os.open(self.path, os.O_RDWR)

    def unplug(self) -> None:
        self.path.unlink()
        os.close(self._file)

    def send(self, kind: int, number: int, value: int) -> None:
        os.write(self._file, struct.pack("IhBB", 0, value, kind, number))


@pytest.fixture
def pad(tmp_path: Path) -> Pad:
    return Pad(tmp_path / "js0")


def test_sticks_and_buttons_of_a_game_pad(pad: Pad) -> None:
    game_pad = GamePad(str(pad.path))
    assert game_pad.motion() is None
    pad.send(2, 0, -32767)  # left stick to the left: along +y, by which the robot's left is meant
    pad.send(2, 4, 16384)  # right stick half down
    pad.send(2, 1, 900)  # left stick, forward: within the dead band
    for number in (0, 1, 2, 3, 7):
        pad.send(1, number, 1)
        pad.send(1, number, 0)
    motion = game_pad.motion()
    assert motion is not None
    np.testing.assert_allclose(motion, [0, 1, -0.5, 0, 0, 0, 0], atol=1e-4)
    assert game_pad.take_events() == ["success", "failure", "redo", "stop", "resume"]
    game_pad.close()


def test_buttons_that_are_down_at_the_start_are_not_pressed(pad: Pad) -> None:
    game_pad = GamePad(str(pad.path))
    pad.send(0x81, 0, 1)
    assert game_pad.take_events() == []
    game_pad.close()


def test_a_game_pad_that_is_unplugged_stops_the_robot_until_it_is_back(pad: Pad) -> None:
    game_pad = GamePad(str(pad.path))
    pad.send(2, 1, -32767)
    assert game_pad.motion() is not None
    pad.unplug()
    assert game_pad.motion() is None, "a held stick must not go on moving the robot"
    assert game_pad.take_events() == ["stop"]
    assert game_pad.take_events() == []
    os.mkfifo(pad.path)
    pad.plug_in()
    game_pad.take_events()
    pad.send(1, 7, 1)
    assert game_pad.take_events() == ["resume"]
    game_pad.close()


def test_a_game_pad_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no game pad at .*js0 \(No such file"):
        GamePad(str(tmp_path / "js0"))


def test_several_sources_are_one() -> None:
    first, second = Queue(), Queue()
    both = AllInputs([first])
    both.add(second)
    second.push("redo")
    first.push("stop")
    second.hold([0, 0, 1, 0, 0, 0, 0])
    assert both.take_events() == ["stop", "redo"]
    motion = both.motion()
    assert motion is not None
    assert motion[2] == 1
