"""`rewardlab train-reward`: a success classifier from labelled episodes."""

import argparse

from rewardlab.cli.command import CONFIG_HELP, OVERRIDES_HELP, Commands, add_command, path_name

DEFAULT_CONFIG = "reward_training"


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab train-reward --data data/pickcube runner.max_epochs=20 runner.logger.log_path=runs/pickcube"
    command = add_command(commands, "train-reward", "train a success classifier on labelled episodes", example, _train)
    command.add_argument("--data", metavar="DIR", type=path_name, help="directory of episodes, in any format")
    command.add_argument("config", nargs="?", metavar="CONFIG", help=f"{CONFIG_HELP} (default: {DEFAULT_CONFIG})")
    command.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=OVERRIDES_HELP)


def _train(arguments: argparse.Namespace) -> None:
    from rewardlab.config import load_config, to_overrides

    config, overrides = arguments.config or DEFAULT_CONFIG, arguments.overrides
    if "=" in config:  # the first override: argparse gives the first word to CONFIG
        config, overrides = DEFAULT_CONFIG, [config, *overrides]
    data = to_overrides({"data.data_path": arguments.data})
    cfg = load_config(config, [*overrides, *data])
    from rewardlab.pipelines import train_reward  # imports torch

    train_reward.run(cfg)
