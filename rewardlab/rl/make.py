"""Builds the learner that a config asks for, and the policy that acts for it in other processes."""

from typing import Any

from torch import nn

from rewardlab.config.schema import ExperimentConfig
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


def make_learner(cfg: ExperimentConfig, observation_space: Space, action_space: Space) -> Learner:
    algorithm = cfg.algorithm
    network: Any = make_policy_network(cfg, observation_space, action_space)
    common: dict[str, Any] = {"optim": cfg.actor.optim, "gamma": algorithm.gamma, "seed": cfg.seed}
    if algorithm.name == "ppo":
        return PPO(network, algorithm.ppo, batch_size=cfg.actor.global_batch_size, **common)
    if algorithm.name == "dqn":
        return DQN(network, algorithm.dqn, **common)
    critics = make_critics(network, cfg.actor.model, algorithm.sac, cfg.seed + 1)
    return SAC(network, critics, algorithm.sac, **common)
