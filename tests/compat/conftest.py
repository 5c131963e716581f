"""A directory in which the scripts lie as in the repository, and the command lines that are run in it."""

import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from documented_lines import RECORDER, RunLine, run_words, words_of  # noqa: E402

EXAMPLES = HERE.parents[1] / "examples"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The examples without the package, as in the top of the repository."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(RECORDER)
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EMBODIED_PATH", raising=False)
    return tmp_path


@pytest.fixture
def run_line(elsewhere: Path) -> RunLine:
    """Runs a line as printed, with more words."""

    def run(command: str, *more: str, cwd: Path = elsewhere) -> int:
        return run_words([*words_of(command), *more], cwd)

    return run
