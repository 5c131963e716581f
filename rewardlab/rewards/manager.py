"""From a reward model's estimates to the reward the learner sees."""

from typing import Any, Self

import torch
from torch import Tensor

from rewardlab.config.schema import RewardConfig
from rewardlab.errors import ConfigError, DataError
from rewardlab.registry import unknown_name
from rewardlab.rewards.base import BaseRewardModel
from rewardlab.rewards.classifier import SuccessClassifier
from rewardlab.rewards.debug_images import DebugImageWriter, debug_directory
from rewardlab.rewards.loading import load_reward_model, sort_models
from rewardlab.rewards.zoo.transitions import read_images


def map_probability(
    probability: Tensor, *, reward_type: str, threshold: float, success_reward: float, fail_reward: float
) -> Tensor:
    """`binary`: success_reward if p > threshold else fail_reward; `continuous`: fail + p * (success - fail)."""
    if reward_type == "binary":
        return torch.where(probability > threshold, success_reward, fail_reward).to(probability.dtype)
    if reward_type == "continuous":
        return fail_reward + probability * (success_reward - fail_reward)
    raise ConfigError(unknown_name("reward_type", str(reward_type), ["binary", "continuous"]))


def combine_rewards(
    env_reward: Tensor, model_reward: Tensor, *, combine_mode: str, reward_weight: float, env_reward_weight: float
) -> Tensor:
    """`replace`: w * m; `add`: env + w * m; `weighted`: env_reward_weight * env + w * m."""
    if env_reward.shape != model_reward.shape:
        # Broadcasting [N] with [N, 1] would give [N, N] without a word.
        raise DataError(
            f"env rewards {list(env_reward.shape)} and model rewards {list(model_reward.shape)} differ in shape"
        )
    weighted = reward_weight * model_reward
    if combine_mode == "replace":
        return weighted
    if combine_mode == "add":
        return env_reward + weighted
    if combine_mode == "weighted":
        return env_reward_weight * env_reward + weighted
    raise ConfigError(unknown_name("combine_mode", str(combine_mode), ["replace", "add", "weighted"]))


def learner_rewards(config: RewardConfig, env_reward: Tensor, model_reward: Tensor) -> Tensor:
    """The reward the learner sees, from the environment's and the model's of the same steps."""
    return combine_rewards(
        env_reward.float(),
        model_reward,
        combine_mode=config.combine_mode,
        reward_weight=config.reward_weight,
        env_reward_weight=config.env_reward_weight,
    )


def placed_rewards(
    config: RewardConfig, env_reward: Tensor, model_reward: Tensor, ended: Tensor | None = None
) -> Tensor:
    """The model's rewards of the frames it scored, in the shape of `env_reward`.

    `per_step`: one for each element of `env_reward`. `terminal`: one for each true entry of `ended`, in order; 0
    elsewhere.
    """
    scored = model_reward.flatten().float().to(env_reward.device)
    if config.reward_mode == "per_step":
        if scored.numel() != env_reward.numel():
            raise DataError(f"{scored.numel()} frames for {env_reward.numel()} rewards; per_step scores each step")
        return scored.reshape(env_reward.shape)
    if ended is None or ended.shape != env_reward.shape:
        found = None if ended is None else list(ended.shape)
        raise DataError(f"terminal mode needs `ended` of shape {list(env_reward.shape)}; found {found}")
    if len(scored) != int(ended.sum()):
        raise DataError(f"{len(scored)} final frames for {int(ended.sum())} episodes that ended; expected one each")
    placed = torch.zeros(env_reward.shape, device=env_reward.device)
    placed[ended.bool()] = scored
    return placed


