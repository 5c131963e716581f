"""Reads and writes nested dictionaries by the paths of their keys."""

from collections.abc import Iterator, Mapping
from typing import Any

from rewardlab.errors import ConfigError

KeyPath = tuple[str, ...]


def leaves(mapping: Mapping[str, Any], prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the path and value of every key that does not contain other keys; an empty dictionary is a value."""
    for key, value in mapping.items():
        path = (*prefix, str(key))
        if isinstance(value, Mapping) and len(value.keys()):  # a TensorDict has no truth value
            yield from leaves(value, path)
        else:
            yield path, value


def put(mapping: dict[str, Any], path: KeyPath, value: Any) -> None:
    """Set a key and create the dictionaries around it; an existing different value is an error."""
    for depth, key in enumerate(path[:-1], start=1):
        mapping = mapping.setdefault(key, {})
        if not isinstance(mapping, dict):
            raise ConfigError(f"{'.'.join(path[:depth])} = {mapping!r} and {'.'.join(path)} cannot both be given")
    found = mapping.setdefault(path[-1], value)
    if found is not value and found != value and value != {}:
        raise ConfigError(f"{'.'.join(path)}: found both {found!r} and {value!r}, expected one of them")


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted keys as nested dictionaries."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        put(nested, tuple(key.split(".")), value)
    return nested
