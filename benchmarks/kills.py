"""kill -9 at random moments: is anything half-written, doubled or lost, and does the run end as an unbroken one?

Commands are started, killed after a random time and started again (a training run from its newest checkpoint), until
so many kills are done; then they may end. After every kill each file that has its final name must be whole. At the end,
weights, metrics and episodes must be those of a run that nobody killed.

.venv/bin/python benchmarks/kills.py [--kills 100] [--seed 0]
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import numpy as np
from compared_runs import TABLETOP, checkpoints, differences, episode_digests
from PIL import Image
from rich.console import Console
from rich.table import Table

from rewardlab.run_state import list_checkpoints

RL = [
    *TABLETOP,
    "algorithm.sac.rollout_steps=10",
    "algorithm.sac.learning_starts=40",
    "algorithm.sac.utd_ratio=0.1",
    "runner.save_interval=2",
    "runner.val_check_interval=2",
    "runner.max_epochs=20",
    "data.collection.enabled=true",
]
CLASSIFIER = ["reward.model.width=4", "reward.model.hidden_dim=8", "actor.global_batch_size=16", "runner.max_epochs=30"]


@dataclass
class Target:
    """A command that is killed. `arguments(place)` are the words of its command line, when it writes below `place`."""

    name: str
    arguments: Callable[[Path], list[str]]
    seconds: float = 0.0  # an unbroken run takes
    kills: int = 0
    problems: list[str] = field(default_factory=list)

    def command(self, place: Path) -> list[str]:
        """Return the words of the command that starts, or goes on with what is there."""
        words = self.arguments(place)
        if self.name.startswith("collect"):
            return [*words, "--append"] if episode_digests(place / "data") else words
        newest = newest_checkpoint(place / "run")
        return [*words, f"runner.resume_dir={newest}"] if newest is not None else words


def newest_checkpoint(run: Path) -> Path | None:
    last = run / "checkpoints" / "last"
    if last.exists():
        return last
    return next(reversed(list_checkpoints(run / "checkpoints")), None)


def targets(data: Path) -> list[Target]:
    def collecting(format: str) -> Callable[[Path], list[str]]:
        more = ["env.train.image_size=[3,32,32]", "env.train.max_episode_steps=20", f"data.collection.format={format}"]
        words = ["collect", "tabletop_pickcube", "--episodes", "64", "--policy", "random", *more]
        return lambda place: [*words, "--out", str(place / "data")]

    def training(place: Path) -> list[str]:
        return ["train-reward", "--data", str(data), *CLASSIFIER, *_where(place)]

    def running(*more: str) -> Callable[[Path], list[str]]:
        words = ["run", "tabletop_ppo_mlp", *RL, *more]
        return lambda place: [*words, f"data.collection.save_dir={place / 'data'}", *_where(place)]

    return [
        Target("collect, safetensors", collecting("safetensors")),
        Target("collect, pickle", collecting("pickle")),
        Target("train-reward", training),
        Target("run, PPO with collection", running()),
        Target("run, SAC with collection, npy", running("algorithm.name=sac", "data.collection.format=npy")),
    ]


def _where(place: Path) -> list[str]:
    return [f"runner.logger.log_path={place}", "runner.logger.experiment_name=run"]


def start(arguments: list[str], log: Path) -> ForkServerProcess:
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_command_line, args=(arguments, log))
    process.start()
    return process


def _command_line(arguments: list[str], log: Path) -> None:
    from rewardlab.cli import main

    with log.open("w") as file:
        sys.stdout = sys.stderr = file
        sys.exit(main(arguments))


def half_files(place: Path) -> list[str]:
    """Return what cannot be read of the files that have their final names."""
    checks: list[Callable[[], object]] = [lambda: episode_digests(place / "data"), lambda: checkpoints(place / "run")]
    for path in [path for path in place.rglob("*") if path.is_file() and not path.name.endswith(".tmp")]:
        if path.suffix == ".png":
            checks.append(lambda path=path: Image.open(path).load())
        if path.suffix == ".json":
            checks.append(lambda path=path: json.loads(path.read_text()))
    problems = []
    for check in checks:
        try:
            check()
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")
    return problems


def kill_often(target: Target, place: Path, kills: int, rng: np.random.Generator) -> None:
    """Kill the command at random moments, each time going on with what is there; then let it end."""
    while target.kills < kills:
        process = start(target.command(place), place / "log.txt")
        process.join(rng.uniform(0, target.seconds / 2))
        if process.is_alive():
            process.kill()
            target.kills += 1
        process.join()
        target.problems += half_files(place)
        doubled = [count for count in episode_digests(place / "data").values() if count > 1]
        if doubled:
            target.problems.append(f"{len(doubled)} episodes were written twice")
        if process.exitcode == 0:  # it had ended before it could be killed: begin again, elsewhere
            target.problems += at_end(target, place)
            place = place.with_name(f"{place.name}_again")
            place.mkdir()
        elif process.exitcode != -9:
            target.problems.append(f"exit code {process.exitcode}: {(place / 'log.txt').read_text()[-300:]}")
            return
    finish(target, place)
    target.problems += at_end(target, place)


def finish(target: Target, place: Path) -> None:
    process = start(target.command(place), place / "log.txt")
    process.join()
    if process.exitcode != 0:
        target.problems.append(f"exit code {process.exitcode}: {(place / 'log.txt').read_text()[-300:]}")


def at_end(target: Target, place: Path) -> list[str]:
    """Compare with the run that nobody killed."""
    unbroken = place.parent / "unbroken"
    if target.name.startswith("collect"):  # what is added to a directory is drawn anew, so only doubles would be wrong
        found = episode_digests(place / "data")
        return [f"{count} files of one episode" for count in found.values() if count > 1]
    return differences(place / "run", unbroken / "run", place / "data", unbroken / "data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="commands whose name has these words")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "rewardlab.cli", "rewardlab.pipelines.train_policy"])
    rng, console = np.random.default_rng(arguments.seed), Console()
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory, "episodes")
        demonstrations = ["collect", "tabletop_pickcube", "--episodes", "12", "--policy", "noisy_expert"]
        start([*demonstrations, "--out", str(data), "env.train.image_size=[3,32,32]"], Path(directory, "log")).join()
        chosen = [target for target in targets(data) if arguments.only in target.name]
        for number, target in enumerate(chosen):
            places = [Path(directory, str(number), name) for name in ("unbroken", "killed")]
            for place in places:
                place.mkdir(parents=True)
            began = time.perf_counter()
            finish(target, places[0])
            target.seconds = time.perf_counter() - began
            share = arguments.kills * (number + 1) // len(chosen) - arguments.kills * number // len(chosen)
            kill_often(target, places[1], share, rng)
            print(f"{target.name}: {target.kills} kills; {'; '.join(target.problems) or 'nothing wrong'}", flush=True)
    table = Table("command", "unbroken, s", "kills", "problems", title="kill -9 at random moments")
    for target in chosen:
        table.add_row(target.name, f"{target.seconds:.1f}", str(target.kills), "; ".join(target.problems) or "none")
    console.print(table)


if __name__ == "__main__":
    main()
