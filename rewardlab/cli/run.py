"""`rewardlab run`: whatever a config says is to be done."""

import argparse
import importlib
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
    """Say what a config is about to do, do it, and return where its results are."""
    from rewardlab.console import make_console
    from rewardlab.pipelines import preview

    console = console or make_console()
    preview.announce(cfg, console)  # before torch is imported, which takes seconds
    if cfg.runner.task == "train_reward":
        from rewardlab.pipelines import train_reward

        return train_reward.run(cfg, console=console)
    pipeline = importlib.import_module(f"rewardlab.pipelines.{cfg.runner.task}")  # collecting needs no torch
    with run_page(cfg, console) as live:
        path: Path = pipeline.run(cfg, console=console, live=live)
    return path
