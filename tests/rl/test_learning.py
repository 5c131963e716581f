"""Each algorithm learns something whose answer is known."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rl_loop import Stepper, collect_rollout, observe, train_off_policy
from tensordict import TensorDict

from rewardlab.config.schema import DQNConfig, OptimConfig, PolicyModelConfig, PPOConfig, SACConfig
from rewardlab.data.replay import ReplayBuffer
from rewardlab.envs import make_vec_env
from rewardlab.models.critics import make_critics
from rewardlab.models.policy_networks import make_actor_critic, make_q_network, make_squashed_actor
from rewardlab.rl import DQN, PPO, SAC


def test_ppo_solves_cartpole() -> None:
    env = make_vec_env("CartPole-v1", num_envs=8)
    model = PolicyModelConfig(hidden_sizes=(64, 64))
    network = make_actor_critic(env.single_observation_space, env.single_action_space, model, seed=0)
    optim = OptimConfig(lr=1e-3, max_grad_norm=0.5, schedule="constant")
    learner = PPO(network, PPOConfig(update_epochs=8), optim, gamma=0.99, batch_size=128, seed=0)
    stepper = Stepper(env, seed=0)
    for _ in range(150):  # 28 to 51 on four seeds
        learner.learn(collect_rollout(stepper, learner, steps=64))
        if np.mean([0, *stepper.returns[-20:]]) > 350:
            break
    assert np.mean(stepper.returns[-20:]) > 350


class Parking(gymnasium.Env[Any, Any]):
    """A car on a line that starts anywhere and is paid for standing at 0.5; the action is its speed, from -1 to 3."""

    observation_space = spaces.Box(-2, 2, (1,), np.float32)
    action_space = spaces.Box(-1, 3, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.place.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = np.clip(self.place + 0.2 * action, -2, 2).astype(np.float32)
        return self.place.copy(), -abs(float(self.place[0]) - 0.5), False, False, {}


def test_sac_parks_the_car() -> None:
    makers = [lambda: gymnasium.wrappers.TimeLimit(Parking(), 20)] * 4
    env = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    space, actions = env.single_observation_space, env.single_action_space
    assert isinstance(actions, spaces.Box)
    env.action_space.seed(0)
    model = PolicyModelConfig(hidden_sizes=(32, 32))
    actor = make_squashed_actor(space, actions, model, seed=0)
    config = SACConfig(init_alpha=0.1)
    critics = make_critics(actor, model, config, seed=1)
    optim = OptimConfig(lr=3e-3, schedule="constant")
    learner = SAC(actor, critics, config, optim, gamma=0.9, seed=0)
    stepper = Stepper(env, seed=0)
    train_off_policy(
        learner, stepper, env_steps=3000, batch_size=64, learning_starts=200, utd_ratio=0.25, replay=ReplayBuffer(5000)
    )
    places = torch.linspace(-1, 1, 9)[:, None]
    generator = torch.Generator().manual_seed(0)
    for _ in range(15):
        action = learner.policy.act(observe(places), generator, explore=False)["action"]
        places = places + 0.2 * action
    assert (places - 0.5).abs().max() < 0.15


def test_dqn_finds_the_values_of_a_corridor() -> None:
    """Five rooms in a row; 1 for walking right out of the last one. Q(room, right) = gamma ^ rooms still ahead."""
    gamma, rooms = 0.8, 5
    here = torch.arange(rooms).repeat_interleave(2)
    action = torch.tensor([0, 1]).repeat(rooms)
    there = (here + 2 * action - 1).clamp(0, rooms - 1)
    leaves = (here == rooms - 1) & (action == 1)
    states = torch.eye(rooms)
    everything = TensorDict(
        {
            "observation": {"state": states[here]},
            "action": action,
            "reward": leaves.float(),
            "next_observation": {"state": states[there]},
            "terminated": leaves,
        },
        batch_size=[2 * rooms],
    )
    replay = ReplayBuffer(2 * rooms)
    replay.add(everything)
    box = spaces.Box(0, 1, (rooms,), np.float32)
    network = make_q_network(box, spaces.Discrete(2), PolicyModelConfig(hidden_sizes=(32,)), seed=0)
    config = DQNConfig(target_update_interval=20)
    learner = DQN(network, config, OptimConfig(lr=5e-3, schedule="constant"), gamma=gamma, seed=0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(800):
        learner.learn(replay.sample(32, generator))
    q = learner.network(TensorDict({"state": states}, batch_size=[rooms]))
    right = [gamma**ahead for ahead in reversed(range(rooms))]
    left = [gamma * right[max(room - 1, 0)] for room in range(rooms)]
    assert q[:, 1].tolist() == pytest.approx(right, abs=0.03)
    assert q[:, 0].tolist() == pytest.approx(left, abs=0.03)
