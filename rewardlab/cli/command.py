"""How every command describes itself: a line of help and an example."""

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any

from rewardlab.arguments import check_path, check_seed, split_device
from rewardlab.registry import unknown_name
from rewardlab.screen import PatientStream, printable

Commands = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns
Handler = Callable[[argparse.Namespace], int | None]

CONFIG_HELP = "a name from `rewardlab config list`, or the path of a YAML file"
OVERRIDES_HELP = "override a key of the config, such as env.train.num_envs=16"


def positive(text: str) -> int:
    """For numbers of things."""
    number = int(text) if re.fullmatch("[0-9]{1,18}", text) else 0
    if number == 0:
        raise argparse.ArgumentTypeError(f"found {_shown(text)}, expected a whole number above 0")
    return number


def seed_number(text: str) -> int:
    """For seeds of random numbers."""
    try:
        return check_seed(int(text) if re.fullmatch("[0-9]{1,19}", text) else -1)
    except ValueError as expected:
        raise argparse.ArgumentTypeError(f"found {_shown(text)}, expected {expected}") from None


def path_name(text: str) -> str:
    """For files and directories."""
    try:
        return check_path(text)
    except ValueError as expected:
        raise argparse.ArgumentTypeError(f"found {_shown(text)}, expected {expected}") from None


def device_name(text: str) -> str:
    """For devices of PyTorch; whether this machine has one is known when torch is imported."""
    try:
        split_device("cpu" if text == "auto" else text)
    except ValueError as expected:
        raise argparse.ArgumentTypeError(f"found {_shown(text)}, expected {expected}") from None
    return text


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


class Parser(argparse.ArgumentParser):
    """Answers a misspelt command with the nearest one; names in its messages may come from files (`data info *`)."""

    def _print_message(self, message: str, file: Any = None) -> None:
        PatientStream(stderr=file is not sys.stdout).write(printable(message))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            is_command = isinstance(action, argparse._SubParsersAction)
            words = unknown_name("command" if is_command else "value", str(value), map(str, action.choices))
            raise argparse.ArgumentError(None if is_command else action, words)


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
    command.set_defaults(handler=handler, command=command)
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
