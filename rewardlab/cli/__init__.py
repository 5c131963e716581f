"""The command line, one file a command: reads arguments, calls a pipeline, prints what happened and where results are.

Commands import what they need when they run, so that `rewardlab --help` answers at once.
"""

import argparse
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from importlib.metadata import version

from rewardlab.cli import collect, config, data, demo, evaluate, run, score, train_reward
from rewardlab.cli.command import Parser
from rewardlab.compat import CompatibilityNote
from rewardlab.errors import RewardlabError


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `rewardlab` command; returns its exit status."""
    parser = Parser(
        prog="rewardlab", description="Learned rewards for robots and RL agents.", epilog="example: rewardlab demo"
    )
    parser.add_argument("--version", action="version", version=f"rewardlab {version('rewardlab')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (demo, collect, data, train_reward, score, run, evaluate, config):
        module.add_to(commands)
    # argparse takes a list of positional arguments in one place only; overrides may stand anywhere.
    arguments, rest = parser.parse_known_args(argv)
    if hasattr(arguments, "overrides") and all("=" in item and not item.startswith("-") for item in rest):
        arguments.overrides = [*arguments.overrides, *rest]
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if (hasattr(arguments, "overrides") or getattr(arguments, "trust_modules", None)) and "" not in sys.path:
        # The current directory, for modules that a user's config names as `module:name`, or --trust-modules. Not for
        # commands that read only files of others: those must not decide what is imported from where one stands.
        sys.path.append("")
    return execute(arguments)


def execute(arguments: argparse.Namespace) -> int:
    """Call the handler of a command; errors and warnings become sentences, signals the end of it."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        warnings.simplefilter("always", CompatibilityNote)
        return _handle(arguments)


def _handle(arguments: argparse.Namespace) -> int:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):  # schedulers and closed terminals: as for Ctrl-C, finish files
            signal.signal(number, stop)
    try:
        return arguments.handler(arguments) or 0
    except RewardlabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    kind = "note" if issubclass(category, CompatibilityNote) else "warning"
    print(f"{kind}: {message}", file=sys.stderr)
