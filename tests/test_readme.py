"""What the README prints works as printed."""

import re
import shlex
from pathlib import Path

import cv2
import numpy as np
import pytest

from rewardlab.cli import main
from rewardlab.data import read_episodes

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


class Camera:
    """Stands for cv2.VideoCapture: frames of the size of the built-in task's."""

    def __init__(self, number: int) -> None:
        self.frame = np.full((64, 64, 3), number, np.uint8)

    def read(self) -> tuple[bool, np.ndarray]:
        return True, self.frame


def test_everything_the_readme_prints_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and Python in the order in which a reader would try them, in one directory."""
    monkeypatch.setattr(cv2, "VideoCapture", Camera)
    monkeypatch.chdir(tmp_path)
    whole_lines = README.replace("\\\n", "")
    printed = re.findall(r"^\.venv/bin/rewardlab ([^\n]+)$|```python\n(.+?)```", whole_lines, re.MULTILINE | re.DOTALL)

    assert len(printed) >= 10
    for command, code in printed:
        if code:
            exec(code, {})
        else:
            assert main(shlex.split(command, comments=True)) == 0, command
    assert len(read_episodes(tmp_path / "data/mine")) == 100


def test_every_folder_of_the_package_is_in_the_readme() -> None:
    (tree,) = re.findall(r"## The folders\n```\n(.+?)```", README, re.DOTALL)
    folders = {file.parent.name for file in (ROOT / "rewardlab").glob("*/__init__.py")}
    assert folders == set(re.findall(r"^  (\w+)/", tree, re.MULTILINE))


def test_no_figure_is_a_placeholder() -> None:
    assert not re.search(r"\| [A-Z]{4,} \|", README)


def test_make_targets_are_the_readmes() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
