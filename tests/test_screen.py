"""What reaches the screen is text, and a screen that is gone does not end a run."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rewardlab.cli import main
from rewardlab.console import print_line
from rewardlab.data import Episode, EpisodeWriter
from rewardlab.errors import user_traceback
from rewardlab.screen import printable

CODES = "\x1b[31m\x1b]0;mine\a\u202e[red]"


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert printable("a é 漢\tb\nc") == "a é 漢\tb\nc"
    assert printable(CODES) == r"\x1b[31m\x1b]0;mine\x07\u202e[red]"
    assert printable("\udcff\r") == r"\udcff\r"


def test_markup_in_a_name_is_no_markup() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor")
    print_line(console, f"{CODES} [/nope] :smile:", title="alarm", style="bold red")
    assert out.getvalue().endswith(r": \x1b[31m\x1b]0;mine\x07\u202e[red] [/nope] :smile:" + "\n")
    assert out.getvalue().startswith("\x1b[1;31malarm\x1b[0m")


@pytest.mark.parametrize("command", [["data", "info"], ["data", "verify"], ["data"], ["score"], ["evaluate"]])
def test_names_from_files_reach_no_terminal_as_codes(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / CODES
    columns = {"success": np.zeros(3, bool), f"observation.images.{CODES}": np.zeros((3, 8, 8, 3), np.uint8)}
    EpisodeWriter(place, durable=False).write(Episode.from_columns(columns, task=CODES, policy=CODES))
    (place / f"{CODES}.pkl").write_bytes(b"no pickle")
    (place / "mine.yaml").write_text('"\\e[31mseed": 1\n')
    for argument in ([str(place)], [str(place / "mine.yaml")], [str(place), CODES, f"--{CODES}"]):
        with contextlib.suppress(SystemExit):  # argparse
            main([*command, *argument])
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert r"\x1b[31m" in text
    assert not [c for c in text if not c.isprintable() and c not in "\n\t"]


def test_a_warning_is_a_line_without_codes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text('"\\e[31mseed": 1\n')
    assert main(["config", "show", str(tmp_path / "mine.yaml")]) == 2
    assert r"unknown key '\x1b[31mseed'" in capsys.readouterr().err


def test_an_error_of_any_length_fits_on_a_screen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("".join(f"key_{n}: 1\n" for n in range(2000)))
    assert main(["config", "show", str(tmp_path / "mine.yaml")]) == 2
    assert len(capsys.readouterr().err) < 4100


@pytest.mark.parametrize(
    ("redirection", "status", "error"),
    [
        ("| head -1", 0, ""),
        ("| true", 0, ""),
        (">&-", 0, ""),
        (">&- 2>&- <&-", 0, ""),
        ("> /dev/full", 1, "error: the output could not be written (No space left on device)\n"),
    ],
)
def test_an_output_that_is_gone_or_full_brings_no_traceback(redirection: str, status: int, error: str) -> None:
    command = f"set -o pipefail; {sys.executable} -m rewardlab.cli config list {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, error)


def test_a_run_goes_on_without_its_output_and_says_so_at_the_end(tmp_path: Path) -> None:
    small = "env.train.num_envs=2 env.train.max_episode_steps=3 --episodes 2"
    command = f"{sys.executable} -m rewardlab.cli collect tabletop_pickcube {small} --out {tmp_path / 'out'}"
    done = subprocess.run(["bash", "-c", f"{command} > /dev/full"], capture_output=True, text=True, check=False)
    assert (done.returncode, len(list(tmp_path.rglob("*.safetensors")))) == (1, 2)
    assert done.stderr == "error: the output could not be written (No space left on device)\n"


def test_an_ascii_terminal_shows_escapes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rewardlab.cli", "data", "info", "é"]
    environment = {"PYTHONIOENCODING": "ascii", "PATH": "", "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stderr.partition(" does")[0]) == (2, r"error: \xe9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "info", ""], "argument DIR: found '', expected a path; it is empty"),
        (["data", "info", "a\0b"], "expected a path; it has a NUL character"),
        (["score", "x" * 300, "x"], "expected a path with names of at most 255 bytes"),
        (["collect", "tabletop_pickcube", "--out", ""], "expected a path; it is empty"),
        (["demo", "--seed", "-1"], "found '-1', expected a whole number from 0 to 9223372036854775807"),
        (["evaluate", "run", "--seed", "9" * 30], "expected a whole number from 0 to 9223372036854775807"),
        (["evaluate", "run", "--episodes", "9" * 5000], "expected a whole number above 0"),
    ],
)
def test_names_and_numbers_that_cannot_be_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "override",
    ["env.train.num_envs=1000000000000", "actor.model.hidden_sizes=[9000000,9000000]"],
)
def test_sizes_beyond_memory_are_answered_in_a_line(
    override: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "tabletop_ppo_mlp", f"runner.logger.log_path={tmp_path}", override]) == 1
    assert capsys.readouterr().err.startswith("error: not enough memory (")
    assert (
        main(["run", "zoo/cartpole_ppo", f"runner.logger.log_path={tmp_path}", "env.train.num_envs=99999999999"]) == 2
    )
    assert "num_envs: found 99999999999, but so many of 'CartPole-v1' need at least" in capsys.readouterr().err


def test_the_traceback_that_ray_sends_is_cut_as_well() -> None:
    error = RuntimeError("on Ray")
    error.traceback_str = (  # type: ignore[attr-defined]
        "Traceback (most recent call last):\n"
        '  File "/x/site-packages/gymnasium/core.py", line 3, in step\n    return 1\n'
        '  File "/home/me/my_env.py", line 7, in step\n    raise KeyError("mine")\nKeyError: \'mine\'\n'
    )
    assert user_traceback(error) == (
        'Traceback (most recent call last):\n  File "/home/me/my_env.py", line 7, in step\n    raise KeyError("mine")\n'
        "KeyError: 'mine'"
    )
