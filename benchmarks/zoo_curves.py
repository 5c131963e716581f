"""The picture of a reward model's page: what policies learn from it, beside what there is to compare it with.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/zoo_curves.py rnd              # docs/zoo/rnd.png
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/zoo_curves.py gail her --seeds 5 --out pictures

Every run goes through the pipeline of `rewardlab run` with a shipped config; evaluations are on the task's own reward.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from curves import SUCCESS, Picture, Points, draw
from zoo_learning import BY_CALLER, Bench, clumsy_demonstrations, mean_return, noisy_episodes, true_and_flipped

from rewardlab.config import text_override
from rewardlab.rewards import in_order

RETURN = "eval/return"
WITHOUT = "reward.use_reward_model=false"
LONG = "runner.stop_at_return=null"  # the whole curve, not until it is good enough


def evaluated(
    bench: Bench, config: str, name: str, *overrides: str, figure: str = RETURN, expert_data: Any = None
) -> list[Points]:
    """The evaluations of a run on each seed."""
    found = []
    for seed in range(bench.seeds):
        rows = bench.train(config, f"{name}_{seed}", f"seed={seed}", *overrides, expert_data=expert_data)
        found.append([(row["env_steps"], row[figure]) for row in rows if figure in row])
        print(f"{name}, seed {seed}: {found[-1][-1][1]:.4g} at the end, {rows[-1]['seconds']:.0f} s", flush=True)
    return found


def explore(bench: Bench) -> Picture:
    runs = {
        name: evaluated(bench, "zoo/keydoor_ppo_rnd", f"keydoor {name}", *more, figure=SUCCESS)
        for name, more in (("with rnd", ()), ("without", (WITHOUT,)))
    }
    return Picture("KeyDoor: episodes that reach the goal", runs, shares=True)


def earn_beside(model: str, bench: Bench) -> Picture:
    """A task that needs no exploration: the bonus should not be in its way."""
    runs = {
        name: evaluated(bench, f"zoo/{config}", f"{model} {name}", LONG, "runner.max_epochs=40")
        for name, config in ((f"with {model}", f"cartpole_ppo_{model}"), ("without", "cartpole_ppo"))
    }
    return Picture("CartPole: true return", runs)


def flip(model: str, bench: Bench) -> Picture:
    """A reward that speaks of the expert's actions tells it from one who does the opposite."""
    runs = {}
    for name, data in zip(("true expert", "flipped actions"), true_and_flipped(bench), strict=True):
        settings = (LONG, "runner.max_epochs=30", *BY_CALLER)
        config = f"zoo/cartpole_ppo_{model}"
        runs[name] = evaluated(bench, config, f"{model} {name}", *settings, expert_data=data)
    return Picture("CartPole: true return of the imitator", runs)


def swing_up(model: str, bench: Bench) -> Picture:
    expert, chance = bench.pendulum_expert()
    path = text_override("reward.model.options.expert_data_path", str(expert))
    config = f"zoo/pendulum_sac_{model}"
    runs = {f"SAC on {model} alone": evaluated(bench, config, model, path, "runner.val_check_interval=25")}
    levels = {"expert": mean_return(expert), "random actions": mean_return(chance)}
    return Picture("Pendulum: true return of the imitator", runs, levels)


def outdo(model: str, bench: Bench) -> Picture:
    demonstrations = clumsy_demonstrations(bench, seed=0)
    best = max(float(demonstration["reward"].sum()) for demonstration in demonstrations)
    data = demonstrations if model == "trex" else in_order([str(place) for place in noisy_episodes(bench, seed=0)])
    config = f"zoo/cartpole_ppo_{model}"
    settings = (LONG, "runner.max_epochs=50", *BY_CALLER)
    runs = {f"PPO on {model} alone": evaluated(bench, config, model, *settings, expert_data=data)}
    return Picture("CartPole: true return", runs, {"best demonstration": best})


def hindsight(bench: Bench) -> Picture:
    config, often = "zoo/bitflip_dqn_her", "runner.val_check_interval=5"
    runs = {
        name: evaluated(bench, config, f"her {name}", often, *more, figure="eval/success_once")
        for name, more in (("with her", ()), ("without", (WITHOUT,)))
    }
    return Picture("BitFlip, 15 bits: episodes that reach their goal", runs, shares=True)


PICTURES: dict[str, Callable[[Bench], Picture]] = {
    "rnd": explore,
    **{model: partial(earn_beside, model) for model in ("icm", "ngu")},
    **{model: partial(flip, model) for model in ("gail", "guided_cost", "pdeil")},
    **{model: partial(swing_up, model) for model in ("red", "pwil")},
    **{model: partial(outdo, model) for model in ("trex", "drex")},
    "her": hindsight,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=PICTURES, metavar="MODEL", help=", ".join(PICTURES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "zoo")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place), arguments.seeds)
        for model in arguments.models:
            draw(PICTURES[model](bench), arguments.out / f"{model}.png")
            print(arguments.out / f"{model}.png", flush=True)


if __name__ == "__main__":
    main()
