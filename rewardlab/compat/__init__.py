"""Older names and DI-engine's interfaces, in today's form. No other part of the package knows them.

config_keys.py      older keys of a config
names.py            older names of configs and classes
ding_configs.py     DI-engine's pairs of configs
ding_rewards.py     the keys of a reward model in such a pair
ding_models.py      reward model classes written for DI-engine

Whatever is given by an older name works, and costs a one-line note with today's name.
"""

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple


class CompatibilityNote(UserWarning):
    """Gives today's name of something that was given by an older one."""


class Translation(NamedTuple):
    """A config in today's keys."""

    mapping: dict[str, Any]
    implied: dict[str, Any]  # values that older keys stand for; weaker than any value that is given
    notes: list[str]


def show_notes(notes: Iterable[str], *, stacklevel: int = 4) -> None:
    """Issue each note once; `stacklevel` is that of `warnings.warn`, from here."""
    for note in dict.fromkeys(notes):
        warnings.warn(note, CompatibilityNote, stacklevel=stacklevel)
