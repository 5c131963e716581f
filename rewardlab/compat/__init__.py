"""Older names and DI-engine's interfaces, in today's form. No other part of the package knows them.

config_keys.*    older keys of a config; the tables are in the YAML
names.*          older names of configs, classes, functions and checkpoints; the table is in the YAML
embodied.py      classes of the older form
ding_configs.*   DI-engine's pairs of configs; the tables are in the YAML
ding_rewards.py  the keys of a reward model in such a pair
ding_models.py   reward model classes written for DI-engine

Whatever is given by an older name works, and costs a one-line note with today's name. Classes and functions are
imported from here: `from rewardlab.compat import EmbodiedRewardWorker`. docs/older_names.md lists all of them.
"""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml


class CompatibilityNote(UserWarning):
    """Gives today's name of something that was given by an older one."""


class Translation(NamedTuple):
    """A config in today's keys."""

    mapping: dict[str, Any]
    implied: dict[str, Any]  # values that older keys stand for; weaker than any value that is given
    notes: list[str]


def read_tables(name: str) -> dict[str, Any]:
    """Read the tables in a YAML file of this folder."""
    return dict(yaml.safe_load(Path(__file__).with_name(name).read_text()))


def show_notes(notes: Iterable[str], *, stacklevel: int = 4) -> None:
    """Issue each note once; `stacklevel` is that of `warnings.warn`, from here."""
    for note in dict.fromkeys(notes):
        warnings.warn(note, CompatibilityNote, stacklevel=stacklevel)


def __getattr__(name: str) -> Any:
    from rewardlab.compat.names import find  # which reads tables with the function above

    return find(name)
