"""What a policy run costs: to 90 % success, an iteration with a learned reward, and several environment workers on Ray.

    .venv/bin/python benchmarks/policies.py success      # PPO on PickCube from states, true reward
    .venv/bin/python benchmarks/policies.py iteration    # learned rewards against the environment's own
    .venv/bin/python benchmarks/policies.py workers      # one and two environment workers on Ray

Times are of this machine, with whatever else runs on it; ratios are of rounds that take turns.
"""

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rewardlab.config import ExperimentConfig, load_config, text_override
from rewardlab.pipelines import train_policy
from rewardlab.pipelines.policy_training import PolicyTraining
from rewardlab.pipelines.policy_workers import launch_workers
from rewardlab.rewards import ResNetRewardModel
from rewardlab.workers import Cluster
from rewardlab.workers.env import EnvWorker, FrameRequest
from rewardlab.workers.threads import torch_threads

ROUNDS = 7


def success(table: Table) -> None:
    for seed in range(3):
        with tempfile.TemporaryDirectory() as place:
            overrides = [f"seed={seed}", "runner.stop_at_success=0.9", text_override("runner.logger.log_path", place)]
            start = time.perf_counter()
            train_policy.run(load_config("tabletop_ppo_mlp", overrides), console=Console(quiet=True))
            table.add_row(
                f"PPO, PickCube, 90 % of episodes, seed {seed}", f"{time.perf_counter() - start:.0f} s", "90 s"
            )


def iteration(table: Table) -> None:
    _iteration(table, "tabletop_ppo_mlp", "from states")
    _iteration(table, "tabletop_ppo_cnn", "from pictures")


def _iteration(table: Table, config: str, policy: str) -> None:
    bars = {"terminal": "1.15x", "per_step": "none"}
    with tempfile.TemporaryDirectory() as place:
        model = ResNetRewardModel("resnet10", image_size=(3, 64, 64), width=32).save(Path(place) / "model")
        learned = ["reward.use_reward_model=true", text_override("reward.model.checkpoint_path", str(model))]
        kinds: dict[str, list[str]] = {"environment's own": []}
        kinds |= {mode: [*learned, f"reward.reward_mode={mode}"] for mode in bars}
        runs = {}
        with Cluster(load_config(config, []).cluster) as cluster, torch_threads(1):
            for name, overrides in kinds.items():
                cfg = load_config(config, ["algorithm.ppo.rollout_steps=50", *overrides])
                out = Path(place) / name.replace(" ", "_")
                runs[name] = PolicyTraining(cfg, launch_workers(cfg, cluster, out), out)
            times: dict[str, list[float]] = {name: [] for name in runs}
            shares: dict[str, dict[str, float]] = {}
            for _ in range(ROUNDS + 1):
                for name, training in runs.items():
                    start = time.perf_counter()
                    figures = training.iterate()
                    times[name].append(time.perf_counter() - start)
                    shares[name] = {key: value for key, value in figures.items() if key.startswith("time/")}
        own = times["environment's own"][1:]
        for name, seconds in times.items():
            ratio = statistics.median(mine / base for mine, base in zip(seconds[1:], own, strict=True))
            where = ", ".join(f"{key[5:]} {value:.2f}" for key, value in shares[name].items() if value > 0.01)
            table.add_row(f"iteration {policy}, {name}: {where} s", f"{ratio:.2f}x", bars.get(name, "none"))


def workers(table: Table) -> None:
    """Environments that draw every frame, so that they and not the messages take the time."""
    base = load_config("tabletop_ppo_mlp", ["cluster.backend=ray"])
    with Cluster(base.cluster) as cluster:
        groups = {count: _drawing(cluster, base, count) for count in (1, 2)}
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(ROUNDS + 1):
            for count, group in groups.items():
                start = time.perf_counter()
                group.call("draw", 64 // count).result()
                times[count].append(time.perf_counter() - start)
    ratio = statistics.median(one / two for one, two in zip(times[1][1:], times[2][1:], strict=True))
    table.add_row("environment throughput, 2 workers on Ray against 1", f"{ratio:.2f}x", "1.6x")


class DrawingWorker(EnvWorker):
    """Steps and draws without a policy."""

    def draw(self, steps: int) -> None:
        self.begin(0)
        for _ in range(steps):
            self.step(self.env.action_space.sample())
        self.fetch()
        self.fetch_frames()


def _drawing(cluster: Cluster, cfg: ExperimentConfig, count: int):  # type: ignore[no-untyped-def]
    env = dataclasses.replace(cfg.env.train, num_envs=128)
    frames = FrameRequest(("base_camera",))
    return cluster.launch(
        "env", lambda seat: DrawingWorker(env, seed=seat.index, frames=frames), name=f"Env{count}", count=count
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures = {"success": success, "iteration": iteration, "workers": workers}
    parser.add_argument("what", nargs="?", choices=measures, help="all of them, one after the other, if not given")
    table = Table(
        "what", "measured", "bar", title=f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    )
    wanted = parser.parse_args().what
    for name in [wanted] if wanted else measures:
        measures[name](table)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
