"""Older names of configs, classes and checkpoints."""

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rewardlab.compat import show_notes
from rewardlab.compat.config_keys import TABLES
from rewardlab.errors import ConfigError

CONFIG_NAMES: dict[str, str | None] = TABLES["config_names"]
CLASS_NAMES: dict[str, str] = TABLES["class_names"]
CHECKPOINTS: dict[str, str] = TABLES["checkpoints"]


def todays_config_name(name: str, available: Collection[str]) -> str:
    """Today's name of a config; a name that is not an older one comes back unchanged."""
    if name in available or name not in CONFIG_NAMES:
        return name
    today = CONFIG_NAMES[name]
    if today is None:
        alike = name.replace("maniskill", "tabletop")
        advice = f"On the built-in task: {alike}" if alike in available else f"Available today: {', '.join(available)}"
        raise ConfigError(f"config '{name}' is not available yet. {advice}")
    show_notes([f"config {name} is now {today}"], stacklevel=5)
    return today


def todays_checkpoint(path: Path) -> Path:
    """Return the checkpoint that lies where an older name of it is given; other paths come back unchanged."""
    today = path.with_name(CHECKPOINTS.get(path.name, path.name))
    if path.exists() or not today.exists():
        return path
    if today != path:
        show_notes([f"{path} is not there; the checkpoint is now {today}"], stacklevel=5)
    return today


def older_class_names(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose classes have older names."""

    def find(name: str) -> Any:
        if name not in CLASS_NAMES:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        show_notes([f"class {name} is now {CLASS_NAMES[name]}"], stacklevel=3)
        return getattr(sys.modules[module], CLASS_NAMES[name])

    return find
