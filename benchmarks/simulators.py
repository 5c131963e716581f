"""Policies on learned rewards in Meta-World and ManiSkill, from nothing, and what stepping and drawing there cost.

    .venv/bin/python benchmarks/simulators.py metaworld --tasks drawer-close-v3 door-close-v3 --seeds 0 1 2
    .venv/bin/python benchmarks/simulators.py metaworld --tasks drawer-close-v3 --shuffled  # must fail
    .venv/bin/python benchmarks/simulators.py metaworld --tasks handle-press-v3 --naive --seeds 0  # will be exploited
    .venv/bin/python benchmarks/simulators.py maniskill --task PickCube-v1 --reward true     # its own dense reward
    .venv/bin/python benchmarks/simulators.py maniskill --task PickCube-v1 --reward learned  # warm up, learn, go on
    .venv/bin/python benchmarks/simulators.py costs                                          # ratios
    .venv/bin/python benchmarks/simulators.py curves drawer-close-v3 --to docs/images/drawer-close.png
    .venv/bin/python benchmarks/simulators.py frames RUN/audit/false_positive --to docs/images/exploited.png

Minutes are of everything: collecting, training the classifier and training the policy. The first figure is wall time,
with whatever else runs on the machine; the second is the CPU time of both cores, which others hardly change. Success is
that of the last frame of 64 episodes with other seeds, without exploration.
"""

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from curves import SUCCESS, Picture, Points, draw
from PIL import Image
from rich.console import Console

from rewardlab.config import ExperimentConfig, load_config, to_overrides
from rewardlab.data import EpisodeWriter, read_episodes
from rewardlab.data.episodes import Episode
from rewardlab.envs import make_vec_env
from rewardlab.envs.metaworld.env import import_tasks
from rewardlab.figures.trust import TrustFigures
from rewardlab.pipelines import collect, train_policy, train_reward
from rewardlab.pipelines.evaluate import evaluate
from rewardlab.reports.history import HISTORY, read_history
from rewardlab.rewards.checkpoint import read_checkpoint
from rewardlab.run_state import load_state

EVAL_EPISODES = 64
CPU = "+machine=cpu2"
# Iterations of PPO on the learned reward.
ITERATIONS = {"drawer-close-v3": 30, "door-close-v3": 30, "button-press-topdown-v3": 160, "handle-press-v3": 160}
# Iterations of a first policy, whose episodes are added to the data of the classifier.
FIRST_POLICY = {"button-press-topdown-v3": 60, "handle-press-v3": 60}
# Naive data: few episodes of an expert that makes no mistakes.
NAIVE = {"data.collection.policy": "expert", "data.collection.episodes": 32}
# Iterations of PPO in the warm-up on the true reward, and in both stages together.
MANISKILL_ITERATIONS = {"PickCube-v1": (200, 500), "PushCube-v1": (60, 140)}
RUNS = Path("runs/benchmark_simulators")
QUIET = Console(quiet=True)


