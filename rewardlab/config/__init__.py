"""Typed configurations: `load_config` reads YAML and overrides, `schema` says which keys there are."""

from rewardlab.config.load import (
    config_from_mapping,
    config_names,
    load_config,
    show_config,
    text_override,
    to_overrides,
    to_yaml,
)
from rewardlab.config.schema import ExperimentConfig

__all__ = [
    "ExperimentConfig",
    "config_from_mapping",
    "config_names",
    "load_config",
    "show_config",
    "text_override",
    "to_overrides",
    "to_yaml",
]
