"""A policy learned on a (simulated) robot: record, process, train a classifier, asynchronous RLPD on its verdicts.

    .venv/bin/python benchmarks/robot_rlpd.py learn --seeds 0 1 2         # pictures and state, accelerated simulation
    .venv/bin/python benchmarks/robot_rlpd.py learn --states --seeds 0    # the policy sees the arm's state alone
    .venv/bin/python benchmarks/robot_rlpd.py rates                       # 10 Hz beside scoring and learning
    .venv/bin/python benchmarks/robot_rlpd.py synchronous                 # against asynchronous, at the same wall time

Each stage is the command that a user would type, in a process of its own; the robot is `rewardlab robot-sim` in
another. The learner never hears what the simulation knows: the labels of recordings say whether the arm was at its
target pose, and in RLPD the classifier alone decides what is a success. Only the evaluation at the end asks the
simulation whether the peg is in its hole.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rewardlab.config.robots import attach_robots
from rewardlab.config.schema import WrapperConfig
from rewardlab.pipelines.trained_policy import latest_checkpoint, load_policy, run_config
from rewardlab.reports.history import HISTORY, read_history
from rewardlab.rl.evaluation import Evaluation

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
RUNS = Path("runs/benchmark_robot")
REWARDLAB = [sys.executable, "-m", "rewardlab.cli"]
RLPD = "realworld_peginsertion_rlpd_cnn_async"
EPISODES = 50  # of the evaluation
HZ = 10.0  # of a real robot
# What the guide prints, but for a narrower network: on two cores the usual width takes four times as long.
TRAINING = (
    "data.num_samples_per_episode=0", "data.fail_success_ratio=3.0", "actor.global_batch_size=32",
    "actor.micro_batch_size=16", "runner.max_epochs=100", "runner.val_check_interval=10", "runner.save_interval=10",
    "runner.early_stop.patience=10", "reward.model.width=32",
)  # fmt: skip


class SimTruth(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Lets the simulation say what is a success."""

    def __init__(self, env: gymnasium.Env[Any, Any], address: str) -> None:
        super().__init__(env)
        self._address = address

    def step(self, action: Any) -> Any:
        *result, info = self.env.step(action)
        return *result, {**info, "success": ask(self._address, "/sim/truth")["success"]}


