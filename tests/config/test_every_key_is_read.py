"""No key of the schema is without effect: somewhere in the package it is read."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewardlab
from rewardlab.config import schema
from rewardlab.config.schema_keys import schema_keys
from rewardlab.rewards.base import REWARD_MODELS

PACKAGE = Path(rewardlab.__file__).parent
# Names under which the code holds a block of keys, beside the block's own. A read through another name is not counted:
# `torch.backends` would be one of `runner.logger.backends`.
HOLDERS = {
    *("cfg", "config", "_config", "settings", "off_policy", "plan", "wanted", "model", "model_config", "model_configs"),
    *("env", "eval", "train", "algorithm", "sac", "dqn", "ppo", "optim", "runner", "reward", "actor", "early_stop"),
    "group",
}


def holder(node: ast.expr) -> str:
    """The last name of `cfg`, `self.cfg`, `cfg.reward.models[0]` (then `models`) ..."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return holder(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def reads(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(holder, name) of every attribute that is read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield holder(node.value), node.attr


def schema_reads() -> Iterator[tuple[str, str]]:
    """What properties and methods of the schema read; validators check a key and do not use it."""
    for node in ast.walk(ast.parse(inspect.getsource(schema))):
        if isinstance(node, ast.FunctionDef) and "self" in [argument.arg for argument in node.args.args]:
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            if not any(decorator.startswith("model_validator") for decorator in decorators):
                yield from (("self", name) for where, name in reads(node) if where == "self")


READ = {
    pair
    for file in PACKAGE.rglob("*.py")
    if not {"compat", "config"} & set(file.relative_to(PACKAGE).parts) or file.name == "robots.py"
    for pair in reads(ast.parse(file.read_text()))
}
# Keys of a reward model are arguments of the classes.
ARGUMENTS = {name for cls in REWARD_MODELS for name in inspect.signature(REWARD_MODELS[cls]).parameters}
KEYS = sorted(set(schema_keys()))


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_read(key: str) -> None:
    block, _, name = key.rpartition(".")
    own = block.rpartition(".")[2]
    holders = HOLDERS | {own, f"{own}s"}
    found = any((where, name) in READ for where in holders) or ("self", name) in set(schema_reads())
    found |= block == "reward.model" and name in ARGUMENTS
    assert found, f"nothing reads {key}: remove it, or add the name of what holds it to HOLDERS"


def test_a_key_that_nothing_reads_is_found() -> None:
    assert ("torch", "backends") in READ
    assert not any((where, "backends") in READ for where in HOLDERS | {"logger"})
