"""How every command describes itself: a line of help and an example."""

import argparse
from collections.abc import Callable
from typing import Any

from rewardlab.registry import unknown_name

Commands = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns
Handler = Callable[[argparse.Namespace], int | None]

CONFIG_HELP = "a name from `rewardlab config list`, or the path of a YAML file"
OVERRIDES_HELP = "override a key of the config, such as env.train.num_envs=16"


def positive(text: str) -> int:
    """For numbers of things."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number above 0")
    return int(text)


class Parser(argparse.ArgumentParser):
    """Answers a misspelt command with the nearest one."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(None, unknown_name("command", str(value), map(str, action.choices)))


def add_group(
    commands: "Commands[argparse.ArgumentParser]", name: str, summary: str, example: str
) -> "Commands[argparse.ArgumentParser]":
    group = add_command(commands, name, summary, example)
    return group.add_subparsers(title="what to do", metavar="VERB", required=True)


def add_command(
    commands: "Commands[argparse.ArgumentParser]", name: str, summary: str, example: str, handler: Handler | None = None
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(handler=handler)
    return command


def add_trust_option(command: argparse.ArgumentParser) -> None:
    """For commands that read what others may have made: which modules they may import for it."""
    command.add_argument(
        "--trust-modules",
        action="extend",
        type=lambda text: [name for name in text.split(",") if name],
        default=[],
        metavar="MODULE",
        help="import these modules (a,b), for environments or reward models that are not of rewardlab",
    )
