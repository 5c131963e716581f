"""Cost of a step of ManiSkill tasks on the CPU: ManiSkill's own stepping against ours, and how far apart they are.

    .venv/bin/python benchmarks/maniskill_stepping.py

Both ways step the same actions in one process, in turns of 50 steps, so that other load on the machine meets both.
Times are CPU time. Random actions: 200 steps from each of three seeds. Scripted actions: a policy that picks up or
pushes the cube, in end-effector control, so fingers and cube touch for most of an episode. The last column is the
share of an episode of 50 fast steps that its reset costs.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from rewardlab.envs.maniskill.env import ManiSkillEnv
from rewardlab.envs.maniskill.options import ManiSkillOptions

TASKS = ("PickCube-v1", "PushCube-v1", "StackCube-v1")  # the last one has no formulas in NumPy
CONTROL_MODES = ("pd_joint_delta_pos", "pd_ee_delta_pos", "pd_ee_delta_pose")
SEEDS, STEPS, TURN = 3, 200, 50
BARS = {"ratio": 3.0, "observation": 1e-3, "reward": 2e-3}  # of PickCube-v1

Policy = Callable[[Any], Any]  # observation -> action
Step = tuple[Any, float, dict[str, Any]]


class Comparison(NamedTuple):
    original_ms: float  # per step
    fast_ms: float
    ratio: float  # median over turns
    observation: float  # greatest difference
    reward: float
    successes: int
    infos_differ: int  # steps
    reset_share: float


def random_policy(env: ManiSkillEnv, seed: int) -> Policy:
    rng = np.random.default_rng(seed)
    return lambda _: rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)


def pick(observation: Any) -> Any:
    """Go above the cube, down, grasp it and carry it to the goal (PickCube, pd_ee_delta_pos)."""
    grasped, gripper, goal, cube = observation[18], observation[19:22], observation[26:29], observation[29:32]
    above = np.linalg.norm((cube - gripper)[:2]) < 0.012
    way = goal - cube if grasped else cube + np.array([0, 0, 0 if above else 0.06]) - gripper
    closed = grasped or (above and abs(way[2]) < 0.01)
    return np.array([*np.clip(8 * way, -1, 1), -1 if closed else 1], np.float32)


def push(observation: Any) -> Any:
    """Go behind the cube and push it forward (PushCube, pd_ee_delta_pos)."""
    gripper, cube = observation[18:21], observation[28:31]
    behind = cube - np.array([0.06, 0, 0])
    lined_up = np.linalg.norm((behind - gripper)[1:]) < 0.015 and gripper[0] < cube[0] - 0.02
    way = np.array([0.1, cube[1] - gripper[1], 0]) if lined_up else behind - gripper
    return np.array([*np.clip(8 * way, -1, 1), -1], np.float32)


def replay(actions: list[Any]) -> Policy:
    given = iter(actions)
    return lambda _: next(given)


def compare(task: str, control_mode: str, policies: list[Policy | None], steps: int) -> Comparison:
    """Step both ways from one seed for each policy; None is the random one."""
    original, fast = (
        ManiSkillEnv(f"maniskill/{task}", ManiSkillOptions(control_mode=control_mode, stepping=way))
        for way in ("original", "fast")
    )
    turns: list[tuple[float, float]] = []
    resets: list[float] = []
    pairs: list[tuple[Step, Step]] = []
    for seed, scripted in enumerate(policies):
        policy = scripted or random_policy(original, seed)
        observation, _ = original.reset(seed=seed)
        start = time.process_time()
        fast.reset(seed=seed)
        resets.append(time.process_time() - start)
        for _ in range(0, steps, TURN):
            cost, expected, actions = step_turn(original, observation, policy)
            fast_cost, found, _ = step_turn(fast, None, replay(actions))
            observation = expected[-1][0]
            turns.append((cost, fast_cost))
            pairs += zip(expected, found, strict=True)
    fast_ms = statistics.mean(turn[1] for turn in turns)
    return Comparison(
        statistics.mean(turn[0] for turn in turns),
        fast_ms,
        statistics.median(turn[0] / turn[1] for turn in turns),
        max(float(np.abs(a[0] - b[0]).max()) for a, b in pairs),
        max(abs(a[1] - b[1]) for a, b in pairs),
        sum(a[2]["success"] for a, _ in pairs),
        sum(a[2] != b[2] for a, b in pairs),
        1e3 * statistics.mean(resets[1:]) / (50 * fast_ms),
    )


def step_turn(env: ManiSkillEnv, observation: Any, policy: Policy) -> tuple[float, list[Step], list[Any]]:
    """Step one turn; return CPU milliseconds per step, what the steps returned and the actions."""
    cost, steps, actions = 0.0, [], []
    for _ in range(TURN):
        action = policy(observation)
        start = time.process_time()
        observation, reward, _, _, info = env.step(action)
        cost += time.process_time() - start
        steps.append((observation, reward, info))
        actions.append(action)
    return 1e3 * cost / TURN, steps, actions


def main() -> None:
    names = (
        "task",
        "control mode",
        "actions",
        "ManiSkill ms",
        "fast ms",
        "ratio",
        "observations",
        "rewards",
        "success",
    )
    table = Table(*names, "infos differ", "reset", title="Cost per step (CPU time) and greatest differences")
    reached = True
    cases: list[tuple[str, str, str, list[Policy | None], int]] = [
        (task, mode, "random", [None] * SEEDS, STEPS) for task in TASKS for mode in CONTROL_MODES
    ]
    scripts: dict[str, Policy] = {"PickCube-v1": pick, "PushCube-v1": push}
    cases += [(task, "pd_ee_delta_pos", "scripted", [policy] * 10, TURN) for task, policy in scripts.items()]
    for task, mode, kind, policies, steps in cases:
        found = compare(task, mode, policies, steps)
        table.add_row(
            task, mode, kind, f"{found.original_ms:.2f}", f"{found.fast_ms:.2f}", f"{found.ratio:.2f}",
            f"{found.observation:.1e}", f"{found.reward:.1e}", f"{found.successes}", f"{found.infos_differ}",
            f"{found.reset_share:.0%}",
        )  # fmt: skip
        same = found.observation <= BARS["observation"] and found.reward <= BARS["reward"] and not found.infos_differ
        reached &= same and (task != "PickCube-v1" or found.ratio >= BARS["ratio"])
    Console().print(table)
    print("bars (PickCube-v1 at least 3x; all within 1e-3, 0.002, equal infos):", "reached" if reached else "MISSED")


if __name__ == "__main__":
    main()
