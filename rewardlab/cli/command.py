"""How every command describes itself: a line of help and an example."""

import argparse
from collections.abc import Callable

Commands = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns
Handler = Callable[[argparse.Namespace], int | None]

CONFIG_HELP = "a name from `rewardlab config list`, or the path of a YAML file"
OVERRIDES_HELP = "override a key of the config, such as env.train.num_envs=16"


def add_group(
    commands: "Commands[argparse.ArgumentParser]", name: str, summary: str, example: str
) -> "Commands[argparse.ArgumentParser]":
    group = commands.add_parser(
        name, help=summary, epilog=f"example:\n  {example}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return group.add_subparsers(title="what to do", metavar="VERB", required=True)


def add_command(
    commands: "Commands[argparse.ArgumentParser]", name: str, summary: str, example: str, handler: Handler
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
