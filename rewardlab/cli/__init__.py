"""The command line, one file a command: reads arguments, calls a pipeline, prints what happened and where results are.

Commands import what they need when they run, so that `rewardlab --help` answers at once.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import version

from rewardlab.cli import (
    collect,
    compare,
    completion,
    config,
    data,
    demo,
    evaluate,
    robot_check,
    robot_sim,
    run,
    score,
    train_reward,
)
from rewardlab.cli.command import Parser
from rewardlab.cli.execute import execute
from rewardlab.cli.unknown_options import unknown_option

MODULES = (
    demo,
    collect,
    data,
    train_reward,
    score,
    run,
    evaluate,
    compare,
    config,
    robot_sim,
    robot_check,
    completion,
)  # in the order of --help


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `rewardlab` command; returns its exit status."""
    return execute(lambda: _command(argv))


def _command(argv: Sequence[str] | None) -> int | None:
    parser = Parser(
        prog="rewardlab", description="Learned rewards for robots and RL agents.", epilog="example: rewardlab demo"
    )
    parser.add_argument("--version", action="version", version=f"rewardlab {version('rewardlab')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in MODULES:
        module.add_to(commands)
    # argparse takes a list of positional arguments in one place only; overrides may stand anywhere.
    arguments, rest = parser.parse_known_args(argv)
    if hasattr(arguments, "overrides") and all("=" in item and not item.startswith("-") for item in rest):
        arguments.overrides = [*arguments.overrides, *rest]
    elif rest:
        words = sys.argv[1:] if argv is None else argv
        raise unknown_option(rest, words, arguments.command, takes_keys=hasattr(arguments, "overrides"))
    if (hasattr(arguments, "overrides") or getattr(arguments, "trust_modules", None)) and "" not in sys.path:
        # The current directory, for modules that a user's config names as `module:name`, or --trust-modules. Not for
        # commands that read only files of others: those must not decide what is imported from where one stands.
        sys.path.append("")
    return arguments.handler(arguments)
