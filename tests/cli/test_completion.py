"""The script of `rewardlab completion`, in the shell that it is for."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rewardlab.cli import main

# What the shell does when Tab is pressed behind the last word.
PRESS_TAB = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_rewardlab
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "script"
    with pytest.MonkeyPatch.context() as patch, file.open("w") as out:
        patch.setattr("sys.stdout", out)
        assert main(["completion", "bash"]) == 0
    return file


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train-reward "]),
        (["data", ""], ["info ", "verify ", "convert ", "show ", "import ", "process "]),
        (["config", "show", "tabletop_pi"], ["tabletop_pickcube ", "tabletop_pickcube_randomized "]),
        (["run", "tabletop_ppo_mlp", "runner.max_ep"], ["runner.max_epochs="]),
        (["run", "tabletop_ppo_mlp", "tabletop_pick"], []),  # it has its config; names of files come from the shell
        (["run", "tabletop_ppo_mlp", "algorithm.name", "="], ["ppo ", "sac ", "dqn "]),  # how bash splits it
        (["run", "tabletop_ppo_mlp", "algorithm.name", "=", "s"], ["sac "]),
        (["run", "tabletop_ppo_mlp", "algorithm.name=s"], ["algorithm.name=sac "]),  # how zsh does
        (["run", "tabletop_ppo_mlp", "reward.cotrain", "=", "t"], ["true "]),
        (["score", "model", "--for"], ["--format "]),
        (["score", "model", "--format", ""], ["table ", "json ", "csv "]),
        (["train-reward", "--data", ""], []),
        (["data", "info", "da"], []),
    ],
)
def test_tab_completes(script: Path, words: list[str], expected: list[str]) -> None:
    command = ["bash", "--norc", "-c", PRESS_TAB, "bash", str(script), "rewardlab", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.split("\n") if line] == expected
    assert done.stderr == ""


def test_zsh_gets_the_same_with_what_runs_it(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.partition("bashcompinit\n")[2].endswith(script.read_text())


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "fish"])
    assert "Choices: bash, zsh" in capsys.readouterr().err
