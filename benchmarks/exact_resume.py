"""Is a resumed run the unbroken run? Every algorithm with every reward model, compared to the bit.

Each run is made twice: in one go, and stopped at half and resumed from its checkpoint. Compared are the weights of the
policy in every checkpoint, the reward models that were trained with it, each row of metrics.jsonl (without times) and
the episodes that were collected.

.venv/bin/python benchmarks/exact_resume.py [--only words] [--ray]
"""

import argparse
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from compared_runs import TABLETOP, differences
from rich.console import Console
from rich.table import Table

from rewardlab.config import load_config
from rewardlab.config.load import config_names
from rewardlab.pipelines import collect, train_policy, train_reward

QUIET = Console(quiet=True)
SAC = [
    "algorithm.name=sac",
    "algorithm.sac.learning_starts=40",
    "algorithm.sac.rollout_steps=5",
    "algorithm.sac.utd_ratio=0.2",
    "algorithm.sac.replay_size=500",
]
ZOO = [
    "env.train.num_envs=4",
    "env.eval.num_envs=2",
    "algorithm.ppo.rollout_steps=8",
    "algorithm.ppo.update_epochs=1",
    "algorithm.dqn.rollout_steps=8",
    "algorithm.dqn.learning_starts=32",
    "algorithm.sac.rollout_steps=8",
    "algorithm.sac.learning_starts=32",
    "actor.model.hidden_sizes=[8]",
    "actor.global_batch_size=16",
]
HALF = ["runner.max_epochs=4", "runner.save_interval=2", "runner.val_check_interval=1"]
RND = "{model_type: rnd, weight: 3.0, cotrain: true, options: {intrinsic_reward_type: assign}}"
PICTURES = ["env.train.obs_mode=proprio+images", "actor.model.kind=cnn"]


@dataclass(frozen=True)
class Inputs:
    """What the runs are given: a classifier with the episodes it was trained on, and an expert of each task."""

    classifier: Path
    demonstrations: Path
    experts: dict[str, list[Path]]

    @classmethod
    def make(cls, place: Path) -> "Inputs":
        demonstrations = place / "demonstrations"
        _collect("tabletop_pickcube", demonstrations, 12, "noisy_expert", 0, "env.train.image_size=[3,32,32]")
        small = ["reward.model.model_type=binary_classifier", "reward.model.width=4", "reward.model.hidden_dim=8"]
        small += [f"data.data_path={demonstrations}", "data.num_samples_per_episode=8", "runner.max_epochs=2"]
        small += [f"runner.logger.log_path={place / 'classifier'}", "reward.model.num_spatial_blocks=2"]
        classifier = train_reward.run(load_config("reward_training", small), console=QUIET)
        experts: dict[str, list[Path]] = {}
        for task in ("cartpole", "pendulum"):
            experts[task] = [place / task / str(seed) for seed in (1, 2)]
            for seed, path in enumerate(experts[task], 1):
                _collect(f"zoo/{task}_expert", path, 6, "random", seed)
        return cls(classifier, demonstrations, experts)


def _collect(config: str, out: Path, episodes: int, policy: str, seed: int, *more: str) -> None:
    plan = {"episodes": episodes, "policy": policy, "save_dir": out}
    settings = [f"data.collection.{name}={value}" for name, value in plan.items()]
    collect.run(load_config(config, [*settings, f"seed={seed}", *more]), console=QUIET)


def combinations(given: Inputs) -> dict[str, tuple[str, list[str]]]:
    """Return config and overrides of each run by its name."""
    learned = ["reward.use_reward_model=true", f"reward.model.checkpoint_path={given.classifier}"]
    continuous = [*learned, "reward.reward_type=continuous"]
    two = ["reward.use_reward_model=true", "reward.reward_type=continuous"]
    two.append(f"reward.model=[{{checkpoint_path: {given.classifier}, weight: 2.0}},{RND}]")
    rewards = {
        "the environment's reward": [],
        "classifier, per step": [*learned, "reward.reward_mode=per_step"],
        "classifier, terminal": [*continuous, "reward.reward_mode=terminal"],
        "classifier, added": [*continuous, "reward.combine_mode=add"],
        "co-trained classifier": [*continuous, "reward.cotrain=true"],
        "co-trained classifier, terminal": [*continuous, "reward.cotrain=true", "reward.reward_mode=terminal"],
        "classifier and RND": two,
        "collection": ["data.collection.enabled=true", "data.collection.save_dir=$data"],
    }
    algorithms = {
        "ppo": [],
        "ppo from pictures": PICTURES,
        "sac": SAC,
        "sac from pictures": [*SAC, *PICTURES],
        "sac with demonstrations": [*SAC, f"algorithm.sac.demo_path={given.demonstrations}"],
    }
    found = {}
    for algorithm, settings in algorithms.items():
        for reward, more in rewards.items():
            found[f"{algorithm}, {reward}"] = ("tabletop_ppo_mlp", [*TABLETOP, *settings, *more])
    sample = [*TABLETOP, *SAC, *continuous, "reward.relabel=sample"]
    found["sac, scored when sampled"] = ("tabletop_ppo_mlp", sample)
    found["sac, scored when sampled, co-trained"] = ("tabletop_ppo_mlp", [*sample, "reward.cotrain=true"])
    for config in config_names():
        if config.startswith("zoo/") and not config.endswith("_expert"):
            found[config] = (config, [*ZOO, *_expert(config, given)])
    return found


def _expert(config: str, given: Inputs) -> list[str]:
    task, _, model = config.removeprefix("zoo/").partition("_")
    if model.endswith(("_trex", "_drex")):
        return [f"reward.model.options.expert_data_path=[{','.join(map(str, given.experts[task]))}]"]
    if model.endswith(("_gail", "_guided_cost", "_red", "_pwil", "_pdeil")):
        return [f"reward.model.options.expert_data_path={given.experts[task][0]}"]
    return []


def train(config: str, overrides: list[str], out: Path, *more: str) -> Path:
    settings = [text.replace("$data", str(out.parent / f"{out.name}_data")) for text in overrides]
    where = [f"runner.logger.log_path={out.parent}", f"runner.logger.experiment_name={out.name}"]
    return train_policy.run(load_config(config, [*settings, *HALF, *where, *more]), console=QUIET)


def compare(config: str, overrides: list[str], place: Path) -> list[str]:
    """Make the run whole and in two halves; say what differs."""
    whole, halves = place / "whole", place / "halves"
    train(config, overrides, whole)
    half = train(config, overrides, halves, "runner.max_epochs=3").with_name("global_step_2")
    train(config, overrides, halves, f"runner.resume_dir={half}")
    return differences(halves, whole, place / "halves_data", place / "whole_data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="runs whose name has these words")
    parser.add_argument("--ray", action="store_true", help="each run on Ray")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table = Table("run", "difference", title="A run stopped at half and resumed, against the run in one go")
    differing, start = 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        runs = combinations(Inputs.make(Path(directory, "inputs")))
        chosen = {name: run for name, run in runs.items() if arguments.only in name}
        for number, (name, (config, overrides)) in enumerate(chosen.items()):
            ray = ["cluster.backend=ray"] if arguments.ray else []
            found = compare(config, [*overrides, *ray], Path(directory, str(number)))
            differing += bool(found)
            table.add_row(name, ", ".join(found) or "none")
            print(f"{number + 1}/{len(chosen)} {name}: {', '.join(found) or 'same'}", flush=True)
    console = Console()
    console.print(table)
    console.print(f"{len(chosen)} runs, {differing} differ ({time.perf_counter() - start:.0f} s)", highlight=False)


if __name__ == "__main__":
    main()
