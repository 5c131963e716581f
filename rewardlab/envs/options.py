"""Reads options of a simulator into a dataclass; errors name the key, what was found and what was expected."""

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Annotated, Any, TypeGuard, TypeVar, cast

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from rewardlab.config.load import validation_message
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

T = TypeVar("T")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number, and neither true nor false."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _point(value: object) -> object:
    if not isinstance(value, (list, tuple)) or len(value) != 3 or not all(map(is_number, value)):
        raise ValueError("3 numbers: x, y, z in metres")
    return tuple(value)


Point = Annotated[tuple[float, float, float], BeforeValidator(_point)]


def check_option_names(env_id: str, options: Iterable[str], offered: Iterable[str]) -> None:
    """Raise if an environment does not offer one of these options."""
    offered = tuple(offered)
    for name in options:
        if name not in offered:
            raise ConfigError(unknown_name(f"option of '{env_id}'", name, offered))


def read_block(cls: type[T], env_id: str, key: str, values: Any, *, other: str = "") -> T:
    """Return the values of the key `key` as the dataclass `cls`, a `@section`; `other` is what may be there instead."""
    names = [field.name for field in dataclasses.fields(cast(Any, cls))]
    if not isinstance(values, dict):
        found, expected = json.dumps(values, default=str), f"{other} or " if other else ""
        raise ConfigError(
            f"environment '{env_id}': {key}: found {found}, expected {expected}a block with {', '.join(names)}"
        )
    for name in values:
        if name not in names:
            raise ConfigError(f"environment '{env_id}': {unknown_name(f'key of {key}', str(name), names)}")
    try:
        # As in config files, a list is taken for a tuple, but no text for a number.
        return TypeAdapter(cls).validate_json(json.dumps(values, default=str))
    except ValidationError as error:
        lines = [f"{key}.{validation_message(each)}" for each in error.errors()]
    raise ConfigError(f"environment '{env_id}': {'; '.join(lines)}")
