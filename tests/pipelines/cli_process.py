"""The command line as the target of a process: it ends with the exit code that a shell would see."""

import sys

from rewardlab.cli import main


def run_cli(arguments: list[str]) -> None:
    sys.exit(main(arguments))
