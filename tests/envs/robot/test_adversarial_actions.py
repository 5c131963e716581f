"""Whatever a policy says, no command outside of the box or further than a step reaches the robot.

`benchmarks/robot_limits.py` does this with 100,000 actions; its functions are what is used here.
"""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sim_robot import Sim

from rewardlab.envs.robot.protocol import Command

BENCHMARK: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks/robot_limits.py"))
ACTIONS = 2000


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_no_action_leads_out_of_the_limits(sim: Sim, noise: float) -> None:
    """With noise, the robot says of itself that it is outside of the box, or turned too far, from time to time.

    At the rate of the simulation: without pauses the arm would hardly have moved after all these actions.
    """
    sim.faults(noise=noise)
    env = BENCHMARK["make_env"](sim.address, 400.0, watchdog_seconds=None)
    try:
        outcome = BENCHMARK["step_all"](env, ACTIONS)
        rows = BENCHMARK["violations"](env, sim.statistics())
    finally:
        env.close()
    assert all(kept for *_, kept in rows), rows
    assert set(outcome.sent) == set(BENCHMARK["KINDS"][:4])
    assert set(outcome.refused) == set(BENCHMARK["KINDS"][4:])
    assert outcome.sent.total() + outcome.refused.total() == ACTIONS
    assert np.ptp([sim.statistics()[key] for key in ("low", "high")], axis=0).min() > 0.19, "it was driven to the walls"


def test_a_command_beyond_the_limits_would_be_found(sim: Sim) -> None:
    """The check itself: the server tells of a command that no limit was applied to."""
    env = BENCHMARK["make_env"](sim.address, 2000.0, watchdog_seconds=None)
    try:
        env.reset(seed=0)
        far = env.robot.observe()
        far.pose[0] += 0.15
        env.robot.act(Command(far.pose))
        kept = {name: kept for name, _, _, kept in BENCHMARK["violations"](env, sim.statistics())}
    finally:
        env.close()
    assert not kept["box, x (m)"]
    assert not kept["step (m)"]
    assert kept["box, y (m)"]