def ask(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{address}{path}", b"{}", timeout=10) as answer:
        return json.loads(answer.read())


@contextmanager
def simulated_robot(speed: float, seed: int) -> Iterator[str]:
    """Yield the address of a simulated robot in a process of its own."""
    command = [*REWARDLAB, "robot-sim", "--port", "0", "--speed", str(speed), "--seed", str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://([\d.]+:\d+)", process.stdout.readline())
        if found is None:
            raise SystemExit("the simulated robot did not start")
        yield found[1]
    finally:
        process.terminate()
        process.wait(20)


class Trial:
    """One seed; its stages meet through the files below `out`."""

    def __init__(self, out: Path, seed: int, address: str, speed: float) -> None:
        self.out, self.seed, self.address, self.speed = out.resolve(), seed, address, speed
        self.seconds: dict[str, float] = {}

    @property
    def robot(self) -> list[str]:
        where = f'[{{hardware: {{type: Franka, configs: [{{robot_ip: "{self.address}"}}]}}}}]'
        return [f"cluster.node_groups={where}", f"env.train.options.control_hz={HZ * self.speed:g}"]

    def stage(self, name: str, command: Sequence[str | Path]) -> None:
        """Run a command to its end; its output goes to a file."""
        start, log = time.perf_counter(), self.out / f"{name}.log"
        self.out.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            code = subprocess.run([str(word) for word in command], stdout=file, stderr=subprocess.STDOUT).returncode
        self.seconds[name] = time.perf_counter() - start
        print(f"  seed {self.seed}, {name}: {self.seconds[name]:.0f} s", file=sys.stderr, flush=True)
        if code:
            raise SystemExit(f"{name} failed:\n{log.read_text()[-2000:]}")

    def record(self, episodes: int) -> Path:
        """Record demonstrations, process them, and return the directory of their episodes."""
        place = self.out / "recorded"
        plan = [f"runner.num_data_episodes={episodes}", f"data.collection.save_dir={place}", "runner.page.port=0"]
        self.stage(
            "collect", ["bash", EXAMPLES / "embodiment/collect_data.sh", *self.robot, *plan, f"seed={self.seed}"]
        )
        self.stage("process", [sys.executable, EXAMPLES / "embodiment/process_realworld_data.py", place / "data.pkl"])
        return place / "collected_data"

    def classifier(self, data: Path) -> Path:
        more = [*TRAINING, f"seed={self.seed}", f"runner.logger.log_path={self.out / 'classifier'}"]
        self.stage("classifier", ["bash", EXAMPLES / "reward/run_reward_training.sh", "--data", data, *more])
        return self.out / "classifier/checkpoints/best_model"

    def rlpd(self, model: Path, demos: Path, steps: int, more: Sequence[str] = (), name: str = "rlpd") -> list[str]:
        """Return the command of a policy run."""
        values = {
            "seed": self.seed,
            "runner.max_env_steps": steps,
            "runner.logger.log_path": self.out,
            "runner.logger.experiment_name": name,
            "reward.model.checkpoint_path": model,
            "algorithm.sac.demo_path": demos,
            "runner.page.port": 0,  # any that is free
        }
        script = EXAMPLES / "embodiment/run_realworld_async.sh"
        overrides = [f"{key}={value}" for key, value in values.items()]
        return ["bash", str(script), RLPD, "+machine=cpu2", *self.robot, *overrides, *more]

    def true_success(self, run: Path) -> float:
        """Return the share of episodes that end with the peg in its hole, as the simulation says."""
        checkpoint = latest_checkpoint(run)
        cfg = attach_robots(run_config(checkpoint))
        truth = WrapperConfig(name="robot_rlpd:SimTruth", options={"address": self.address})
        evaluation = Evaluation(replace(cfg.env.eval, wrappers=(truth,)), seed=self.seed + 77_000, episodes=EPISODES)
        try:
            return evaluation.run(load_policy(checkpoint, cfg, evaluation.env))["success_at_end"]
        finally:
            evaluation.env.close()


def learn(arguments: argparse.Namespace) -> None:
    row("seed", "minutes", "FPR", "recall", "steps", "updates", "updates/s", "steps/s", "staleness", "true insertions")
    row(*["---"] * 10)
    more = ["env.train.obs_mode=state", "actor.model.kind=mlp"] if arguments.states else []
    for seed in arguments.seeds:
        with simulated_robot(arguments.speed, seed) as address:
            kind = "states" if arguments.states else "pictures"
            trial = Trial(arguments.out / f"{kind}_{seed}", seed, address, arguments.speed)
            demos = trial.record(arguments.demonstrations)
            model = trial.classifier(demos)
            trial.stage("rlpd", trial.rlpd(model, demos, arguments.steps, [*more, *arguments.more]))
            run = trial.out / "rlpd"
            figures, success = summary(run), trial.true_success(run)
            metrics = json.loads((model / "config.json").read_text())["metrics"]
            shares = [f"{metrics['estimates'][name]['value']:.1%}" for name in ("fpr", "recall")]
            minutes = f"{sum(trial.seconds.values()) / 60:.1f}"
            acting = figures["env_steps"] / trial.seconds["rlpd"]
            speed = f"{figures['train/updates'] / trial.seconds['rlpd']:.1f}"
            stale = f"{figures['async/staleness_seconds']:.1f} s"
            row(seed, minutes, *shares, f"{figures['env_steps']:,.0f}", f"{figures['train/updates']:,.0f}", speed,
                f"{acting:.1f}", stale, f"{success:.0%}")  # fmt: skip


def summary(run: Path) -> dict[str, float]:
    """Return the last figures of a run; of staleness the median."""
    rows = read_history(run / HISTORY)
    last = {key: value for row in rows for key, value in row.items()}
    stale = [row["async/staleness_seconds"] for row in rows if "async/staleness_seconds" in row]
    return last | {"async/staleness_seconds": float(np.median(stale)) if stale else 0.0}


def rates(arguments: argparse.Namespace) -> None:
    """Run at the rate of a real robot, with and without learning, beside a loop that only sleeps."""
    row("what", "p50", "p99", "p99 of a loop that only sleeps")
    row(*["---"] * 4)
    with simulated_robot(1.0, 0) as address:
        trial = Trial(arguments.out / "rates", 0, address, 1.0)
        model, demos = arguments.model, arguments.demos
        for title, name, more in (
            ("acting, scoring and learning", "learning", ()),
            ("acting and scoring", "acting", ("algorithm.sac.learning_starts=1000000",)),
        ):
            command = trial.rlpd(model, demos, 1_000_000, [*more, *arguments.more], name)
            with sleeping_loop() as periods:
                figures = run_for(command, trial.out / name, arguments.minutes)
            bare = f"{np.quantile(periods(), 0.99) * 1e3:.1f} ms"
            row(title, *(f"{figures[f'robot/{key}'] * 1e3:.1f} ms" for key in ("p50", "p99")), bare)


def synchronous(arguments: argparse.Namespace) -> None:
    """Count the steps of the same run, asynchronous and not, in the same wall time at the rate of a real robot."""
    row("run", "environment steps", "updates", "true insertions")
    row(*["---"] * 4)
    steps, saving = {}, 20 if arguments.evaluate else 1_000_000  # a synchronous run waits while it saves
    with simulated_robot(1.0, 0) as address:
        trial = Trial(arguments.out / "synchronous", 0, address, 1.0)
        for name, enabled in (("asynchronous", "true"), ("synchronous", "false")):
            more = [f"algorithm.asynchronous.enabled={enabled}", f"runner.save_interval={saving}", *arguments.more]
            command = trial.rlpd(arguments.model, arguments.demos, 1_000_000, more, name)
            figures = run_for(command, trial.out / name, arguments.minutes)
            steps[name] = figures["env_steps"]
            success = f"{trial.true_success(trial.out / name):.0%}" if arguments.evaluate else "not asked"
            row(name, f"{steps[name]:,.0f}", f"{figures.get('train/updates', 0):,.0f}", success)
    print(f"\n{steps['asynchronous'] / steps['synchronous']:.2f}x the steps")


def run_for(command: Sequence[str], run: Path, minutes: float) -> dict[str, float]:
    """Interrupt a run after some minutes of acting; return its figures of that moment."""
    run.parent.mkdir(parents=True, exist_ok=True)
    with (run.parent / f"{run.name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        while not (run / HISTORY).is_file() or not (run / HISTORY).stat().st_size:
            if process.poll() is not None:
                raise SystemExit(Path(log.name).read_text()[-2000:])
            time.sleep(0.1)
        time.sleep(60 * minutes)
        figures = summary(run)
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(120)
    return figures


@contextmanager
def sleeping_loop() -> Iterator[Any]:
    """Measure, in a process of its own, the periods of a loop that sleeps until the next tick of 10 Hz."""
    code = f"""
import signal, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
due = last = time.perf_counter()
while not stop:
    due += {1 / HZ}
    time.sleep(max(0.0, due - time.perf_counter()))
    now = time.perf_counter()
    print(now - last)
    last = now
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)

    def periods() -> list[float]:
        process.terminate()
        return [float(line) for line in process.communicate()[0].split()][1:]

    yield periods
    process.kill()


def row(*cells: Any) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    learning = commands.add_parser("learn")
    learning.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    learning.add_argument("--speed", type=float, default=5.0, help="simulated seconds in a second")
    learning.add_argument("--steps", type=int, default=12_000, help="environment steps of RLPD")
    learning.add_argument("--demonstrations", type=int, default=20)
    learning.add_argument("--states", action="store_true", help="the policy sees no pictures")
    learning.set_defaults(run=learn)
    for name, run in (("rates", rates), ("synchronous", synchronous)):
        command = commands.add_parser(name)
        command.add_argument(
            "--model", type=Path, default=RUNS.resolve() / "pictures_0/classifier/checkpoints/best_model"
        )
        command.add_argument("--demos", type=Path, default=RUNS.resolve() / "pictures_0/recorded/collected_data")
        command.add_argument("--minutes", type=float, default=4.0)
        command.set_defaults(run=run)
    compared = commands.choices["synchronous"]
    compared.add_argument("--evaluate", action="store_true", help="50 episodes each, in real time")
    for command in commands.choices.values():
        command.add_argument("--out", type=Path, default=RUNS)
        command.add_argument("--more", nargs="*", default=(), metavar="key=value", help="overrides of the policy run")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
