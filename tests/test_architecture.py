"""The tree keeps its promises: which folder may import which, and what nothing may do."""

import ast
from pathlib import Path

import rewardlab

PACKAGE = Path(rewardlab.__file__).parent

# Each layer may import the ones before it, and itself.
LAYERS = [
    {"errors", "keys", "registry", "types"},
    {"compat", "compat_ding", "config"},
    {"data", "figures", "models"},
    {"envs"},
    {"rewards", "rl"},
    {"reports", "run_state"},
    {"training"},
    {"workers"},
    {"pipelines"},
    {"cli", "train_reward_model", "__main__"},
]
# Names offered to type checkers in one place, and defined in a later layer.
OFFERED = {("envs/wrappers.py", "rewards")}
STRANGERS = [
    {"rewards", "rl"},
    {"data", "models"},
    {"data", "figures"},
    {"figures", "models"},
    {"reports", "run_state"},
]


def layer_of(part: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if part in layer)


def imports(file: Path) -> set[str]:
    """The parts of rewardlab that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    parts = [name.split(".") for name in names if name.startswith("rewardlab.")]
    return {part[1] for part in parts}


def test_imports_point_one_way() -> None:
    for file in PACKAGE.rglob("*.py"):
        part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        offered = {other for where, other in OFFERED if where == file.relative_to(PACKAGE).as_posix()}
        for other in imports(file) - {part} - offered:
            assert layer_of(other) <= layer_of(part), f"{file}: {part} must not import {other}"
            assert {part, other} not in STRANGERS, f"{file}: {part} and {other} do not know each other"


def test_no_file_is_a_drawer_for_everything() -> None:
    names = {file.name for file in PACKAGE.rglob("*.py")}
    assert not names & {"utils.py", "helpers.py", "misc.py", "common.py"}
    long = {str(file): n for file in PACKAGE.rglob("*.py") if (n := len(file.read_text().splitlines())) > 600}
    assert not long
