"""`rewardlab evaluate`: how good a trained policy is."""

import argparse
import json
from pathlib import Path

from rewardlab.cli.command import (
    Commands,
    add_command,
    add_trust_option,
    device_name,
    path_name,
    positive,
    seed_number,
)
from rewardlab.errors import DataError
from rewardlab.input_files import nearest_path
from rewardlab.screen import say


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab evaluate runs/tabletop_ppo_mlp --episodes 200"
    command = add_command(
        commands, "evaluate", "let a trained policy do its best, and judge it by the environment", example, _evaluate
    )
    command.add_argument("run", metavar="RUN", type=path_name, help="directory of a run, or one of its checkpoints")
    command.add_argument(
        "--episodes",
        type=positive,
        default=100,
        metavar="N",
        help="of env.eval.num_envs at a time (default: %(default)s)",
    )
    command.add_argument("--seed", type=seed_number, default=1, help="of the episodes (default: %(default)s)")
    command.add_argument(
        "--device", type=device_name, default="auto", help="auto, cpu, cuda, ... (default: %(default)s)"
    )
    add_trust_option(command)
    command.add_argument("--json", action="store_true", help="print the figures as JSON")


def _evaluate(arguments: argparse.Namespace) -> None:
    if not Path(arguments.run).exists():  # answered before torch is imported, which takes seconds
        raise DataError(f"{arguments.run} does not exist{nearest_path(arguments.run)}; expected the directory of a run")
    from rewardlab.devices import find_device
    from rewardlab.figures.metrics import wilson
    from rewardlab.figures.words import shown
    from rewardlab.pipelines.evaluate import evaluate
    from rewardlab.pipelines.trusted_modules import UntrustedModulesError, evaluate_command

    try:
        checkpoint, figures = evaluate(
            arguments.run,
            episodes=arguments.episodes,
            seed=arguments.seed,
            device=find_device(arguments.device, "--device"),
            trust_modules=arguments.trust_modules,
        )
    except UntrustedModulesError as error:
        options = [f"--episodes={arguments.episodes}", f"--seed={arguments.seed}", f"--device={arguments.device}"]
        modules = list(dict.fromkeys([*arguments.trust_modules, *error.modules]))
        command = evaluate_command(arguments.run, modules, options + ["--json"] * arguments.json)
        raise DataError(f"{error}:\n  {command}") from None
    count = arguments.episodes
    intervals = {n: wilson(round(v * count), count) for n, v in figures.items() if n.startswith("success")}
    if arguments.json:
        ends = {f"{name}_interval": [found.low, found.high] for name, found in intervals.items()}
        say(json.dumps({"checkpoint": str(checkpoint), "episodes": count, **figures, **ends}))
        return
    say(f"{checkpoint}, {count} episodes; shares with 95 % intervals")
    for name, value in figures.items():
        found, interval = shown(intervals[name], "share") if name in intervals else (f"{value:.2f}", "")
        say(f"  {name.replace('_', ' '):16}{found:>10}  {interval}".rstrip())
