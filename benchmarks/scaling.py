"""What each component of a policy run costs, and what limits its speed as environment workers are added.

    .venv/bin/python benchmarks/scaling.py                                   # PickCube, every frame scored
    .venv/bin/python benchmarks/scaling.py --config my_run.yaml --workers 1,2,4,8 key=value ...

With a config of your own, `key=value` changes it as for `rewardlab run`; only `cluster.backend` and
`cluster.workers.env` are set here. On a Ray cluster (RAY_ADDRESS) workers are on the nodes where the run has them.

`--simulator-ms 2` makes each step of an environment sleep 2 ms in addition, like a simulator on a core of its own.

All variants are launched at the start and take turns, one iteration each, so that ratios are of one run. The number of
environments stays the same: more workers have fewer environments each.
"""

import argparse
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rewardlab.config import ExperimentConfig, load_config, text_override
from rewardlab.config.schema import ClusterConfig
from rewardlab.cores import available_cores
from rewardlab.pipelines.policy_training import PolicyTraining
from rewardlab.pipelines.policy_workers import launch_workers
from rewardlab.rewards import ResNetRewardModel
from rewardlab.workers import Cluster, Group
from rewardlab.workers.env import EnvWorker
from rewardlab.workers.threads import torch_threads

EXAMPLE = ["env.train.num_envs=64", "algorithm.ppo.rollout_steps=32", "reward.use_reward_model=true"]
COMPONENTS = {
    "env": "environments (step)",
    "frames": "environments (frames to score)",
    "rollout": "policy (choose actions)",
    "reward": "reward models (score)",
    "trainer": "reward models (learn, audit)",
    "actor": "learner (update)",
}
MESSAGES = "messages between processes"
BUSY = 0.85  # above this fraction of all cores, the cores are the limit


