"""Older keys of a config, in today's. Adding one is adding a row to config_keys.yaml."""

from collections.abc import Mapping
from typing import Any

from rewardlab.compat import Translation, read_tables
from rewardlab.errors import ConfigError
from rewardlab.nested import KeyPath, leaves, put

TABLES = read_tables("config_keys.yaml")  # says what each table means
KEYS: dict[str, str] = TABLES["keys"]
PREFIXES: dict[str, str] = TABLES["prefixes"]
VALUES: dict[str, dict[str, str]] = TABLES["values"]
DROPPED: dict[str, str] = TABLES["dropped"]
REFUSED: dict[str, str] = TABLES["refused"]
SET: dict[str, dict[str, Any]] = TABLES["set"]
IMPLIED: dict[str, dict[str, Any]] = TABLES["implied"]


def translate(mapping: Mapping[str, Any]) -> Translation:
    """The same configuration in today's names. The argument is not changed."""
    result = Translation({}, {}, [])
    written: dict[KeyPath, tuple[str, Any]] = {}  # today's key -> the key as given, its value
    for path, value in leaves(mapping):
        for today, new in _todays_keys(path, value, result):
            key, name = ".".join(today), ".".join(path)
            other, found = written.setdefault(today, (name, new))
            if found is not new and found != new:
                raise ConfigError(f"{other} = {found!r} and {name} = {new!r} set the same key: keep {key} alone")
            put(result.mapping, today, new)
    return result._replace(notes=list(dict.fromkeys(result.notes)))


def _todays_keys(path: KeyPath, value: Any, result: Translation) -> list[tuple[KeyPath, Any]]:
    """The keys and values of today that one older key stands for."""
    name = ".".join(path)
    if name in SET and value is True:
        result.notes.extend(f"{name} is now {key}={new}" for key, new in SET[name].items())
        return [(tuple(key.split(".")), new) for key, new in SET[name].items()]
    _add_implied(path, value, result)
    if _is_gone(path, value, result.notes):
        return []
    today = _todays_path(path, result.notes)
    prefix = PREFIXES.get(name, "")
    if isinstance(value, str) and not value.startswith(prefix):
        result.notes.append(f"{name}: {value} is now {prefix}{value}")
        value = prefix + value
    return [(today, _todays_value(".".join(today), value, result.notes))]


def _row(table: Mapping[str, Any], path: KeyPath) -> str | None:
    """The longest row of a table that is this key or a block around it."""
    rows = (".".join(path[:n]) for n in range(len(path), 0, -1))
    return next((row for row in rows if row in table), None)


def _add_implied(path: KeyPath, value: Any, result: Translation) -> None:
    row = _row(IMPLIED, path)
    if row is None or value is False:
        return
    for key, implied in IMPLIED[row].items():
        put(result.implied, tuple(key.split(".")), implied)
        result.notes.append(f"{row} implies {key}={implied} unless that is given")


def _is_gone(path: KeyPath, value: Any, notes: list[str]) -> bool:
    for table in (REFUSED, DROPPED):
        row = _row(table, path)
        if row is None:
            continue
        if table is REFUSED and value is not False:
            raise ConfigError(f"{row} = {value!r} is not supported: {table[row]}")
        notes.append(f"{row} is ignored: {table[row]}")
        return True
    return False


def _todays_path(path: KeyPath, notes: list[str]) -> KeyPath:
    row = _row(KEYS, path)
    if row is None:
        return path
    notes.append(f"{row} is now {KEYS[row]}")
    return (*KEYS[row].split("."), *path[row.count(".") + 1 :])


def _todays_value(key: str, value: Any, notes: list[str]) -> Any:
    renamed = VALUES.get(key, {})
    if not isinstance(value, str) or value not in renamed:
        return value
    notes.append(f"{key}: {value} is now {renamed[value]}")
    return renamed[value]
