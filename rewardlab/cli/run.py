"""`rewardlab run`: whatever a config says is to be done."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.cli.command import CONFIG_HELP, OVERRIDES_HELP, Commands, add_command
from rewardlab.cli.run_page import run_page

if TYPE_CHECKING:
    from rich.console import Console

    from rewardlab.config import ExperimentConfig


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab run tabletop_ppo_mlp runner.max_epochs=20 cluster.backend=ray"
    command = add_command(
        commands, "run", "do what a config says: train a policy, collect, train a reward", example, _run
    )
    command.add_argument("config", metavar="CONFIG", help=CONFIG_HELP)
    command.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=OVERRIDES_HELP)


def _run(arguments: argparse.Namespace) -> None:
    from rewardlab.config import load_config

    run_config(load_config(arguments.config, arguments.overrides))


def run_config(cfg: "ExperimentConfig", console: "Console | None" = None) -> Path:
    """Do what `runner.task` of a config says, and return where its results are."""
    from rewardlab.pipelines import collect, train_policy, train_reward

    if cfg.runner.task == "train_reward":
        return train_reward.run(cfg, console=console)
    pipelines: dict[str, Callable[..., Path]] = {"collect": collect.run, "train_policy": train_policy.run}
    with run_page(cfg, console) as live:
        return pipelines[cfg.runner.task](cfg, console=console, live=live)