@dataclass
class Trial:
    """One seed of one task; its stages meet through the files below `out`."""

    out: Path
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)  # wall time of each stage
    cpu_seconds: float = 0.0  # of all stages, with processes that have ended

    def config(self, name: str, experiment: str, values: Mapping[str, Any], more: Sequence[str]) -> ExperimentConfig:
        where = {"runner.logger.log_path": self.out, "runner.logger.experiment_name": experiment}
        return load_config(name, [*to_overrides({"seed": self.seed, **where, **values}), *more])

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start, cpu = time.perf_counter(), sum(os.times()[:4])
        yield
        self.seconds[stage] = time.perf_counter() - start
        self.cpu_seconds += sum(os.times()[:4]) - cpu
        print(f"  {self.out.name}, {stage}: {self.seconds[stage]:.0f} s", file=sys.stderr, flush=True)

    @property
    def minutes(self) -> str:
        return f"{sum(self.seconds.values()) / 60:.1f} ({self.cpu_seconds / 60:.1f})"

    def collect(self, config: str, values: Mapping[str, Any], *more: str, name: str = "collected") -> Path:
        place = self.out / "episodes" / name
        with self.timed(name):
            cfg = self.config(config, "", {"data.collection.save_dir": place, **values}, ["runner.task=collect", *more])
            return collect.run(cfg, console=QUIET)

    def classifier(self, config: str, data: Path, *more: str, name: str = "classifier") -> tuple[Path, TrustFigures]:
        with self.timed(name):
            places = {"runner.checkpoint_dir": self.out / name / "checkpoints", "runner.best_model_file": None}
            cfg = self.config(config, name, {"data.data_path": data, **places}, more)
            model = train_reward.run(cfg, console=QUIET)
        return model, TrustFigures.from_json((read_checkpoint(model).config or {})["metrics"])

    def policy(self, config: str, values: Mapping[str, Any], *more: str, name: str = "policy") -> tuple[Path, int]:
        """Return the last checkpoint and the number of environment steps."""
        with self.timed(name):
            run = train_policy.run(self.config(config, name, values, more), console=QUIET)
        return run, int(read_history(self.out / name / HISTORY)[-1]["env_steps"])

    def success(self, policy: Path) -> tuple[float, float]:
        """Return the shares of unseen episodes that succeed at their end, and at any step."""
        figures = evaluate(policy, episodes=EVAL_EPISODES, seed=self.seed + 77_000)[1]
        return figures["success_at_end"], figures["success_once"]

    def alarms(self, policy: Path) -> str:
        audits = load_state(policy)[0]["rewards"]["audits"]
        return "; ".join(alarm["words"] for audit in audits.values() for alarm in audit["alarms"][:1]) or "none"


def metaworld(arguments: argparse.Namespace) -> None:
    """Scripted data for the classifier, then PPO from scratch on the learned reward alone.

    Of the tasks in FIRST_POLICY, a first policy shows what the classifier takes for success, the classifier is trained
    again with the labelled episodes of that policy, and PPO begins from scratch once more.
    """
    _head("task", "seed", "minutes (CPU)", "FPR", "recall", "decisions", "success", "at any step", "alarm of the audit")
    for task, seed in itertools.product(arguments.tasks, arguments.seeds):
        control = "_shuffled" * arguments.shuffled + "_naive" * arguments.naive
        trial = Trial(arguments.out / f"{task}_{seed}{control}", seed)
        env = {"env.train.id": f"metaworld/{task}"}
        data = trial.collect("metaworld_collect", env | NAIVE if arguments.naive else env)
        if arguments.shuffled:
            data = shuffle_labels(data, trial.out / "shuffled", seed)
        model, figures = trial.classifier("metaworld_reward", data)
        if task in FIRST_POLICY and not (arguments.naive or arguments.shuffled):
            values = {**env, "reward.model.checkpoint_path": model, "runner.max_epochs": FIRST_POLICY[task]}
            first, _ = trial.policy("metaworld_ppo_resnet_reward", values, *arguments.more, name="first_policy")
            shown = f"{trial.success(first)[0]:.1%}"
            print(f"  {trial.out.name}, first policy: {shown}; {trial.alarms(first)}", file=sys.stderr, flush=True)
            how = {"data.collection.policy": first, "data.collection.episodes": 256, "seed": seed + 1_000}
            trial.collect("metaworld_collect", {**env, **how}, name="of_first_policy")
            model, figures = trial.classifier("metaworld_reward", trial.out / "episodes", name="classifier_again")
        values = {**env, "reward.model.checkpoint_path": model, "runner.max_epochs": ITERATIONS.get(task, 100)}
        policy, steps = trial.policy("metaworld_ppo_resnet_reward", values, *arguments.more)
        done = [f"{share:.1%}" for share in trial.success(policy)]
        _row(task, seed, trial.minutes, *_shares(figures), f"{steps:,}", *done, trial.alarms(policy))


