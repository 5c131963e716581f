"""`rewardlab compare`: classifiers on the same episodes, or runs of policies, side by side."""

import argparse

from rewardlab.cli.command import Commands, add_command, path_name
from rewardlab.errors import ConfigError
from rewardlab.screen import say

DEFAULT_OUT = "runs/compare"


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab compare runs/classifier runs/other_classifier --data data/unseen"
    command = add_command(commands, "compare", "compare classifiers on the same episodes, or runs", example, _compare)
    command.add_argument(
        "paths",
        nargs="+",
        type=path_name,
        metavar="RUN",
        help="runs or checkpoints; the others are compared with the first",
    )
    command.add_argument(
        "--data",
        action="append",
        default=[],
        type=path_name,
        metavar="DIR",
        help="classifiers: directory of labelled episodes; those that one of them was trained on are left out",
    )
    command.add_argument(
        "--out",
        type=path_name,
        default=DEFAULT_OUT,
        metavar="DIR",
        help="for compare.html and plots (default: %(default)s)",
    )
    command.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (default: %(default)s)")


def _compare(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from rewardlab.pipelines.compare import compare

    if len(arguments.paths) < 2:
        raise ConfigError(f"nothing to compare {arguments.paths[0]} with: name at least two runs or checkpoints")
    result = compare(
        [Path(path) for path in arguments.paths],
        data=arguments.data,
        out=Path(arguments.out),
        device=arguments.device,
    )
    for words in result.notes:
        say(words)
    for line in result.lines:
        say(line)
    say(f"report: {result.page}")
