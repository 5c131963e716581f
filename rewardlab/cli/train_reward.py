"""`rewardlab train-reward`: a success classifier from labelled episodes."""

import argparse

from rewardlab.cli.command import OVERRIDES_HELP, Commands, add_command, path_name


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab train-reward --data data/pickcube runner.max_epochs=20 runner.logger.log_path=runs/pickcube"
    command = add_command(commands, "train-reward", "train a success classifier on labelled episodes", example, _train)
    command.add_argument("--data", metavar="DIR", type=path_name, help="directory of episodes, in any format")
    command.add_argument("--config", default="reward_training", help="config to start from (default: %(default)s)")
    command.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=OVERRIDES_HELP)


def _train(arguments: argparse.Namespace) -> None:
    from rewardlab.config import load_config, to_overrides
    from rewardlab.pipelines import train_reward

    data = to_overrides({"data.data_path": arguments.data})
    train_reward.run(load_config(arguments.config, [*arguments.overrides, *data]))
