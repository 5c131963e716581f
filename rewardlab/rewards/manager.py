"""Turns the estimates of reward models into the reward that the learner maximises.

`compute_reward` sums the rewards of all terms and combines the sum with the environment's reward. Rollouts, stored
transitions, demonstrations and Gymnasium wrappers all use it.

A term is a reward model with the rules for using it: what it looks at, which steps it scores, whether it scores stored
transitions again, how its estimate becomes a reward, and its weight. The estimate of a step is a column of the batch,
`estimate.<term>`, next to the version of the model, `model_version.<term>`. It is NaN at steps that are not scored.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rewardlab.compat import ding_models
from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.devices import on_cpu
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_sizes import FrameSize
from rewardlab.registry import unknown_name
from rewardlab.rewards.base import BaseRewardModel, LooksAt, checked_scores
from rewardlab.rewards.classifier import SuccessClassifier
from rewardlab.rewards.debug_images import DebugImageWriter, debug_directory
from rewardlab.rewards.loading import create_reward_model, load_reward_model, model_class, named_models
from rewardlab.types import Batch

ESTIMATE, MODEL_VERSION = "estimate", "model_version"  # columns of a batch, with one part for each term

# The columns that a model over transitions may look at, besides the environment's reward.
MODEL_INPUTS = ("observation", "next_observation", "action", "terminated", "truncated", "log_prob")


class ProbabilityMap(NamedTuple):
    """Maps a probability of success to a reward.

    `binary`: success_reward if p > threshold else fail_reward; `continuous`: fail + p * (success - fail).
    """

    reward_type: str
    threshold: float
    success_reward: float
    fail_reward: float

    def __call__(self, probability: Tensor) -> Tensor:
        if self.reward_type == "binary":
            reward = torch.where(probability > self.threshold, self.success_reward, self.fail_reward)
            return reward.to(probability.dtype)
        if self.reward_type == "continuous":
            return self.fail_reward + probability * (self.success_reward - self.fail_reward)
        raise ConfigError(unknown_name("reward_type", str(self.reward_type), ["binary", "continuous"]))


@dataclass(frozen=True)
class RewardTerm:
    """One reward model of a run: what it needs, and how its estimates enter the reward."""

    name: str
    looks_at: LooksAt = "transitions"
    cameras: tuple[str, ...] = ()  # cameras whose frames the model looks at
    frame_sizes: Mapping[str, FrameSize] = field(default_factory=dict)  # by camera: the size at which it wants them
    scored: Literal["every_step", "last_step"] = "every_step"  # steps of an episode that the model scores
    rescored: Literal["never", "when_changed", "when_sampled"] = "never"  # when it scores stored transitions again
    probability_map: ProbabilityMap | None = None  # None: the estimate is already a reward
    weight: float = 1.0
    learns: bool = False  # the model is trained while the policy trains
    ends_episode: bool = False  # a frame that it predicts to be a success ends the episode

    def scored_steps(self, ended: Tensor) -> Tensor:
        """Return a mask of the steps that the model scores; `ended` marks the last steps of episodes."""
        return ended if self.scored == "last_step" else torch.ones_like(ended)

    def predicts_success(self, estimate: Tensor) -> Tensor:
        """Return whether each probability is above the threshold; false where the model gives no probabilities."""
        return estimate > (math.inf if self.probability_map is None else self.probability_map.threshold)

    def reward(self, estimate: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
        """Return the weighted reward of each step; 0 at steps that are not scored.

        With `ends_episode`, a claim of success pays where it ends the episode. If `success_hold_steps` claims in a row
        are needed and each paid, a policy would gain most by breaking off again and again before the last of them.
        """
        mapped = estimate if self.probability_map is None else self.probability_map(estimate)
        if self.ends_episode and self.probability_map is not None and self.probability_map.reward_type == "binary":
            mapped = torch.where(terminated, mapped, self.probability_map.fail_reward)
        return self.weight * torch.where(self.scored_steps(terminated | truncated) & ~estimate.isnan(), mapped, 0.0)


@dataclass(frozen=True)
class RewardRule:
    """The terms of a reward, and how their sum m is combined with the environment's reward e.

    `replace`: w * m; `add`: e + w * m; `weighted`: env_reward_weight * e + w * m. Without terms the reward is e.
    """

    terms: tuple[RewardTerm, ...] = ()
    combine_mode: str = "replace"
    reward_weight: float = 1.0
    env_reward_weight: float = 0.0

    @classmethod
    def from_config(cls, terms: Iterable[RewardTerm], config: RewardConfig) -> "RewardRule":
        """Return the rule that combines these terms as the config says."""
        return cls(tuple(terms), config.combine_mode, config.reward_weight, config.env_reward_weight)

    def at_last_steps_only(self) -> "RewardRule":
        """Return the same rule, but with only the last frame of each episode scored."""
        return replace(self, terms=tuple(replace(t, scored="last_step") if t.cameras else t for t in self.terms))


def compute_reward(rule: RewardRule, batch: Batch) -> Tensor:
    """Return the reward that the learner maximises.

    It is computed from the columns env_reward, estimate, terminated and truncated of the batch. Bootstrapping at time
    limits is added later, by the learner.
    """
    env_reward: Tensor = batch["env_reward"].float()
    if not rule.terms:
        return env_reward
    weighted = rule.reward_weight * model_reward(rule, batch)
    if rule.combine_mode == "replace":
        return weighted
    if rule.combine_mode == "add":
        return env_reward + weighted
    if rule.combine_mode == "weighted":
        return rule.env_reward_weight * env_reward + weighted
    raise ConfigError(unknown_name("combine_mode", str(rule.combine_mode), ["replace", "add", "weighted"]))


def model_reward(rule: RewardRule, batch: Batch) -> Tensor:
    """Return the sum of the terms, before it is combined with the environment's reward."""
    total = torch.zeros(batch.batch_size)
    for term in rule.terms:
        total = total + term.reward(batch[ESTIMATE, term.name], batch["terminated"], batch["truncated"])
    return total


