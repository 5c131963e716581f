"""`rewardlab config`: which configurations there are, and every key of one."""

import argparse

from rewardlab.cli.command import CONFIG_HELP, OVERRIDES_HELP, Commands, add_command, add_group
from rewardlab.screen import PrintableStream, say, say_error


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    verbs = add_group(commands, "config", "list and print configurations", "rewardlab config list")
    add_command(verbs, "list", "list the configs that come with rewardlab", "rewardlab config list", _list)
    example = "rewardlab config show tabletop_pickcube env.train.num_envs=16"
    command = add_command(verbs, "show", "print every key of a config with its value and its meaning", example, _show)
    command.add_argument("name", help=CONFIG_HELP)
    command.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=OVERRIDES_HELP)


def _list(arguments: argparse.Namespace) -> None:
    from rewardlab.config import config_names

    for name, description in config_names().items():
        say(f"{name:32} {description}")


def _show(arguments: argparse.Namespace) -> None:
    from rewardlab.config import show_config
    from rewardlab.config.meanings import explain

    text, lacking = show_config(arguments.name, arguments.overrides)
    PrintableStream().write(explain(text))
    for what in lacking:
        say_error(f"note: to run it: {what}")
