"""Modules of a run that somebody else may have made: they are imported only when the user names them.

An import runs code. A config that the user passes to a command is the user's own, and may name modules. The config in
the directory of a run is data.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.drawing_drivers import choose_drivers_on_import
from rewardlab.errors import DataError
from rewardlab.limits import excerpt
from rewardlab.registry import import_named

OPTION = "--trust-modules"
_MODULE_AND_NAME = re.compile(r"([^\W\d][\w.]*):[^\W\d][\w./-]*")


class UntrustedModulesError(DataError):
    """A run names modules that the user has not named."""

    def __init__(self, message: str, modules: Sequence[str]) -> None:
        super().__init__(message)
        self.modules = modules


def import_trusted(modules: Iterable[str]) -> None:
    """Import the modules that the user has named, which may register environments and reward models."""
    with choose_drivers_on_import():
        for module in modules:
            import_named(module, OPTION)


def check_modules(env: EnvConfig, trusted: Sequence[str], source: Path) -> None:
    """Raise if building an environment would import a module that is not trusted; `source` is the config's file."""
    named = named_modules(env)
    untrusted = [module for module in named if module not in trusted]
    if untrusted:
        raise UntrustedModulesError(
            f"{source}: env.eval names {excerpt(', '.join(map(repr, untrusted)))}; importing a module runs its code, "
            "and this file may be somebody else's. If you trust the module and the place it is imported from, add "
            f"{OPTION}",
            named,
        )


def named_modules(env: EnvConfig) -> list[str]:
    """Return the modules that building an environment would import: of its id, its wrappers, and ids among options."""
    options = [env.options, *(wrapper.options for wrapper in env.wrappers)]
    texts = [text for text in _texts(options) if _MODULE_AND_NAME.fullmatch(text)]
    names = [env.id] if ":" in env.id else []
    names += [wrapper.name for wrapper in env.wrappers]
    modules = [name.rpartition(":")[0] for name in names] + [text.partition(":")[0] for text in texts]
    return list(dict.fromkeys(filter(None, modules)))


def evaluate_command(run: str | Path, modules: Sequence[str], options: Sequence[str] = ()) -> str:
    """Return the command that evaluates a run, with the option for the modules that it needs."""
    trust = [OPTION, ",".join(modules)] if modules else []
    return shlex.join(["rewardlab", "evaluate", str(run), *options, *trust])


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