class RewardManager:
    """When to score, how to map, how to combine. The model only ever sees frames it is given.

    Success classifiers give probabilities, which are mapped (`reward_type`, threshold, success and fail reward); what
    other reward models estimate is taken as it is.
    """

    def __init__(
        self,
        model: BaseRewardModel,
        config: RewardConfig,
        debug_images: DebugImageWriter | None = None,
        *,
        weight: float = 1.0,
    ) -> None:
        if config.reward_mode not in ("per_step", "terminal"):
            raise ConfigError(unknown_name("reward_mode", str(config.reward_mode), ["per_step", "terminal"]))
        self.model = model
        self.config = config
        self.debug_images = debug_images
        self.weight = weight  # of this model among several
        # An unknown name must not wait for the first reward.
        self.map(torch.zeros(0))
        self.combine(torch.zeros(0), torch.zeros(0))

    @classmethod
    def from_config(cls, config: RewardConfig, device: str | torch.device = "cpu") -> Self:
        """Load the success classifier, or the only model; prepare debug images if a directory for them is set."""
        wanted = config.models[0] if len(config.models) == 1 else sort_models(config).classifier
        if wanted is None:
            raise ConfigError("reward.model: several reward models, and none of them is a success classifier")
        model = load_reward_model(wanted.checkpoint_path, overrides=wanted, device=device)
        directory = debug_directory(wanted.debug_save_dir)
        return cls(model, config, DebugImageWriter(directory) if directory else None, weight=wanted.weight)

    @property
    def threshold(self) -> float:
        """The config's threshold; null means the one stored with the model."""
        if self.config.reward_threshold is not None:
            return self.config.reward_threshold
        return self.model.threshold if isinstance(self.model, SuccessClassifier) else 0.5

    def to_device(self, device: str | torch.device) -> Self:
        self.model.to(device)
        return self

    def map(self, probability: Tensor) -> Tensor:
        return map_probability(
            probability,
            reward_type=self.config.reward_type,
            threshold=self.threshold,
            success_reward=self.config.success_reward,
            fail_reward=self.config.fail_reward,
        )

    def combine(self, env_reward: Tensor, model_reward: Tensor) -> Tensor:
        return learner_rewards(self.config, env_reward, model_reward)

    def score(self, observations: Any) -> Tensor:
        """What the model says of each frame: a classifier's probability (256 frames at a time), or its estimate."""
        if not isinstance(self.model, SuccessClassifier):
            return estimated_rewards(self.model.estimate(observations))
        probability = checked_scores(self.model.probabilities(observations))
        if self.debug_images is not None:
            self._show(self.model, observations, probability)
        return probability

    def reward_of(self, score: Tensor) -> Tensor:
        """The model's reward for its score: a probability is mapped, another estimate is a reward already."""
        return self.weight * (self.map(score) if isinstance(self.model, SuccessClassifier) else score)

    def compute_rewards(self, observations: Any) -> Tensor:
        """The model's reward of each frame, with its own weight, not yet combined with the environment's."""
        return self.reward_of(self.score(observations))

    def rewards(self, env_reward: Tensor, observations: Any, ended: Tensor | None = None) -> Tensor:
        """The reward the learner sees, in the shape of `env_reward`. Add bootstrapping on truncation after this.

        `per_step`: `observations` are the frames that followed the actions, one for each element of `env_reward`.
        `terminal`: `ended` is true where an episode ended, and `observations` are the true last frames of those
        episodes alone (`final_obs`, not the first frame after the reset), in the order of `ended`; None if none ended.
        """
        needed = self.config.reward_mode == "per_step" or (ended is not None and bool(ended.any()))
        scored = self.compute_rewards(observations) if needed else torch.zeros(0)
        return learner_rewards(self.config, env_reward, placed_rewards(self.config, env_reward, scored, ended))

    def _show(self, model: SuccessClassifier, observations: Any, probability: Tensor) -> None:
        assert self.debug_images is not None
        images = model.network.preprocess.select(read_images(observations))[model.image_keys[0]]
        self.debug_images.add(images.reshape(-1, *images.shape[-3:]), probability.flatten(), self.threshold)


def estimated_rewards(estimated: Any) -> Tensor:
    """The rewards in what a model's `estimate` gave back: a batch, or a list of dictionaries."""
    if not isinstance(estimated, list):
        return checked_scores(estimated["reward"])
    return checked_scores(torch.stack([torch.as_tensor(item["reward"]).reshape(()) for item in estimated]))


def checked_scores(scores: Tensor) -> Tensor:
    bad = scores.flatten().isnan().nonzero()
    if len(bad):
        raise DataError(
            f"the reward model gave NaN for row {int(bad[0])} of {scores.numel()} ({len(bad)} in all): its weights "
            "are broken; use an earlier checkpoint"
        )
    return scores
