"""Reward models, their checkpoints, and the manager that turns their estimates into rewards."""

from rewardlab.rewards.audit import Alarm, Audit
from rewardlab.rewards.base import BaseRewardModel, register_reward_model, with_rewards
from rewardlab.rewards.classifier import BinaryRewardClassifier, ResNetRewardModel, SuccessClassifier
from rewardlab.rewards.debug_images import DebugImageWriter
from rewardlab.rewards.loading import create_reward_model, load_reward_model, load_success_classifier
from rewardlab.rewards.manager import RewardManager, compute_reward
from rewardlab.rewards.zoo.adversarial import GAILRewardModel, GuidedCostRewardModel
from rewardlab.rewards.zoo.experts import expert_trajectories, expert_transitions
from rewardlab.rewards.zoo.hindsight import HERRewardModel
from rewardlab.rewards.zoo.imitation import PDEILRewardModel, PWILRewardModel, REDRewardModel
from rewardlab.rewards.zoo.novelty import ICMRewardModel, NGURewardModel, RNDRewardModel
from rewardlab.rewards.zoo.preference import DREXRewardModel, TREXRewardModel, collect_noise_rollouts, in_order

__all__ = [
    "Alarm",
    "Audit",
    "BaseRewardModel",
    "BinaryRewardClassifier",
    "DREXRewardModel",
    "DebugImageWriter",
    "GAILRewardModel",
    "GuidedCostRewardModel",
    "HERRewardModel",
    "ICMRewardModel",
    "NGURewardModel",
    "PDEILRewardModel",
    "PWILRewardModel",
    "REDRewardModel",
    "RNDRewardModel",
    "ResNetRewardModel",
    "RewardManager",
    "SuccessClassifier",
    "TREXRewardModel",
    "collect_noise_rollouts",
    "compute_reward",
    "create_reward_model",
    "expert_trajectories",
    "expert_transitions",
    "in_order",
    "load_reward_model",
    "load_success_classifier",
    "register_reward_model",
    "with_rewards",
]