def maniskill(arguments: argparse.Namespace) -> None:
    """With --reward true, ManiSkill's own dense reward; with learned, the stages of docs/simulators.md on two cores."""
    env, learned = {"env.train.id": f"maniskill/{arguments.task}"}, arguments.reward == "learned"
    figures = ["episodes", "success frames", "FPR", "recall"] * learned
    _head("task", "seed", "minutes (CPU)", *figures, "steps", "success", "at any step")
    for seed in arguments.seeds:
        trial = Trial(arguments.out / f"{arguments.task}_{arguments.reward}_{seed}", seed)
        if learned:
            _learned(trial, arguments.task, env, arguments.more)
            continue
        expert = {"data.collection.policy": "expert", "data.collection.episodes": 40}
        demos = trial.collect("maniskill_sac_mlp", {**env, **expert}, CPU, name="demonstrations")
        values = {**env, "algorithm.sac.demo_path": demos}
        policy, steps = trial.policy("maniskill_sac_mlp", values, CPU, *arguments.more)
        _row(arguments.task, seed, trial.minutes, f"{steps:,}", *(f"{share:.1%}" for share in trial.success(policy)))


def _learned(trial: Trial, task: str, env: dict[str, Any], more: Sequence[str]) -> None:
    warm_up, iterations = MANISKILL_ITERATIONS[task]
    place = {"data.collection.save_dir": trial.out / "episodes" / "warm_up", "runner.max_epochs": warm_up}
    warm, _ = trial.policy("maniskill_ppo_mlp_collect", {**env, **place}, CPU, name="warm_up")
    # While it explores, the policy seldom holds still, which is a part of success in PickCube.
    still = {"data.collection.policy": warm, "data.collection.explore": False, "data.collection.episodes": 400}
    mistakes = {"data.collection.policy": "noisy_expert", "data.collection.episodes": 300}
    for number, (name, how) in enumerate((("still", still), ("mistakes", mistakes)), start=1):
        how |= {"data.collection.frames": "every:5"}
        trial.collect("maniskill_ppo_mlp", {**env, **how, "seed": trial.seed + 1_000 * number}, CPU, name=name)
    data = trial.out / "episodes"
    model, figures = trial.classifier("maniskill_train_resnet_reward", data, CPU)
    learned = {"runner.resume_dir": warm, "reward.model.checkpoint_path": model, "runner.max_epochs": iterations}
    policy, steps = trial.policy("maniskill_ppo_mlp_resnet_reward", {**env, **learned}, CPU, *more)
    episodes = read_episodes(data)
    successes = sum(int(episode.labels()[episode.frame_rows()].sum()) for episode in episodes)
    counts = [f"{len(episodes):,}", f"{successes:,}"]
    before, after = trial.success(warm), trial.success(policy)
    done = [f"{share:.1%} -> {later:.1%}" for share, later in zip(before, after, strict=True)]
    _row(task, trial.seed, trial.minutes, *counts, *_shares(figures), f"{steps:,}", *done)


def _shares(figures: TrustFigures) -> list[str]:
    return [f"{figures.estimates[name].value:.1%}" for name in ("fpr", "recall")]


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


def curves(arguments: argparse.Namespace) -> None:
    """Draw the true success of the policies of earlier runs of this script, by task and kind of run."""
    runs: dict[str, list[Points]] = {}
    for task in arguments.tasks:
        for place in sorted(arguments.out.glob(f"{task}_*/policy")):
            kind = " ".join(word for word in place.parent.name.removeprefix(task).split("_") if not word.isdigit())
            rows = read_history(place / HISTORY)
            points = [(row["env_steps"], row[SUCCESS]) for row in rows if SUCCESS in row]
            runs.setdefault(f"{task} {kind}".strip(), []).append(points)
    if not runs:
        raise SystemExit(f"{arguments.out} has no runs of {', '.join(arguments.tasks)}")
    draw(Picture("True success of policies on a learned reward", runs, shares=True), arguments.to)


def frames(arguments: argparse.Namespace) -> None:
    """Put pictures of a directory side by side, spread evenly over their names: such as the audit's disputed frames."""
    paths = sorted(arguments.directory.glob("*.png"))
    if not paths:
        raise SystemExit(f"{arguments.directory} has no PNGs")
    chosen = [paths[i] for i in np.linspace(0, len(paths) - 1, 8).round().astype(int)]
    sheet = Image.new("RGB", (len(chosen) * 132 - 4, 128), "white")
    for column, path in enumerate(chosen):
        with Image.open(path) as picture:
            sheet.paste(picture.convert("RGB").resize((128, 128), Image.Resampling.NEAREST), (column * 132, 0))
    sheet.save(arguments.to)


