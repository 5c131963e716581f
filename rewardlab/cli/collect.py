"""`rewardlab collect`: labelled episodes from a policy that needs no training."""

import argparse

from rewardlab.cli.command import CONFIG_HELP, OVERRIDES_HELP, Commands, add_command, path_name, positive, seed_number
from rewardlab.cli.run_page import run_page


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab collect tabletop_pickcube --episodes 200 --policy noisy_expert --out data/pickcube"
    command = add_command(commands, "collect", "collect labelled episodes with a policy", example, _collect)
    command.add_argument("name", help=CONFIG_HELP)
    command.add_argument("--episodes", type=positive, help="how many new episodes")
    command.add_argument(
        "--policy",
        help="who acts: expert, noisy_expert, random, module:name of yours, or the directory of a policy run",
    )
    command.add_argument("--out", metavar="DIR", type=path_name, help="where the episodes go")
    command.add_argument("--format", help="safetensors (default), pickle, npy, or transitions: one data.pkl")
    command.add_argument("--seed", type=seed_number)
    command.add_argument("--append", action="store_true", help="add to a directory that already has episodes")
    command.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=OVERRIDES_HELP)


def _collect(arguments: argparse.Namespace) -> None:
    from rewardlab.config import load_config, to_overrides
    from rewardlab.pipelines import collect

    options = {
        "seed": arguments.seed,
        "data.collection.episodes": arguments.episodes,
        "data.collection.policy": arguments.policy,
        "data.collection.format": arguments.format,
        "data.collection.save_dir": arguments.out,
    }
    cfg = load_config(arguments.name, ["runner.task=collect", *arguments.overrides, *to_overrides(options)])
    with run_page(cfg) as live:
        collect.run(cfg, append=arguments.append, live=live)
