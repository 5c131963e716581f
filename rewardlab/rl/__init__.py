"""RL algorithms: each reads a `reward` column and does not know who wrote it."""

from rewardlab.rl.dqn import DQN
from rewardlab.rl.learner import Learner
from rewardlab.rl.ppo import PPO, gae
from rewardlab.rl.sac import SAC

__all__ = ["DQN", "PPO", "SAC", "Learner", "gae"]
