"""Sizes for several machines in one config.

The keys of a config are sized for one machine, often with a GPU. Its block `machines` holds, by the name of another
machine, the keys that differ there. `+machine=NAME` puts them over the keys of all files, and under the overrides.
A config that builds on others has their machines as well.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override

from rewardlab.config.schema import ClusterConfig
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

MACHINE, MACHINES = "machine", "machines"
Layer = Mapping[str, Any]


class SizedLayers(NamedTuple):
    """The layers of a config for a machine."""

    layers: list[Layer]  # the weakest first
    overrides: list[Override]  # of keys
    others: list[str]  # machines that the config has sizes for, if none of them was chosen


def choose_machine(layers: Sequence[Layer], overrides: Sequence[Override]) -> SizedLayers:
    """Put the sizes for the chosen machine over the layers of a config; without a choice they are left out."""
    said = [layer.get(MACHINE) for layer in layers]
    said += [override.value() for override in overrides if override.key_or_group == MACHINE]
    chosen = [str(name) for name in said if name is not None]
    found = [(name, sizes) for layer in layers for name, sizes in _machines(layer).items()]
    names = list(dict.fromkeys(name for name, _ in found))
    plain = [{key: value for key, value in layer.items() if key not in (MACHINE, MACHINES)} for layer in layers]
    keys = [override for override in overrides if override.key_or_group != MACHINE]
    if not chosen:
        return SizedLayers([*plain], keys, names)
    if not names:
        raise ConfigError(f"machine: found {chosen[-1]}, but this config has sizes for one machine only; leave it out")
    if chosen[-1] not in names:
        raise ConfigError(f"machine: {unknown_name('machine', chosen[-1], names)}")
    return SizedLayers([*plain, *(sizes for name, sizes in found if name == chosen[-1])], keys, [])


def check_machine(cluster: ClusterConfig, others: Sequence[str]) -> None:
    """Raise if a config is sized for a device that is not here, and has sizes for machines without it."""
    if not others or cluster.backend != "local" or cluster.device_kind in ("auto", "cpu"):
        return
    from rewardlab.devices import device_count  # takes seconds: torch

    if not device_count(cluster.device_kind):
        kind = "GPU" if cluster.device_kind == "cuda" else f"{cluster.device_kind} device"
        raise ConfigError(
            f"cluster.device: found {cluster.device}. This config is sized for a {kind}, and there is none here; add "
            + " or ".join(f"+{MACHINE}={name}" for name in others)
        )


def _machines(layer: Layer) -> dict[str, Layer]:
    found = layer.get(MACHINES)
    blocks = {} if found is None else found
    if not isinstance(blocks, Mapping) or not all(isinstance(sizes, Mapping) for sizes in blocks.values()):
        raise ConfigError(f"{MACHINES}: found {found!r}, expected the name of a machine, and in its block keys")
    return {str(name): sizes for name, sizes in blocks.items()}
