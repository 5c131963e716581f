"""Whether the reward models of the zoo make policies learn what they should, and how fast: one table a claim.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/zoo_learning.py gail     # true expert against flipped actions
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/zoo_learning.py rnd      # a sparse task, with and without
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/zoo_learning.py trex     # beyond the best demonstration
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/zoo_learning.py her      # BitFlip, with and without
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/zoo_learning.py imitate  # PWIL and RED on Pendulum
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/zoo_learning.py times    # seconds to 195 on CartPole

Every run goes through the pipeline of `rewardlab run` with a shipped config. Experts are trained here first.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from tensordict import TensorDict

from rewardlab.config import load_config, text_override
from rewardlab.pipelines import collect, train_policy
from rewardlab.rewards.zoo.experts import expert_trajectories, expert_transitions

QUIET = Console(quiet=True)
ENOUGH = 195  # a return that counts as solved on CartPole
BY_CALLER = ("reward.model.options.expert_data_path=null",)


class Bench:
    """A directory for runs, and what was found in them."""

    def __init__(self, place: Path, seeds: int) -> None:
        self.place, self.seeds = place, seeds

    def train(self, config: str, name: str, *overrides: str, expert_data: Any = None) -> list[dict[str, float]]:
        """The figures of each iteration, with the seconds that had passed."""
        log_path = text_override("runner.logger.log_path", str(self.place))
        where = [log_path, text_override("runner.logger.experiment_name", name)]
        start = time.perf_counter()
        train_policy.run(load_config(config, [*where, *overrides]), console=QUIET, expert_data=expert_data)
        seconds = time.perf_counter() - start
        rows = [json.loads(line) for line in (self.place / name / "metrics.jsonl").read_text().splitlines()]
        return [{**row, "seconds": seconds} for row in rows]

    def collect(self, config: str, name: str, *overrides: str) -> Path:
        """Episodes, made once."""
        place = self.place / name
        if not place.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # these tasks know no success
                save = text_override("data.collection.save_dir", str(place))
                collect.run(load_config(config, ["runner.task=collect", save, *overrides]), console=QUIET)
        return place

    def cartpole_expert(self) -> Path:
        if not (self.place / "expert_run").exists():
            self.train("zoo/cartpole_ppo", "expert_run", "runner.stop_at_return=490")
        policy = text_override("data.collection.policy", str(self.place / "expert_run"))
        return self.collect("zoo/cartpole_expert", "expert", policy)

    def pendulum_expert(self) -> tuple[Path, Path]:
        """Episodes of a trained policy, and of random actions."""
        if not (self.place / "pendulum_expert_run").exists():
            self.train("zoo/pendulum_sac", "pendulum_expert_run")
        policy = text_override("data.collection.policy", str(self.place / "pendulum_expert_run"))
        expert = self.collect("zoo/pendulum_expert", "pendulum_expert", policy)
        return expert, self.collect("zoo/pendulum_expert", "pendulum_random", "data.collection.policy=random")


def last_evaluation(rows: Sequence[dict[str, float]], figure: str = "eval/return") -> float:
    return next(row[figure] for row in reversed(rows) if figure in row)


def best_evaluation(rows: Sequence[dict[str, float]], figure: str = "eval/return") -> float:
    return max(row[figure] for row in rows if figure in row)


def true_and_flipped(bench: Bench) -> tuple[TensorDict, TensorDict]:
    """What the expert of CartPole did, and the same with every action the other one."""
    expert = expert_transitions(bench.cartpole_expert())[:1000]
    return expert, expert.clone().set("action", 1 - expert["action"])


def gail(bench: Bench) -> None:
    """The same budget for both: all 60 iterations, and the best evaluation counts."""
    expert, flipped = true_and_flipped(bench)
    print(f"{len(expert)} expert transitions\n\n| seed | true expert | flipped expert |\n|---|---|---|")
    reached = {"true": 0, "flipped": 0}
    for seed in range(bench.seeds):
        found = {}
        for name, data in (("true", expert), ("flipped", flipped)):
            settings = [f"seed={seed}", "runner.max_epochs=60", "runner.stop_at_return=null", *BY_CALLER]
            found[name] = best_evaluation(
                bench.train("zoo/cartpole_ppo_gail", f"gail_{name}_{seed}", *settings, expert_data=data)
            )
            reached[name] += found[name] >= ENOUGH
        print(f"| {seed} | {found['true']:.0f} | {found['flipped']:.0f} |", flush=True)
    print(f"\nreached {ENOUGH}: {reached['true']} of {bench.seeds} true, {reached['flipped']} of {bench.seeds} flipped")


def rnd(bench: Bench) -> None:
    """In KeyDoor 3,000 episodes of random actions do not find the reward once."""
    print("| seed | with RND | without |\n|---|---|---|")
    solved = {"with": 0, "without": 0}
    for seed in range(bench.seeds):
        found = {}
        for name, more in (("with", ()), ("without", ("reward.use_reward_model=false",))):
            rows = bench.train("zoo/keydoor_ppo_rnd", f"rnd_{name}_{seed}", f"seed={seed}", *more)
            found[name] = last_evaluation(rows, "eval/success_at_end")
            solved[name] += found[name] >= 0.9
        print(f"| {seed} | {found['with']:.0%} | {found['without']:.0%} |", flush=True)
    print(f"\nsolved: {solved['with']} of {bench.seeds} with, {solved['without']} of {bench.seeds} without")


def trex(bench: Bench) -> None:
    """Demonstrations are episodes of a policy that is only beginning to learn."""
    print("| seed | best demonstration | mean return of the policy |\n|---|---|---|")
    beyond = 0
    for seed in range(bench.seeds):
        demonstrations = clumsy_demonstrations(bench, seed)
        best = max(float(demonstration["reward"].sum()) for demonstration in demonstrations)
        rows = bench.train(
            "zoo/cartpole_ppo_trex",
            f"trex_{seed}",
            f"seed={seed}",
            "runner.stop_at_return=null",
            *BY_CALLER,
            expert_data=demonstrations,
        )
        found = last_evaluation(rows)
        beyond += found > best
        print(f"| {seed} | {best:.0f} | {found:.0f} |", flush=True)
    print(f"\nbeyond the best demonstration: {beyond} of {bench.seeds}")


def clumsy_demonstrations(bench: Bench, seed: int) -> list[TensorDict]:
    return [one for place in noisy_episodes(bench, seed) for one in expert_trajectories(place)]


def noisy_episodes(bench: Bench, seed: int) -> list[Path]:
    """Episodes of the expert with fewer and fewer random actions, but so many that none is long."""
    bench.cartpole_expert()
    policy = text_override("data.collection.policy", str(bench.place / "expert_run"))
    places: list[Path] = []
    for share in (1.0, 0.8, 0.6):
        settings = (policy, f"data.collection.random_actions={share}", "data.collection.episodes=16", f"seed={seed}")
        places.append(bench.collect("zoo/cartpole_expert", f"clumsy_{seed}_{share}", *settings))
    return places


def her(bench: Bench) -> None:
    print("| seed | success with HER | without |\n|---|---|---|")
    for seed in range(min(bench.seeds, 3)):
        found = [
            last_evaluation(
                bench.train("zoo/bitflip_dqn_her", f"her_{name}_{seed}", f"seed={seed}", *more), "eval/success_once"
            )
            for name, more in (("with", ()), ("without", ("reward.use_reward_model=false",)))
        ]
        print(f"| {seed} | {found[0]:.2f} | {found[1]:.2f} |", flush=True)


def imitate(bench: Bench) -> None:
    """Returns of Pendulum are negative: the score is 0 for random actions and 1 for the expert."""
    expert, chance = bench.pendulum_expert()
    best, worst = (mean_return(place) for place in (expert, chance))
    print(f"expert {best:.0f}, random actions {worst:.0f}\n\n| model | seed | return | score |\n|---|---|---|---|")
    for model in ("pwil", "red"):
        for seed in range(min(bench.seeds, 3)):
            path = text_override("reward.model.options.expert_data_path", str(expert))
            rows = bench.train(f"zoo/pendulum_sac_{model}", f"{model}_{seed}", f"seed={seed}", path)
            found = last_evaluation(rows)
            print(f"| {model} | {seed} | {found:.0f} | {(found - worst) / (best - worst):.2f} |", flush=True)


def mean_return(place: Path) -> float:
    return statistics.mean(float(trajectory["reward"].sum()) for trajectory in expert_trajectories(place))


def times(bench: Bench) -> None:
    """Seconds from the first line of the run to the evaluation that reached 195, everything in between included."""
    expert = str(bench.cartpole_expert())
    print("| config | seconds of three seeds | median | bar |\n|---|---|---|---|")
    for config, bar in (("cartpole_ppo_rnd", 5), ("cartpole_dqn_icm", 20), ("cartpole_ppo_gail", 10)):
        more = [text_override("reward.model.options.expert_data_path", expert)] if config.endswith("gail") else []
        runs = [bench.train(f"zoo/{config}", f"time_{config}_{seed}", f"seed={seed}", *more) for seed in range(3)]
        seconds = [rows[-1]["seconds"] if best_evaluation(rows) >= ENOUGH else float("inf") for rows in runs]
        each = ", ".join(f"{second:.1f}" for second in seconds)
        print(f"| zoo/{config} | {each} | {statistics.median(seconds):.1f} | {bar} |", flush=True)


CLAIMS: dict[str, Callable[[Bench], None]] = {
    "gail": gail,
    "rnd": rnd,
    "trex": trex,
    "her": her,
    "imitate": imitate,
    "times": times,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claim", choices=CLAIMS)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        CLAIMS[arguments.claim](Bench(Path(place), arguments.seeds))


if __name__ == "__main__":
    main()
