"""The keys of the schema by their dotted names: all of them, the blocks, and the choices of those that have a few."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic.dataclasses import is_pydantic_dataclass

from rewardlab.config.schema import ExperimentConfig


def schema_keys(cls: Any = ExperimentConfig, prefix: str = "") -> Iterator[str]:
    """The dotted name of every key and section; the items of a list share the name of the list."""
    for name, sections in inner_sections(cls):
        yield prefix + name
        for section in sections:
            yield from schema_keys(section, f"{prefix}{name}.")


def section_keys(cls: Any = ExperimentConfig, prefix: str = "") -> Iterator[str]:
    """The dotted name of every block of keys."""
    for name, sections in inner_sections(cls):
        for section in sections:
            yield prefix + name
            yield from section_keys(section, f"{prefix}{name}.")


def key_choices(cls: Any = ExperimentConfig, prefix: str = "") -> dict[str, list[str]]:
    """Return the values that a key may have, by its dotted name, where they are a few words."""
    found: dict[str, list[str]] = {}
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    for name, sections in inner_sections(cls):
        if get_origin(types[name]) is Literal:
            found[prefix + name] = [str(choice) for choice in get_args(types[name])]
        elif types[name] is bool:
            found[prefix + name] = ["true", "false"]
        for section in sections:
            found |= key_choices(section, f"{prefix}{name}.")
    return found


def inner_sections(cls: Any) -> Iterator[tuple[str, set[Any]]]:
    """Yield the keys of a section, each with the sections that its value may be made of."""
    for field in dataclasses.fields(cls):
        yield field.name, {part for part in _parts(field.type) if is_pydantic_dataclass(part)}


def _parts(annotation: Any) -> Iterator[Any]:
    """A type and everything it is made of."""
    yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)
