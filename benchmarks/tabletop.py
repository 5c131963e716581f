"""Speed of the built-in task, and how often its scripted policies succeed.

.venv/bin/python benchmarks/tabletop.py
"""

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from rewardlab.envs import make_vec_env
from rewardlab.envs.policies import make_policy

NUM_ENVS = 256


def per_second(work: Callable[[], int], seconds: float = 3.0) -> float:
    """Things done a second by `work`, which says how many it did; the best of three rounds on a noisy machine."""
    work()
    best = 0.0
    for _ in range(3):
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / 3:
            done += work()
        best = max(best, done / (time.perf_counter() - start))
    return best


def speeds(table: Table) -> None:
    env = make_vec_env("tabletop/PickCube", num_envs=NUM_ENVS)
    env.reset(seed=0)
    actions = env.action_space.sample()

    def step() -> int:
        env.step(actions)
        return NUM_ENVS

    table.add_row("env steps/s, state only", f"{per_second(step):,.0f}", "at least 150,000")
    for randomize in (False, True):
        look = "randomised look" if randomize else "default look"
        drawn = make_vec_env("tabletop/PickCube", num_envs=NUM_ENVS, options={"randomize": randomize})
        drawn.reset(seed=0)
        for size, bar in ((64, "5,000"), (128, "1,500")):

            def draw(env=drawn, size=size) -> int:  # type: ignore[no-untyped-def]
                return len(env.unwrapped.render_cameras(("base_camera",), (size, size))["base_camera"])

            table.add_row(f"frames/s at {size}x{size}, {look}", f"{per_second(draw):,.0f}", f"at least {bar}")


def success_rates(table: Table) -> None:
    bars = {"expert": "at least 95 %", "noisy_expert": "30-70 %", "random": "under 2 %"}
    for task in ("PickCube", "PegInsertion"):
        for policy_name, bar in bars.items():
            rates = []
            for seed in range(3):
                env = make_vec_env(f"tabletop/{task}", num_envs=1000, max_episode_steps=50)
                policy = make_policy(policy_name, env, seed)
                observation, _ = env.reset(seed=seed)
                for _ in range(50):
                    observation, _, _, _, infos = env.step(policy.act(observation))
                rates.append(infos["final_info"]["success_once"].mean())
            spread = f"{100 * min(rates):.1f}-{100 * max(rates):.1f} %"
            table.add_row(f"{task}: success of {policy_name}, 3 seeds x 1,000", spread, bar)


def main() -> None:
    np.seterr(all="raise", under="ignore")
    table = Table("tabletop", "measured", "bar")
    speeds(table)
    success_rates(table)
    Console().print(table)


if __name__ == "__main__":
    main()
