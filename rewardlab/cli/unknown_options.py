"""The error for options that a command does not have: often a key of the config, written with dashes."""

import argparse
from collections.abc import Sequence
from itertools import pairwise

from rewardlab.errors import ConfigError
from rewardlab.registry import nearest_name


def unknown_option(
    unknown: Sequence[str], words: Sequence[str], command: argparse.ArgumentParser, *, takes_keys: bool
) -> ConfigError:
    """Return the error for the words of a command line that argparse did not understand; `words` are all of them.

    `takes_keys`: the command has a config, so that `--max_epochs 3` may be meant as `runner.max_epochs=3`.
    """
    option = next((word for word in unknown if word.startswith("-")), None)
    if option is None:
        hint = "; keys of the config are given as key=value" if takes_keys else ""
        return ConfigError(f"unexpected argument '{unknown[0]}'{hint}. See {command.prog} --help")
    name, equals, value = option.lstrip("-").partition("=")
    own = [text.lstrip("-") for action in command._actions for text in action.option_strings if text.startswith("--")]
    near = nearest_name(name, own)
    if takes_keys:
        if not equals:
            behind = [after for word, after in pairwise(words) if word == option and not after.startswith("-")]
            value = next(iter(behind), "VALUE")
        if (key := _key_called(name.replace("-", "_"))) is not None:
            meant = f"{key}={value}"
            return ConfigError(f"unknown option '{option}'. Did you mean {meant}? Keys of the config have no dashes")
    hint = f" Did you mean --{near}?" if near is not None else ""
    return ConfigError(f"unknown option '{option}'.{hint} See {command.prog} --help")


def _key_called(name: str) -> str | None:
    """Return the key of the config that an option most likely means; None if there is none of that name."""
    from rewardlab.config.load import keys_called

    return next(iter(keys_called(name)), None)
