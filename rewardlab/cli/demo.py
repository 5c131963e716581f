"""`rewardlab demo`: the main job on the built-in task."""

import argparse
from pathlib import Path

from rewardlab.cli.command import Commands, add_command, path_name, seed_number


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = add_command(commands, "demo", "see the system work on the built-in task", "rewardlab demo", _demo)
    command.add_argument(
        "--out", default="runs/demo", type=path_name, help="directory of the results (default: %(default)s)"
    )
    command.add_argument("--seed", type=seed_number, default=0, help="(default: %(default)s)")


def _demo(arguments: argparse.Namespace) -> None:
    from rewardlab.pipelines import demo

    demo.run(Path(arguments.out), seed=arguments.seed)
