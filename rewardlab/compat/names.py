"""Older names of configs, classes, functions and checkpoints."""

import importlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rewardlab.compat import read_tables, show_notes
from rewardlab.compat.config_keys import TABLES

CONFIG_NAMES: dict[str, dict[str, str]] = TABLES["config_names"]
CHECKPOINTS: dict[str, str] = TABLES["checkpoints"]
NAMES_OF: dict[str, dict[str, dict[str, Any]]] = read_tables("names.yaml")  # says what it means
NAMES = {name: row for names in NAMES_OF.values() for name, row in names.items()}


def todays_config(name: str, available: Collection[str]) -> str:
    """Today's name of a config; a name of today comes back unchanged."""
    if name in available or name not in CONFIG_NAMES:
        return name
    row = CONFIG_NAMES[name]
    show_notes([f"config {name} is now {row['config']}"], stacklevel=5)
    return row["config"]


def todays_checkpoint(path: Path) -> Path:
    """Return the checkpoint that lies where an older name of it is given; other paths come back unchanged."""
    if path.name not in CHECKPOINTS or path.exists():
        return path
    today = path.with_name(CHECKPOINTS[path.name])
    if not today.exists():
        return path
    show_notes([f"{path} is not there; the checkpoint is now {today}"], stacklevel=5)
    return today


def find(name: str) -> Any:
    """What an older name of a class or function stands for; an AttributeError if it is none."""
    if name not in NAMES:
        raise AttributeError(f"module 'rewardlab.compat' has no attribute {name!r}")
    module, _, todays_name = NAMES[name]["today"].rpartition(".")
    if todays_name != name:
        show_notes([f"{name} is now {module}.{todays_name}"], stacklevel=4)
    if "adapter" in NAMES[name]:
        return getattr(importlib.import_module(f"rewardlab.compat.{NAMES[name]['adapter']}"), name)
    return getattr(importlib.import_module(module), todays_name)


def older_names(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose classes have older names."""

    def find_here(name: str) -> Any:
        if name not in NAMES or NAMES[name]["today"].rpartition(".")[0] != module:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return find(name)

    return find_here
