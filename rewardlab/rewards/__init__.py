"""Reward models, their checkpoints, and the manager that turns their estimates into rewards."""

from rewardlab.rewards.audit import Alarm, Audit, AuditResult
from rewardlab.rewards.base import BaseRewardModel, register_reward_model, with_rewards
from rewardlab.rewards.classifier import BinaryRewardClassifier, ResNetRewardModel, SuccessClassifier
from rewardlab.rewards.debug_images import DebugImageWriter
from rewardlab.rewards.loading import create_reward_model, load_reward_model
from rewardlab.rewards.manager import RewardManager, combine_rewards, map_probability
from rewardlab.rewards.score_histogram import ScoreHistogram

__all__ = [
    "Alarm",
    "Audit",
    "AuditResult",
    "BaseRewardModel",
    "BinaryRewardClassifier",
    "DebugImageWriter",
    "ResNetRewardModel",
    "RewardManager",
    "ScoreHistogram",
    "SuccessClassifier",
    "combine_rewards",
    "create_reward_model",
    "load_reward_model",
    "map_probability",
    "register_reward_model",
    "with_rewards",
]
