"""Policies on learned rewards in Meta-World and ManiSkill, from nothing, and what stepping and drawing there cost.

    .venv/bin/python benchmarks/simulators.py metaworld --tasks drawer-close-v3 door-close-v3 --seeds 0 1 2
    .venv/bin/python benchmarks/simulators.py metaworld --tasks drawer-close-v3 --shuffled  # must fail
    .venv/bin/python benchmarks/simulators.py maniskill --task PickCube-v1 --reward true     # its own dense reward
    .venv/bin/python benchmarks/simulators.py maniskill --task PickCube-v1 --reward learned  # warm up, learn, go on
    .venv/bin/python benchmarks/simulators.py costs                                          # ratios

Minutes are of everything: collecting, training the classifier and training the policy, on this machine, with whatever
else runs on it. Success is that of 64 episodes with other seeds, without exploration.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rewardlab.config import ExperimentConfig, load_config, to_overrides
from rewardlab.data import EpisodeWriter, read_episodes
from rewardlab.data.episodes import Episode
from rewardlab.figures.trust import TrustFigures
from rewardlab.pipelines import collect, train_policy, train_reward
from rewardlab.pipelines.evaluate import evaluate
from rewardlab.reports.run_log import HISTORY, read_history
from rewardlab.rewards.checkpoint import read_checkpoint
from rewardlab.run_state import load_state

JUDGED = 64  # episodes
QUIET = Console(quiet=True)


@dataclass
class Trial:
    """One seed of one task; its stages meet through the files below `out`."""

    out: Path
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)

    def config(self, name: str, experiment: str, values: Mapping[str, Any], more: Sequence[str]) -> ExperimentConfig:
        where = {"runner.logger.log_path": self.out, "runner.logger.experiment_name": experiment}
        return load_config(name, [*more, *to_overrides({"seed": self.seed, **where, **values})])

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start

    @property
    def minutes(self) -> float:
        return sum(self.seconds.values()) / 60

    def collect(self, config: str, values: Mapping[str, Any], *more: str) -> Path:
        place = self.out / "episodes"
        with self.timed("collect"):
            cfg = self.config(config, "", {"data.collection.save_dir": place, **values}, ["runner.task=collect", *more])
            return collect.run(cfg, console=QUIET)

    def classifier(self, config: str, data: Path, *more: str) -> tuple[Path, TrustFigures]:
        with self.timed("classifier"):
            cfg = self.config(config, "classifier", {"data.data_path": data}, more)
            model = train_reward.run(cfg, console=QUIET)
        return model, TrustFigures.from_json((read_checkpoint(model).config or {})["metrics"])

    def policy(self, config: str, values: Mapping[str, Any], *more: str, name: str = "policy") -> tuple[Path, int]:
        """Return the last checkpoint and the number of environment steps."""
        with self.timed(name):
            run = train_policy.run(self.config(config, name, values, more), console=QUIET)
        return run, int(read_history(self.out / name / HISTORY)[-1]["env_steps"])

    def success(self, policy: Path) -> float:
        return evaluate(policy, episodes=JUDGED, seed=self.seed + 77_000)[1]["success_at_end"]

    def alarms(self, policy: Path) -> str:
        audits = load_state(policy)[0]["rewards"]["audits"]
        return "; ".join(alarm["words"] for audit in audits.values() for alarm in audit["alarms"][:1]) or "none"


def metaworld(arguments: argparse.Namespace) -> None:
    """Scripted data for the classifier, then PPO from scratch on the learned reward alone."""
    _head("task", "seed", "minutes", "FPR", "recall", "steps", "true success", "alarm of the audit")
    for task in arguments.tasks:
        for seed in arguments.seeds:
            trial = Trial(arguments.out / f"{task}_{seed}{'_shuffled' * arguments.shuffled}", seed)
            env = {"env.train.id": f"metaworld/{task}"}
            data = trial.collect("metaworld_collect", env)
            if arguments.shuffled:
                data = shuffle_labels(data, trial.out / "shuffled", seed)
            model, figures = trial.classifier("metaworld_reward", data)
            values = {**env, "reward.model.checkpoint_path": model}
            policy, steps = trial.policy("metaworld_ppo_resnet_reward", values, *arguments.more)
            shares = [f"{figures.estimates[name].value:.1%}" for name in ("fpr", "recall")]
            done = f"{trial.success(policy):.1%}"
            _row(task, seed, f"{trial.minutes:.1f}", *shares, f"{steps:,}", done, trial.alarms(policy))


def maniskill(arguments: argparse.Namespace) -> None:
    """With --reward true its own dense reward; with learned: warm up and collect, learn the reward, go on with it."""
    machine, env = "+machine=cpu2", {"env.train.id": f"maniskill/{arguments.task}"}
    learned = arguments.reward == "learned"
    _head(
        "task", "seed", "minutes", *(["episodes", "success frames", "FPR", "recall"] * learned), "steps", "true success"
    )
    for seed in arguments.seeds:
        trial = Trial(arguments.out / f"{arguments.task}_{arguments.reward}_{seed}", seed)
        if not learned:
            policy, steps = trial.policy("maniskill_ppo_mlp", env, machine, *arguments.more)
            _row(arguments.task, seed, f"{trial.minutes:.1f}", f"{steps:,}", f"{trial.success(policy):.1%}")
            continue
        data = trial.out / "episodes"
        warm_up = {**env, "data.collection.save_dir": data}
        warm, _ = trial.policy("maniskill_ppo_mlp_collect", warm_up, machine, name="warm_up")
        model, figures = trial.classifier("maniskill_train_resnet_reward", data, machine)
        budget = {"runner.resume_dir": warm, "reward.model.checkpoint_path": model}
        policy, steps = trial.policy("maniskill_ppo_mlp_resnet_reward", {**env, **budget}, machine, *arguments.more)
        episodes = read_episodes(data)
        counts = [f"{len(episodes):,}", f"{sum(int(episode.labels().sum()) for episode in episodes):,}"]
        shares = [f"{figures.estimates[name].value:.1%}" for name in ("fpr", "recall")]
        done = f"{trial.success(warm):.1%} -> {trial.success(policy):.1%}"
        _row(arguments.task, seed, f"{trial.minutes:.1f}", *counts, *shares, f"{steps:,}", done)


def shuffle_labels(data: Path, place: Path, seed: int) -> Path:
    """Write the same episodes with the labels of all frames exchanged at random: nothing can be learned from them."""
    episodes = [stored.load() for stored in read_episodes(data)]
    labels = np.concatenate([episode.columns["success"] for episode in episodes])
    np.random.default_rng(seed).shuffle(labels)
    writer = EpisodeWriter(place)
    ends = np.cumsum([len(episode.columns["success"]) for episode in episodes])
    for episode, part in zip(episodes, np.split(labels, ends[:-1]), strict=True):
        columns = {**episode.columns, "success": part}
        writer.write(Episode.from_columns(columns, task=episode.facts.task, policy=episode.facts.policy))
    return place


def costs(arguments: argparse.Namespace) -> None:
    """Ratios of two ways of doing the same, taken in turns."""
    _head("what", "ratio", "bar")
    _row("Meta-World, 64x64 frames: stock renderer against ours", f"{_drawing():.1f}x", "10x")
    _row("ManiSkill, PickCube-v1: one process against two", f"{_processes():.2f}x", "1.7x")


def _drawing() -> float:
    from rewardlab.envs import make_vec_env

    env = make_vec_env("metaworld/drawer-close-v3", num_envs=1, processes=1)
    env.reset(seed=0)
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    stock = ALL_V3_ENVIRONMENTS["drawer-close-v3"](render_mode="rgb_array", width=64, height=64, camera_name="corner")
    stock._set_task_called, stock._freeze_rand_vec = True, False
    stock.reset(seed=0)
    action = np.zeros((1, 4), np.float32)

    def ours() -> None:
        env.step(action)
        env.render_cameras(["base_camera"], (64, 64))  # type: ignore[attr-defined]

    def theirs() -> None:
        stock.step(action[0])
        stock.render()

    return _ratio(theirs, ours, times=20)


def _processes() -> float:
    from rewardlab.envs import make_vec_env

    options = {"control_mode": "pd_ee_delta_pos"}
    envs = [make_vec_env("maniskill/PickCube-v1", num_envs=16, processes=n, options=options) for n in (1, 2)]
    for env in envs:
        env.reset(seed=0)
    one, two = (lambda env=env: env.step(env.action_space.sample()) for env in envs)
    ratio = _ratio(one, two, times=60, clock=time.perf_counter)
    for env in envs:
        env.close()
    return ratio


def _ratio(
    slow: Callable[[], Any], fast: Callable[[], Any], times: int, clock: Callable[[], float] = time.process_time
) -> float:
    """Return the median, over rounds that take turns, of the time of `slow` by that of `fast`."""
    slow(), fast()
    ratios = []
    for _ in range(5):
        seconds = []
        for function in (slow, fast):
            start = clock()
            for _ in range(times):
                function()
            seconds.append(clock() - start)
        ratios.append(seconds[0] / seconds[1])
    return float(np.median(ratios))


def _head(*titles: str) -> None:
    _row(*titles)
    print("|" + "---|" * len(titles), flush=True)


def _row(*cells: Any) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("metaworld")
    first.add_argument("--tasks", nargs="+", default=["drawer-close-v3", "door-close-v3"])
    first.add_argument("--shuffled", action="store_true", help="exchange the labels of all frames at random")
    first.set_defaults(run=metaworld)
    second = commands.add_parser("maniskill")
    second.add_argument("--task", default="PickCube-v1")
    second.add_argument("--reward", choices=["true", "learned"], default="learned")
    second.set_defaults(run=maniskill)
    for command, seeds in ((first, (0, 1, 2)), (second, (0, 1))):
        command.add_argument("--seeds", nargs="+", type=int, default=seeds)
        command.add_argument("--out", type=Path, default=Path("runs/benchmark_simulators"))
        command.add_argument("--more", nargs="*", default=(), metavar="key=value", help="overrides of the policy run")
    commands.add_parser("costs").set_defaults(run=costs)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
