"""The built-in robot task: a gripper over a table, stepped and drawn in batches on the CPU."""

import gymnasium

from rewardlab.envs.tabletop.env import EPISODE_STEPS, TabletopEnv, TabletopVectorEnv
from rewardlab.envs.tabletop.tasks import TASKS

__all__ = ["TASKS", "TabletopEnv", "TabletopVectorEnv"]

for _task in TASKS:
    if f"tabletop/{_task}" not in gymnasium.registry:
        gymnasium.register(
            id=f"tabletop/{_task}",
            entry_point="rewardlab.envs.tabletop.env:TabletopEnv",
            vector_entry_point="rewardlab.envs.tabletop.env:TabletopVectorEnv",
            kwargs={"task": _task},
            max_episode_steps=EPISODE_STEPS,
        )
