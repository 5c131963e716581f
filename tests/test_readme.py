"""What the README prints works as printed."""

import re
import shlex
from pathlib import Path

import pytest

from rewardlab.cli import main
from rewardlab.data import read_episodes

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_everything_the_readme_prints_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and Python in the order in which a reader would try them, in one directory."""
    monkeypatch.chdir(tmp_path)
    printed = re.findall(r"^\.venv/bin/rewardlab ([^\n]+)$|```python\n(.+?)```", README, re.MULTILINE | re.DOTALL)

    assert len(printed) >= 10
    for command, code in printed:
        if code:
            exec(code, {})
        else:
            assert main(shlex.split(command, comments=True)) == 0, command
    assert len(read_episodes(tmp_path / "data/mine")) == 100


def test_every_file_of_the_package_is_in_the_tree_of_the_readme() -> None:
    (tree,) = re.findall(r"## The tree\n```\n(.+?)```", README, re.DOTALL)
    package = ROOT / "rewardlab"
    for file in package.rglob("*.py"):
        parts = file.relative_to(package).parts
        covered = file.name.startswith("__") or parts[0] == "cli" or "formats" in parts
        assert covered or file.name in tree, f"{file} is not in the README's tree"


def test_no_figure_is_a_placeholder() -> None:
    assert not re.search(r"\| [A-Z]{4,} \|", README)


def test_make_targets_are_the_readmes() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
