"""Learners of each kind with random data of their form: continuous or discrete actions, states or pictures."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict

from rewardlab.config.schema import DQNConfig, OptimConfig, PolicyModelConfig, PPOConfig, SACConfig
from rewardlab.models.critics import make_critics
from rewardlab.models.policy_networks import make_actor_critic, make_q_network, make_squashed_actor
from rewardlab.models.precision import Precision
from rewardlab.rl import DQN, PPO, SAC
from rewardlab.types import Batch

STATE = spaces.Box(-1, 1, (3,), np.float32)
PICTURES = spaces.Dict(
    {"state": STATE, "images": spaces.Dict({"base_camera": spaces.Box(0, 255, (32, 40, 3), np.uint8)})}
)
BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 1], np.float32))
DISCRETE = spaces.Discrete(4)
OPTIM = OptimConfig(lr=1e-3, max_grad_norm=0.5)


def model(space: spaces.Space[Any]) -> PolicyModelConfig:
    return PolicyModelConfig(hidden_sizes=(16, 16), kind="mlp" if isinstance(space, spaces.Box) else "cnn")


def make_ppo(
    seed: int = 0, space: Any = STATE, action_space: Any = BOX, precision: Precision = "fp32", **config: Any
) -> PPO:
    network = make_actor_critic(space, action_space, model(space), seed)
    settings = PPOConfig(update_epochs=2, entropy_coef=0.01, **config)
    return PPO(network, settings, OPTIM, gamma=0.9, batch_size=8, seed=seed, precision=precision)


def make_sac(seed: int = 0, space: Any = STATE, precision: Precision = "fp32", **config: Any) -> SAC:
    settings = SACConfig(**config)
    actor = make_squashed_actor(space, BOX, model(space), seed)
    critics = make_critics(actor, model(space), settings, seed + 1)
    return SAC(actor, critics, settings, OPTIM, gamma=0.9, seed=seed, precision=precision)


def make_dqn(seed: int = 0, space: Any = STATE, precision: Precision = "fp32", **config: Any) -> DQN:
    network = make_q_network(space, DISCRETE, model(space), seed)
    settings = DQNConfig(target_update_interval=2, **config)
    return DQN(network, settings, OPTIM, gamma=0.9, seed=seed, precision=precision)


def random_observation(generator: torch.Generator, lead: tuple[int, ...], space: Any = STATE) -> TensorDict:
    parts: dict[str, Any] = {"state": 3 + 2 * torch.randn(*lead, 3, generator=generator)}
    if isinstance(space, spaces.Dict):
        pictures = torch.randint(0, 256, (*lead, 32, 40, 3), generator=generator, dtype=torch.uint8)
        parts["images"] = {"base_camera": pictures}
    return TensorDict(parts, batch_size=lead)


def random_rollout(learner: PPO, seed: int, space: Any = STATE, lead: tuple[int, int] = (7, 3)) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    observation = random_observation(generator, lead, space)
    columns = dict(learner.policy.act(observation, generator).items())
    columns |= {
        "observation": observation,
        "next_value": torch.randn(lead, generator=generator),
        "reward": torch.randn(lead, generator=generator),
        "terminated": torch.rand(lead, generator=generator) < 0.1,
        "truncated": torch.rand(lead, generator=generator) < 0.1,
    }
    return TensorDict(columns, batch_size=lead)


def random_transitions(seed: int, action_space: Any = BOX, space: Any = STATE, count: int = 12) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    discrete = isinstance(action_space, spaces.Discrete)
    action = torch.randint(4, (count,), generator=generator) if discrete else torch.rand(count, 2, generator=generator)
    columns = {
        "observation": random_observation(generator, (count,), space),
        "next_observation": random_observation(generator, (count,), space),
        "action": action,
        "reward": torch.randn(count, generator=generator),
        "terminated": torch.rand(count, generator=generator) < 0.2,
    }
    return TensorDict(columns, batch_size=[count])


Case = tuple[Callable[[int], Any], Callable[[Any, int], Batch]]

CASES: dict[str, Case] = {
    "ppo": (lambda s: make_ppo(s, normalize_reward=True), random_rollout),
    "ppo, discrete": (lambda s: make_ppo(s, action_space=DISCRETE), random_rollout),
    "ppo, pictures": (
        lambda s: make_ppo(s, PICTURES, image_shift=True),
        lambda learner, s: random_rollout(learner, s, PICTURES),
    ),
    "sac": (lambda s: make_sac(s), lambda learner, s: random_transitions(s)),
    "sac, rlpd": (
        lambda s: make_sac(s, num_critics=5, critic_subset=2, critic_layer_norm=True, utd_ratio=2.0),
        lambda learner, s: random_transitions(s),
    ),
    "sac, pictures": (lambda s: make_sac(s, PICTURES), lambda learner, s: random_transitions(s, space=PICTURES)),
    "dqn": (lambda s: make_dqn(s), lambda learner, s: random_transitions(s, DISCRETE)),
    "dqn, pictures": (
        lambda s: make_dqn(s, PICTURES, image_shift=True),
        lambda learner, s: random_transitions(s, DISCRETE, PICTURES),
    ),
}
