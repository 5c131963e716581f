"""Cost of a step of ManiSkill tasks on the CPU: ManiSkill's own stepping against ours, and how far apart they are.

    .venv/bin/python benchmarks/maniskill_stepping.py

Both ways take the same actions in one process, in turns of 50 steps, so that other load on the machine meets both.
Times are CPU time: of `step` of ManiSkill's environment, and of `step` of ours, which also gives NumPy arrays. Random
actions: 200 steps from each of three seeds. Scripted experts: ten episodes of 50 steps, in which fingers and cube touch
most of the time. The last column is what a reset adds to an episode of 50 fast steps.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from rewardlab.envs.maniskill.env import ManiSkillEnv
from rewardlab.envs.maniskill.options import ManiSkillOptions

TASKS = ("PickCube-v1", "PushCube-v1", "StackCube-v1")  # the last one has no formulas in NumPy
CONTROL_MODES = ("pd_joint_delta_pos", "pd_ee_delta_pos", "pd_ee_delta_pose")
SEEDS, STEPS, TURN, EXPERT_EPISODES = 3, 200, 50, 10
MIN_RATIO, MAX_OBSERVATION, MAX_REWARD = 3.0, 1e-3, 2e-3  # the ratio is of PickCube-v1

Step = tuple[Any, float, bool]  # observation, reward, success


class Comparison(NamedTuple):
    original_ms: float  # per step
    fast_ms: float
    ratio: float  # median over turns
    observation: float  # greatest difference
    reward: float
    successes: int  # steps
    successes_differ: int
    reset_share: float

    @property
    def equal(self) -> bool:
        return self.observation <= MAX_OBSERVATION and self.reward <= MAX_REWARD and self.successes_differ == 0


def compare(task: str, control_mode: str, actions: str) -> Comparison:
    """Step both ways by random actions, or by those of the expert."""
    original, fast = (
        ManiSkillEnv(f"maniskill/{task}", ManiSkillOptions(control_mode=control_mode, stepping=way))
        for way in ("original", "fast")
    )
    costs: list[tuple[float, float]] = []
    resets: list[float] = []
    pairs: list[tuple[Step, Step]] = []
    for seed in range(SEEDS if actions == "random" else EXPERT_EPISODES):
        original.reset(seed=seed)
        resets.append(cpu_ms(lambda seed=seed: fast.reset(seed=seed))[0])
        choose = random_actions(original, seed).__next__ if actions == "random" else original.scripted_action
        for _ in range(STEPS // TURN if actions == "random" else 1):
            expected_ms, expected, taken = take_turn(original.simulator.step, choose)
            found_ms, found, _ = take_turn(fast.step, iter(taken).__next__)
            costs.append((expected_ms, found_ms))
            pairs += zip(map(plain, expected), map(plain, found), strict=True)
    fast_ms = statistics.mean(found_ms for _, found_ms in costs)
    return Comparison(
        original_ms=statistics.mean(expected_ms for expected_ms, _ in costs),
        fast_ms=fast_ms,
        ratio=statistics.median(expected_ms / found_ms for expected_ms, found_ms in costs),
        observation=max(float(np.abs(expected[0] - found[0]).max()) for expected, found in pairs),
        reward=max(abs(expected[1] - found[1]) for expected, found in pairs),
        successes=sum(expected[2] for expected, _ in pairs),
        successes_differ=sum(expected[2] != found[2] for expected, found in pairs),
        reset_share=statistics.mean(resets[1:]) / (50 * fast_ms),
    )


def take_turn(step: Callable[[Any], Any], choose: Callable[[], Any]) -> tuple[float, list[Any], list[Any]]:
    """Return CPU milliseconds per step, what the steps returned and the actions."""
    total, results, actions = 0.0, [], []
    for _ in range(TURN):
        actions.append(choose())
        cost, result = cpu_ms(lambda: step(actions[-1]))
        total += cost
        results.append(result)
    return total / TURN, results, actions


def cpu_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return 1e3 * (time.process_time() - start), result


def random_actions(env: ManiSkillEnv, seed: int) -> Iterator[Any]:
    rng = np.random.default_rng(seed)
    while True:
        yield rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)


def plain(result: Any) -> Step:
    observation, reward, _, _, info = result
    return np.ravel(observation), float(reward), bool(info["success"])


def main() -> None:
    table = Table(
        *("task", "control mode", "actions", "ManiSkill ms", "fast ms", "ratio", "observations", "rewards"),
        *("successes", "differ", "reset"),
        title="CPU time per step, and greatest differences",
    )
    cases = [(task, mode, "random") for task in TASKS for mode in CONTROL_MODES]
    cases += [(task, "pd_ee_delta_pos", "expert") for task in TASKS]
    reached = True
    for case in cases:
        found = compare(*case)
        table.add_row(
            *(*case, f"{found.original_ms:.2f}", f"{found.fast_ms:.2f}", f"{found.ratio:.2f}"),
            *(f"{found.observation:.1e}", f"{found.reward:.1e}", str(found.successes), str(found.successes_differ)),
            f"{found.reset_share:.0%}",
        )
        reached &= found.equal and (case[0] != "PickCube-v1" or found.ratio >= MIN_RATIO)
    Console().print(table)
    print(
        f"PickCube-v1 at least {MIN_RATIO:g}x; observations within {MAX_OBSERVATION:g}, rewards within {MAX_REWARD:g}, "
        f"successes equal: {'reached' if reached else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