class Timed:
    """A worker object that counts the seconds that its methods take, of the clock and of the CPU."""

    def __init__(self, worker: Any, cpu_clock: Callable[[], float], simulator_ms: float) -> None:
        self._worker, self._cpu_clock = worker, cpu_clock
        self._wall: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()
        if isinstance(worker, EnvWorker):
            worker._record_frames = self._timed("frames", worker._record_frames)  # type: ignore[method-assign]
            worker.env.step = _slowed(worker.env.step, simulator_ms / 1000 * worker.env.num_envs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._timed("calls", getattr(self._worker, name))

    def _timed(self, title: str, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = time.perf_counter(), self._cpu_clock()
            try:
                return method(*args, **kwargs)
            finally:
                self._wall[title] += time.perf_counter() - wall
                self._cpu[title] += self._cpu_clock() - cpu

        return call

    def spent(self) -> tuple[Counter[str], Counter[str], float]:
        """Return the seconds since the last call, of the clock and of the CPU, and the CPU time of this process."""
        wall, cpu = Counter(self._wall), Counter(self._cpu)
        self._wall.clear()
        self._cpu.clear()
        return wall, cpu, time.process_time()


def _slowed(step: Callable[[Any], Any], seconds: float) -> Callable[[Any], Any]:
    def slow(actions: Any) -> Any:
        time.sleep(seconds)
        return step(actions)

    return slow if seconds else step


class TimedCluster(Cluster):
    """Launches workers that count their time."""

    def __init__(self, config: ClusterConfig, simulator_ms: float) -> None:
        super().__init__(config)
        self.simulator_ms = simulator_ms
        self.timed: dict[str, Group] = {}

    def launch(self, component: Any, make: Any, *, name: str, **options: Any) -> Group:
        # A Ray worker is a process of its own, whose torch threads count too; local workers share this one.
        clock = time.process_time if self.config.backend == "ray" else time.thread_time
        slowness = self.simulator_ms
        group = super().launch(component, lambda place: Timed(make(place), clock, slowness), name=name, **options)
        self.timed["trainer" if name == "RewardTrainer" else component] = group
        return group

    def spent(self) -> dict[str, list[tuple[Counter[str], Counter[str], float]]]:
        return {name: group.call("spent").result() for name, group in self.timed.items()}


@dataclass
class Turn:
    """One iteration: seconds by component, on the critical path and of all processors."""

    steps: int
    wall: float
    path: Counter[str]
    cpu: Counter[str]

    @property
    def speed(self) -> float:
        return self.steps / self.wall


class Variant:
    """A run with some number of environment workers on one backend."""

    def __init__(self, cfg: ExperimentConfig, out: Path, stack: ExitStack, simulator_ms: float) -> None:
        self.local = cfg.cluster.backend == "local"
        self.workers = cfg.cluster.workers["env"]
        self.title = f"{cfg.cluster.backend}, {self.workers} environment worker{'s' * (self.workers > 1)}"
        self.cluster = stack.enter_context(TimedCluster(cfg.cluster, simulator_ms))
        self.training = PolicyTraining(cfg, launch_workers(cfg, self.cluster, out), out)
        self.turns: list[Turn] = []

    def _process_times(self, spent: Any) -> list[float]:
        others = [] if self.local else [total for workers in spent.values() for _, _, total in workers]
        return [time.process_time(), *others]

    def take_turn(self, measured: bool) -> None:
        before = self._process_times(self.cluster.spent())
        steps, start = self.training.progress.env_steps, time.perf_counter()
        metrics = self.training.iterate()
        wall = time.perf_counter() - start
        spent = self.cluster.spent()
        total = sum(self._process_times(spent)) - sum(before)
        if measured:
            cpu = self._cpu(spent)
            cpu["other"] = max(0.0, total - sum(cpu.values()))
            path = self._critical_path(spent, metrics)
            self.turns.append(Turn(self.training.progress.env_steps - steps, wall, path, cpu))

    def _cpu(self, spent: Any) -> Counter[str]:
        cpu: Counter[str] = Counter()
        for name, workers in spent.items():
            cpu[name] = sum(seconds["calls"] - seconds["frames"] for _, seconds, _ in workers)
        cpu["frames"] = sum(seconds["frames"] for _, seconds, _ in spent["env"])
        return cpu

    def _critical_path(self, spent: Any, metrics: dict[str, float]) -> Counter[str]:
        """Return where the time of an iteration goes: the lane that took longest, then what the driver waited for."""
        lanes = [
            Counter(env=env["calls"] - env["frames"], frames=env["frames"], rollout=policy["calls"])
            for (env, _, _), (policy, _, _) in zip(spent["env"], spent["rollout"], strict=True)
        ]
        # In one process the lanes follow one another.
        path = sum(lanes, Counter()) if self.local else max(lanes, key=lambda lane: sum(lane.values()))
        path["messages"] = max(0.0, metrics["time/rollout"] - sum(path.values()))
        path["reward"] = metrics.get("time/compute_model_rewards", 0.0)
        path["trainer"] = metrics["time/reward"]
        path["actor"] = metrics["time/learn"] + metrics["time/sync"]
        return path

    def ratio_to(self, base: "Variant") -> float:
        return statistics.median(mine.speed / other.speed for mine, other in zip(self.turns, base.turns, strict=True))

    def middle(self, kind: str) -> Counter[str]:
        """Return the median milliseconds per environment step of each component."""
        rows = [{name: 1000 * s / turn.steps for name, s in getattr(turn, kind).items()} for turn in self.turns]
        return Counter({name: statistics.median(row[name] for row in rows) for name in rows[0]})

    def limit(self, cores: float) -> str:
        """Return what limits the throughput."""
        cpu, path = self.middle("cpu"), self.middle("path")
        step = statistics.median(1000 * turn.wall / turn.steps for turn in self.turns)
        busy = sum(cpu.values()) / step / cores
        if not self.local and busy > BUSY:
            most, _ = cpu.most_common(1)[0]
            return f"all {cores:.0f} cores are busy ({busy:.0%}), most with: {name_of(most)}"
        most, milliseconds = path.most_common(1)[0]
        return f"{name_of(most)}, {milliseconds / step:.0%} of the time"


def name_of(component: str) -> str:
    return COMPONENTS.get(component, MESSAGES)


def cost_table(local: Variant, on_ray: Variant | None) -> Table:
    table = Table("component", "CPU ms per environment step", "fraction", title="What each component costs")
    source = on_ray or local
    costs = source.middle("cpu")
    other = costs.pop("other")
    driver = min(local.middle("cpu")["other"], other)
    rows = [(COMPONENTS[name], costs[name]) for name in COMPONENTS if costs[name] > 0.001]
    rows.append(("driver (batches, rewards, audit)", driver))
    if on_ray:
        rows.append((MESSAGES, other - driver))
    total = sum(cost for _, cost in rows)
    for name, cost in rows:
        table.add_row(name, f"{cost:.4f}", f"{cost / total:.0%}")
    table.caption = f"{source.title}, {source.turns[0].steps:,} steps an iteration"
    return table


def throughput_table(variants: list[Variant], cores: float) -> Table:
    names = ["env", "frames", "rollout", "messages", "reward", "trainer", "actor"]
    titles = ["step", "frames", "policy", "messages", "scores", "audit", "learner"]
    title = "Throughput, and where the milliseconds of a step go: the slowest lane, then what the driver waits for"
    table = Table("run", "steps/s", "to 1 worker", "to the first", *titles, "limited by", title=title)
    for variant in variants:
        same_backend = next(other for other in variants if other.local == variant.local)
        ratios = [f"{variant.ratio_to(base):.2f}x" for base in (same_backend, variants[0])]
        speed = statistics.median(turn.speed for turn in variant.turns)
        path = variant.middle("path")
        figures = [f"{path[name]:.3f}" for name in names]
        table.add_row(variant.title, f"{speed:,.0f}", *ratios, *figures, variant.limit(cores))
    return table


def measure(config: str, overrides: list[str], given: argparse.Namespace) -> None:
    # In a run, iterations end with an evaluation or a checkpoint now and then; here they never do.
    forever = ["runner.max_epochs=1000000", "runner.val_check_interval=1000000", "data.collection.enabled=false"]
    load, backends = os.getloadavg()[0], given.backends.split(",")
    workers = [int(count) for count in given.workers.split(",")]
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack, torch_threads(1):
        variants = []
        for backend in backends:
            for count in workers:
                here = [f"cluster.backend={backend}", f"cluster.workers.env={count}"]
                out = Path(place) / f"{backend}_{count}"
                cfg = load_config(config, [*overrides, *forever, *here])
                variants.append(Variant(cfg, out, stack, given.simulator_ms))
        for number in range(given.rounds + 1):
            for variant in variants:
                variant.take_turn(measured=number > 0)
        cores = available_cores()
        if "ray" in backends:
            import ray

            cores = ray.cluster_resources().get("CPU", cores)
    console = Console(width=190)
    command = shlex.join(["benchmarks/scaling.py", *sys.argv[1:]])
    console.print(f"{command}\n{cores:.0f} cores, load {load:.1f} at the start", highlight=False)
    alone = {variant.local: variant for variant in variants if variant.workers == workers[0]}
    if True in alone:
        console.print(cost_table(alone[True], alone.get(False)))
    console.print(throughput_table(variants, cores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="name or file of a policy run; the built-in example if not given")
    parser.add_argument("--workers", default="1,2,4", help="numbers of environment workers (%(default)s)")
    parser.add_argument("--backends", default="local,ray", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measured iterations of each variant (%(default)s)")
    parser.add_argument("--simulator-ms", type=float, default=0.0, help="each step of an environment sleeps so long")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        overrides = given.overrides
        if given.config is None:
            model = ResNetRewardModel("resnet10", image_size=(3, 64, 64), width=32).save(Path(place) / "model")
            overrides = [*EXAMPLE, text_override("reward.model.checkpoint_path", str(model)), *overrides]
        measure(given.config or "tabletop_ppo_mlp", overrides, given)


if __name__ == "__main__":
    main()
