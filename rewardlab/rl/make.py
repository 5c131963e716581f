"""Builds the learner that a config asks for, and the policy that acts for it in other processes."""

from typing import Any

import torch
from torch import nn

from rewardlab.config.schema import ExperimentConfig
from rewardlab.devices import CPU
from rewardlab.models.critics import make_critics
from rewardlab.models.policy_networks import Space, make_actor_critic, make_q_network, make_squashed_actor
from rewardlab.rl.dqn import DQN
from rewardlab.rl.learner import Learner
from rewardlab.rl.ppo import PPO
from rewardlab.rl.sac import SAC


def make_policy_network(cfg: ExperimentConfig, observation_space: Space, action_space: Space) -> nn.Module:
    """Build the network that acts; the same that the learner of this config has, before it has learned."""
    make = {"ppo": make_actor_critic, "sac": make_squashed_actor, "dqn": make_q_network}[cfg.algorithm.name]
    return make(observation_space, action_space, cfg.actor.model, cfg.seed)


def make_learner(
    cfg: ExperimentConfig, observation_space: Space, action_space: Space, device: torch.device = CPU
) -> Learner:
    """Build the learner of a config, with its networks on `device`."""
    algorithm, actor = cfg.algorithm, cfg.actor
    network: Any = make_policy_network(cfg, observation_space, action_space).to(device)
    common: dict[str, Any] = {
        "optim": actor.optim,
        "gamma": algorithm.gamma,
        "seed": cfg.seed,
        "precision": actor.precision,
    }
    if algorithm.name == "ppo":
        return PPO(network, algorithm.ppo, batch_size=actor.global_batch_size, **common)
    if algorithm.name == "dqn":
        return DQN(network, algorithm.dqn, **common)
    critics = make_critics(network, actor.model, algorithm.sac, cfg.seed + 1).to(device)
    return SAC(network, critics, algorithm.sac, **common)
