"""A small training loop for tests and benchmarks: environments that reset in the same step, states only."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data.replay import ReplayBuffer
from rewardlab.rl import DQN, PPO, SAC
from rewardlab.types import Batch

Env = VectorEnv[Any, Any, Any]


def observe(states: Any) -> TensorDict:
    array = torch.as_tensor(np.asarray(states, np.float32))
    return TensorDict({"state": array}, batch_size=array.shape[:1])


class Stepper:
    """Steps an environment with a policy, and keeps the returns of episodes that ended."""

    def __init__(self, env: Env, seed: int) -> None:
        self.env = env
        self.generator = torch.Generator().manual_seed(seed)
        states, _ = env.reset(seed=seed)
        self.observation = observe(states)
        self.returns: list[float] = []
        self.ends: list[bool] = []  # success in the last frame, where the environment says so
        self._running = np.zeros(env.num_envs)

    def step(self, action: Tensor) -> tuple[dict[str, Tensor], TensorDict]:
        """One step: reward, terminated, truncated, and the observation that truly followed."""
        space = self.env.single_action_space
        numbers = action.numpy()
        if hasattr(space, "low"):
            numbers = np.clip(numbers, space.low, space.high)
        states, reward, terminated, truncated, infos = self.env.step(numbers)
        self.observation = observe(states)
        followed = self.observation
        self._running += reward
        done = np.asarray(terminated | truncated)
        if done.any():
            final = np.array(states, np.float32)
            final[done] = np.stack(infos["final_obs"][done])
            followed = observe(final)
            self.returns += self._running[done].tolist()
            self.ends += infos["final_info"].get("success_at_end", np.zeros(len(done)))[done].tolist()
            self._running[done] = 0
        facts = {
            "reward": torch.as_tensor(np.asarray(reward, np.float32)),
            "terminated": torch.as_tensor(np.asarray(terminated)),
            "truncated": torch.as_tensor(np.asarray(truncated)),
        }
        return facts, followed


def collect_rollout(stepper: Stepper, learner: PPO, steps: int) -> Batch:
    rows: list[dict[str, Any]] = []
    finals: list[tuple[int, Tensor, TensorDict]] = []
    for t in range(steps):
        observation = stepper.observation
        answer = learner.policy.act(observation, stepper.generator)
        facts, followed = stepper.step(answer["action"])
        rows.append({"observation": observation, **answer, **facts})
        if facts["truncated"].any():
            where = facts["truncated"].nonzero().squeeze(-1)
            finals.append((t, where, followed[where]))
    rollout = TensorDict.stack([TensorDict(row, batch_size=[stepper.env.num_envs]) for row in rows])
    with torch.no_grad():
        last = learner.policy.value(stepper.observation)
        next_value = torch.cat([rollout["value"][1:], last[None]])
        for t, where, final in finals:
            next_value[t, where] = learner.policy.value(final)
    return rollout.set("next_value", next_value)


def train_off_policy(
    learner: SAC | DQN,
    stepper: Stepper,
    *,
    env_steps: int,
    batch_size: int,
    learning_starts: int,
    utd_ratio: float,
    replay: ReplayBuffer,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Random actions until `learning_starts`, then `utd_ratio` updates per environment step."""
    count = stepper.env.num_envs
    owed = 0.0
    for done in range(0, env_steps, count):
        learner.set_progress(done, env_steps)
        observation = stepper.observation
        if done < learning_starts:
            action = torch.as_tensor(stepper.env.action_space.sample())
        else:
            action = learner.policy.act(observation, stepper.generator)["action"]
        facts, followed = stepper.step(action)
        row = {"observation": observation, "action": action, "next_observation": followed, **facts}
        replay.add(TensorDict(row, batch_size=[count]))
        owed += utd_ratio * count if done >= learning_starts else 0
        while owed >= 1:
            learner.learn(replay.sample(batch_size, stepper.generator))
            owed -= 1
        if stop():
            return
