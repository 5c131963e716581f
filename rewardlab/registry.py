"""Registries of classes and functions that a config chooses by name: environments, formats, reward models ..."""

import difflib
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from rewardlab.errors import ConfigError

T = TypeVar("T")

MOST_LISTED = 8  # choices in an error; a reader finds nothing among more


def nearest_names(name: str, choices: Iterable[str], most: int = 4) -> list[str]:
    """Return the choices that a misspelt name may mean, the most likely one first."""
    return difflib.get_close_matches(name[:200], list(choices), n=most, cutoff=0.5)


def nearest_name(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a misspelt name most likely means; None if none is like it."""
    return next(iter(nearest_names(name, choices, 1)), None)


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> str:
    """Return the error message for an unknown name: with the nearest choice, and the others if they are few."""
    choices = sorted(choices)
    near = nearest_names(name, choices)
    name = name if len(name) <= 200 else f"{name[:200]}..."
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"unknown {kind} '{name}'.{hint}{_listed(choices, near)}"


def _listed(choices: list[str], near: list[str]) -> str:
    if len(choices) <= MOST_LISTED:
        return f" Choices: {', '.join(choices)}" if choices else ""
    if near:
        return f" Like it: {', '.join(near[1:])}" if near[1:] else ""
    return f" Choices: {', '.join(choices[:MOST_LISTED])} ... ({len(choices)} in all)"


def import_named(module: str, named_by: str) -> ModuleType:
    """Import a module that a user has named; `named_by`, for errors, says where."""
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a script that was not meant to be imported may exit
        failed = f"{named_by}: importing '{module}' failed ({type(error).__name__}: {error})"
        if isinstance(error, ModuleNotFoundError) and module.split(".")[0] == error.name:
            failed += f". {_where_modules_are(error.name)}"
        raise ConfigError(failed) from error


def _where_modules_are(module: str) -> str:
    """Return where a module that was not found is expected, with the nearest of the user's own."""
    here = Path.cwd()
    own = [file.stem for file in here.glob("*.py")] if {"", str(here)} & set(sys.path) else []
    near = nearest_name(module, own)
    hint = "" if near is None else f" Did you mean '{near}'?"
    return f"Expected a file {module}.py in the current directory, {here}, or an installed package.{hint}"


def registered_names(folder: Path, decorator: str) -> set[str]:
    """Return the names that the files below a folder register, without importing them: `@decorator("name")`."""
    pattern = re.compile(rf'^@{decorator}\("([\w-]+)"\)', re.MULTILINE)
    return {name for file in folder.rglob("*.py") for name in pattern.findall(file.read_text(encoding="utf-8"))}


class Registry(Generic[T]):
    """A dictionary of named entries of one kind; the error for an unknown name lists the choices."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an object under `name`."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ConfigError(f"{self.kind} '{name}' is registered twice; choose another name")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise ConfigError(unknown_name(self.kind, name, self._entries)) from None

    def find(self, name: str) -> T:
        """Return the entry `name`; for 'module:name' import the module first, as Gymnasium does for environments.

        Only for names that a user wrote, never for names from a data file: an import runs code.
        """
        module, colon, entry = name.rpartition(":")
        if colon and not (module and entry):
            raise ConfigError(f"{self.kind} '{name}': expected a name, or module:name")
        if module:
            found = import_named(module, f"{self.kind} '{name}'")
            if entry not in self and hasattr(found, entry):
                raise ConfigError(
                    f"{self.kind} '{name}': {module} has a {entry}, but it is not registered under that name; use the "
                    "name in the decorator above it"
                )
        return self[entry]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)