def costs(arguments: argparse.Namespace) -> None:
    """Ratios of two ways of doing the same, taken in turns, each in a process of its own."""
    _head("what", "ratio", "bar")
    _row(
        "Meta-World, a step and its 64x64 frame: stock renderer by ours",
        f"{_ratio(StockFrames, OurFrames):.1f}x",
        "10x",
    )
    for copies, draws in ((16, False), (64, False), (16, True)):
        what = f"ManiSkill, PickCube-v1, {copies} copies{' with 128x128 frames' * draws}: one process by two"
        ratio = _ratio(partial(Copies, copies, 1, draws), partial(Copies, copies, 2, draws))
        _row(what, f"{ratio:.2f}x", "1.7x")


class OurFrames:
    """Steps and draws drawer-close as this package does."""

    def __init__(self) -> None:
        self._env: Any = make_vec_env("metaworld/drawer-close-v3", num_envs=1, processes=1)
        self._env.reset(seed=0)

    def __call__(self) -> None:
        self._env.step(np.zeros((1, 4), np.float32))
        self._env.render_cameras(["base_camera"], (64, 64))


class StockFrames:
    """Steps and draws drawer-close as Meta-World does."""

    def __init__(self) -> None:
        tasks, _ = import_tasks("drawer-close-v3")
        self._env = tasks["drawer-close-v3"](render_mode="rgb_array", width=64, height=64, camera_name="corner")
        self._env._set_task_called, self._env._freeze_rand_vec = True, False
        self._env.reset(seed=0)

    def __call__(self) -> None:
        self._env.step(np.zeros(4, np.float32))
        self._env.render()


class Copies:
    """Steps copies of PickCube by random actions."""

    def __init__(self, copies: int, processes: int, draws: bool) -> None:
        self._draws = draws
        self._env: Any = make_vec_env("maniskill/PickCube-v1", num_envs=copies, processes=processes)
        self._env.action_space.seed(0)
        self._env.reset(seed=0)

    def __call__(self) -> None:
        self._env.step(self._env.action_space.sample())
        if self._draws:
            self._env.render_cameras(["base_camera"], (128, 128))


def _ratio(slow: Callable[[], Callable[[], None]], fast: Callable[[], Callable[[], None]]) -> float:
    """Return the median, over rounds that take turns, of the wall time of `slow` by that of `fast`."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as first, ProcessPoolExecutor(1, spawn) as second:
        ratios = [
            first.submit(_seconds_per_call, slow).result() / second.submit(_seconds_per_call, fast).result()
            for _ in range(7)
        ]
    return float(np.median(ratios[1:]))  # the first ones build


_built: dict[str, Callable[[], None]] = {}  # in the process that measures


def _seconds_per_call(build: Callable[[], Callable[[], None]]) -> float:
    call = _built.get("call") or _built.setdefault("call", build())
    call()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < 3:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls


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
    first.add_argument("--naive", action="store_true", help="classifiers of 32 episodes of the expert alone")
    first.set_defaults(run=metaworld)
    second = commands.add_parser("maniskill")
    second.add_argument("--task", default="PickCube-v1")
    second.add_argument("--reward", choices=["true", "learned"], default="learned")
    second.set_defaults(run=maniskill)
    for command, seeds in ((first, (0, 1, 2)), (second, (0, 1))):
        command.add_argument("--seeds", nargs="+", type=int, default=seeds)
        command.add_argument("--out", type=Path, default=RUNS)
        command.add_argument("--more", nargs="*", default=(), metavar="key=value", help="overrides of the policy run")
    commands.add_parser("costs").set_defaults(run=costs)
    third = commands.add_parser("curves")
    third.add_argument("tasks", nargs="+", metavar="TASK")
    third.add_argument("--to", type=Path, required=True, metavar="PNG")
    third.add_argument("--out", type=Path, default=RUNS, help="where the runs are")
    third.set_defaults(run=curves)
    fourth = commands.add_parser("frames")
    fourth.add_argument("directory", type=Path)
    fourth.add_argument("--to", type=Path, required=True, metavar="PNG")
    fourth.set_defaults(run=frames)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