def place_estimates(estimates: Tensor, scored: Tensor) -> Tensor:
    """Return a column with the estimates, in order, at the steps that the mask `scored` marks, and NaN elsewhere."""
    if estimates.numel() != int(scored.sum()):
        raise DataError(f"{estimates.numel()} estimates for {int(scored.sum())} steps; expected one each")
    column = torch.full(scored.shape, math.nan)
    column[scored] = estimates.flatten().float()
    return column


class TermFacts(NamedTuple):
    """A reward term and the metrics of its model, for a training loop whose models are in other processes."""

    term: RewardTerm
    metrics: dict[str, Any]  # on held-out episodes, from the checkpoint; {} if it has none


class SuccessVerdict(NamedTuple):
    """What the models that end episodes say of frames [n]."""

    success: Tensor  # bool: one of the models predicts success
    probability: Tensor  # of the first model
    threshold: float  # of the first model


class RewardManager:
    """Holds reward models of a run and turns their estimates into rewards.

    A single model may be passed without a name; the name of its term is its model type.
    """

    def __init__(
        self,
        models: BaseRewardModel | Mapping[str, BaseRewardModel],
        config: RewardConfig,
        model_configs: Mapping[str, RewardModelConfig] | None = None,
        *,
        off_policy: bool = False,
        action_space: Space[Any] | None = None,
    ) -> None:
        """Build the terms of the models; models see actions clipped to `action_space`, if it is given."""
        if config.reward_mode not in ("per_step", "terminal"):
            raise ConfigError(unknown_name("reward_mode", str(config.reward_mode), ["per_step", "terminal"]))
        self.models = {models.model_type: models} if isinstance(models, BaseRewardModel) else dict(models)
        self.config = config
        self.model_configs = {name: RewardModelConfig() for name in self.models} | dict(model_configs or {})
        self.off_policy = off_policy
        self.versions = dict.fromkeys(self.models, 0)  # how often each model has changed in this run
        self.debug_images: dict[str, DebugImageWriter] = {}
        for model in self.models.values():
            # A model that was loaded with another backend keeps it.
            if isinstance(model, SuccessClassifier) and config.backend != "torch":
                model.use_backend(config.backend)
        self._bounds: tuple[Tensor, Tensor] | None = None
        if isinstance(action_space, spaces.Box):
            self._bounds = torch.as_tensor(action_space.low), torch.as_tensor(action_space.high)
        for term in self.terms:  # find wrong settings now and not with the first reward
            if term.probability_map is not None:
                term.probability_map(torch.zeros(0))
            elif term.ends_episode:
                raise ConfigError(
                    f"reward.model.ends_episode: found true for '{term.name}', which gives no probability of success; "
                    "only success classifiers can end episodes"
                )

    @classmethod
    def from_config(
        cls,
        config: RewardConfig,
        device: str | torch.device = "cpu",
        *,
        names: Collection[str] | None = None,
        task: tuple[Space[Any], Space[Any]] | None = None,
        off_policy: bool = False,
        debug_images: bool = True,
    ) -> Self:
        """Load the models of a config, or only those of the terms with these names.

        With a `task` (observation space, action space), models without a checkpoint are built for it; their weights
        are loaded later with `load_state_dict`. Without `debug_images` none are written, whatever the config says.
        """
        model_configs = {name: cfg for name, cfg in named_models(config).items() if names is None or name in names}
        models = {}
        for name, cfg in model_configs.items():
            if task is None or model_class(cfg).gives_probability:
                models[name] = ding_models.adapted(load_reward_model(cfg.checkpoint_path, overrides=cfg, device=device))
            else:
                # Whoever trains the model has its expert data.
                options = {key: option for key, option in cfg.options.items() if key != "expert_data_path"}
                models[name] = ding_models.adapted(create_reward_model(replace(cfg, options=options), device)).bind(
                    *task
                )
        action_space = None if task is None else task[1]
        manager = cls(models, config, model_configs, off_policy=off_policy, action_space=action_space)
        classifiers = [name for name, model in models.items() if model.gives_probability]
        for name in classifiers:
            directory = debug_directory(model_configs[name].debug_save_dir)
            if directory is not None and task is None and debug_images:  # not by the learner, which scores them again
                manager.debug_images[name] = DebugImageWriter(directory / name if len(classifiers) > 1 else directory)
        return manager

    @property
    def model(self) -> BaseRewardModel:
        """Return the only model; an error if there are several."""
        (model,) = self.models.values()
        return model

    @property
    def threshold(self) -> float:
        """Return the threshold of the only model: `reward.reward_threshold`, or the stored one if that is null."""
        return self._threshold(self.model)

    @property
    def terms(self) -> tuple[RewardTerm, ...]:
        return tuple(self._term(name, model) for name, model in self.models.items())

    @property
    def rule(self) -> RewardRule:
        return RewardRule.from_config(self.terms, self.config)

    def facts(self) -> dict[str, TermFacts]:
        """Return the terms of the models and the metrics of their checkpoints."""
        return {term.name: TermFacts(term, dict(getattr(self.models[term.name], "metrics", {}))) for term in self.terms}

    def to_device(self, device: str | torch.device) -> Self:
        """Move all models to a device."""
        for model in self.models.values():
            model.to(device)
        return self

    def compute_rewards(self, observations: Any) -> Tensor:
        """Return the weighted reward of each frame, not yet combined with the environment's reward."""
        rewards = []
        for term in self.terms:
            estimate = self.score(term.name, observations)
            ended = torch.ones_like(estimate, dtype=torch.bool)
            rewards.append(term.reward(estimate, terminated=ended, truncated=~ended))
        return torch.stack(rewards).sum(0)

    def score(self, name: str, data: Any, position: int | None = None) -> Tensor:
        """Return the estimates of one model for frames or transitions; writes debug images if the config says so.

        `position` is that of the first frame among all frames of a run; it numbers debug images.
        """
        model = self.models[name]
        estimate = model.score(data).float().cpu()
        if name in self.debug_images:
            images = model.first_camera(data)  # type: ignore[attr-defined]
            self.debug_images[name].add(images, estimate.flatten(), self._threshold(model), position)
        return estimate

    def estimate(self, batch: Batch, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Return the estimates of the models that look at transitions or episodes, or of those with these names."""
        inputs = self.model_inputs(batch)
        return {
            name: self.score(name, inputs).reshape(batch.batch_size)
            for name, model in self.models.items()
            if model.looks_at != "frames" and (names is None or name in names)
        }

    def estimate_next(self, name: str, rollout: Batch, carried: Any) -> tuple[Tensor, Any]:
        """Return the estimates of one model for the rollout after the last one; see `BaseRewardModel.estimate_next`."""
        estimated, carried = self.models[name].estimate_next(self.model_inputs(rollout), carried)
        return checked_scores(estimated["reward"]).float().cpu().reshape(rollout.batch_size), carried

    def model_inputs(self, batch: Batch) -> Batch:
        """Return the columns of transitions that models see, with clipped actions.

        They include the environment's reward, as `reward`, only if it is not combined with the models' reward later
        and there is one model: otherwise it would be counted several times.
        """
        inputs = batch.select(*MODEL_INPUTS, strict=False)
        if self._bounds is not None:
            inputs["action"] = inputs["action"].clamp(*self._bounds)
        if self.config.combine_mode == "replace" and len(self.config.models) == 1:
            inputs["reward"] = batch["env_reward"]
        return inputs

    def judge_success(self, frames: Any) -> "SuccessVerdict":
        """Return what the models that end episodes say of each frame; each scores it once."""
        terms = [term for term in self.terms if term.ends_episode]
        estimates = [self.score(term.name, frames) for term in terms]
        success = torch.stack([t.predicts_success(e) for t, e in zip(terms, estimates, strict=True)]).any(0)
        return SuccessVerdict(success, estimates[0], self._threshold(self.models[terms[0].name]))

    def state_dict(self, names: Collection[str] | None = None) -> dict[str, Any]:
        """Return the weights (on the CPU) and versions of the models, or of those with these names."""
        chosen = self.models if names is None else names
        return {
            name: {"version": self.versions[name], "model": on_cpu(self.models[name].state_dict())} for name in chosen
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the weights and versions of the models that both this manager and `state` have."""
        for name in self.models.keys() & state.keys():
            self.versions[name] = state[name]["version"]
            self.models[name].load_state_dict(state[name]["model"])

    def _term(self, name: str, model: BaseRewardModel) -> RewardTerm:
        config, model_config = self.config, self.model_configs[name]
        frames, learns = model.looks_at == "frames", config.cotrains(model_config)
        rescored: Literal["never", "when_changed", "when_sampled"] = "never"
        if self.off_policy and frames and config.relabel == "changed":
            rescored = "when_changed" if learns else "never"
        elif self.off_policy and model.looks_at != "episodes":
            rescored = "when_sampled"
        probability_map = None
        if model.gives_probability:
            probability_map = ProbabilityMap(
                config.reward_type, self._threshold(model), config.success_reward, config.fail_reward
            )
        # With several models, reward_mode applies to those that look at frames.
        last_step = config.reward_mode == "terminal" and (frames or len(config.models) == 1)
        return RewardTerm(
            name,
            looks_at=model.looks_at,
            cameras=tuple(model.image_keys) if frames else (),  # type: ignore[attr-defined]
            frame_sizes=_frame_sizes(model) if frames else {},
            scored="last_step" if last_step else "every_step",
            rescored=rescored,
            probability_map=probability_map,
            weight=model_config.weight,
            learns=learns,
            ends_episode=model_config.ends_episode,
        )

    def _threshold(self, model: BaseRewardModel) -> float:
        if self.config.reward_threshold is not None:
            return self.config.reward_threshold
        return float(getattr(model, "threshold", 0.5))


def _frame_sizes(model: BaseRewardModel) -> dict[str, FrameSize]:
    """Return the size at which a model wants the frames of each camera."""
    if isinstance(model, SuccessClassifier):
        return model.frame_sizes
    size = getattr(model, "image_size", None)  # of a model that is defined elsewhere: any frame is resized to it
    cameras: tuple[str, ...] = tuple(model.image_keys)  # type: ignore[attr-defined]
    return {} if size is None else dict.fromkeys(cameras, FrameSize(size[1], size[2], resize="allow"))
