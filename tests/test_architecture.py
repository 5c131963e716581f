"""The tree keeps its promises: which folder may import which, and what nothing may do."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rewardlab
from rewardlab.compat import names

PACKAGE = Path(rewardlab.__file__).parent

# Each layer may import the ones before it, and itself.
LAYERS = [
    {"arguments", "child_process", "console", "cores", "devices", "errors", "frame_choice", "frame_crops"}
    | {"frame_sizes", "input_files", "keys", "limits", "live_state", "nested", "observations", "plain_unpickler"}
    | {"registry", "run_directories", "screen", "stopping", "types", "unpickle"},
    {"compat", "config"},
    {"data", "figures", "models"},
    {"envs"},
    {"rewards", "compat.ding_models", "rl"},
    {"reports", "run_state"},
    {"training"},
    {"workers"},
    {"pipelines", "web"},
    {"cli", "train_reward_model", "compat.embodied", "models.reward_model", "python_runs", "__main__"},
]
# Names offered to type checkers in one place, and defined in a later layer.
OFFERED = {("envs/wrappers.py", "rewards")}
STRANGERS = [
    {"rewards", "rl"},
    {"data", "models"},
    {"data", "figures"},
    {"figures", "models"},
    {"reports", "run_state"},
    {"pipelines", "web"},
]
# The modules that may know that there are older names.
KNOW_COMPAT = {
    "cli/execute.py",
    "config/load.py",
    "config/run_checks.py",
    "models/checkpoint_config.py",
    "pipelines/serial.py",
    "rewards/loading.py",
    "rewards/manager.py",
    "rewards/trainer.py",
    "workers/reward.py",
}
# Older names that are none of today's.
OLDER = [name for name, row in names.NAMES.items() if row["today"].rpartition(".")[2] != name]
# Each as the first import of a script.
FIRST = [
    "from rewardlab.pipelines import serial_pipeline_reward_model_onpolicy",
    "from rewardlab.compat import names",
]


def layer_of(part: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if part in layer)


def part_of(module: str) -> str:
    """Of the name of a module below rewardlab, or of something in it: the part that it belongs to."""
    names = module.split(".")
    pair = ".".join(names[:2])
    return pair if any(pair in layer for layer in LAYERS) else names[0]


def imports(file: Path) -> set[str]:
    """The parts of rewardlab that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {part_of(name.removeprefix("rewardlab.")) for name in names if name.startswith("rewardlab.")}


def test_imports_point_one_way() -> None:
    for file in PACKAGE.rglob("*.py"):
        part = part_of(".".join(file.relative_to(PACKAGE).with_suffix("").parts))
        if part == "__init__":
            continue
        offered = {other for where, other in OFFERED if where == file.relative_to(PACKAGE).as_posix()}
        for other in imports(file) - {part} - offered:
            assert layer_of(other) <= layer_of(part), f"{file}: {part} must not import {other}"
            assert {part, other} not in STRANGERS, f"{file}: {part} and {other} do not know each other"


@pytest.mark.parametrize("line", FIRST)
def test_what_users_import_can_be_imported_first(line: str) -> None:
    """Modules that import each other may fail in one order alone; the test suite has imported most of them already."""
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_compat_knows_older_names() -> None:
    older = re.compile(r"\b(" + "|".join([*OLDER, *names.CONFIG_NAMES]) + r")\b")
    for file in PACKAGE.rglob("*.py"):
        where = file.relative_to(PACKAGE).as_posix()
        if where.startswith("compat/") or where in KNOW_COMPAT:
            continue
        assert not any(part.startswith("compat") for part in imports(file)), where
        assert not older.search(file.read_text()), where


def test_everything_that_is_printed_is_cleaned() -> None:
    for file in PACKAGE.rglob("*.py"):
        where = file.relative_to(PACKAGE).as_posix()
        if where not in ("screen.py", "console.py"):
            found = re.findall(r"(?<![\w.])print\(|console\.print\(|(?<!\w)Console\((?!quiet)", file.read_text())
            assert not found, f"{where}: {found}; use rewardlab.screen.say, or rewardlab.console"


def test_no_file_is_a_drawer_for_everything() -> None:
    names = {file.name for file in PACKAGE.rglob("*.py")}
    assert not names & {"utils.py", "helpers.py", "misc.py", "common.py"}
    long = {str(file): n for file in PACKAGE.rglob("*.py") if (n := len(file.read_text().splitlines())) > 600}
    assert not long
