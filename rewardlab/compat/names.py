"""Older names of configs and classes."""

import sys
from collections.abc import Callable, Collection
from typing import Any

from rewardlab.compat import show_notes
from rewardlab.compat.config_keys import TABLES
from rewardlab.errors import ConfigError
from rewardlab.nested import nest

CONFIG_NAMES: dict[str, dict[str, Any]] = TABLES["config_names"]
CLASS_NAMES: dict[str, str] = TABLES["class_names"]


def todays_config(name: str, available: Collection[str]) -> tuple[str, dict[str, Any]]:
    """Today's name of a config, and keys that the older one set besides; a name of today comes back unchanged."""
    if name in available or name not in CONFIG_NAMES:
        return name, {}
    row = CONFIG_NAMES[name]
    if "needs" in row:
        raise ConfigError(
            f"config '{name}' needs {row['needs']}, which rewardlab does not have yet. The nearest to it that runs: "
            f"{row['config']}"
        )
    keys = row.get("keys", {})
    given = f", with {', '.join(f'{key}={value}' for key, value in keys.items())}" if keys else ""
    show_notes([f"config {name} is now {row['config']}{given}"], stacklevel=5)
    return row["config"], nest(keys)


def older_class_names(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose classes have older names."""

    def find(name: str) -> Any:
        if name not in CLASS_NAMES:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        show_notes([f"class {name} is now {CLASS_NAMES[name]}"], stacklevel=3)
        return getattr(sys.modules[module], CLASS_NAMES[name])

    return find
