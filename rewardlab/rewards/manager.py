"""Where a reward comes from: `compute_reward` sums what the terms of a run make of their models' estimates and combines
the sum with the environment's reward. Rollouts, stored transitions, demonstrations and Gymnasium wrappers all use it.

A term is a reward model with the rules for using it: what it looks at, at which steps it is asked, whether it is asked
again about stored transitions, how its estimate becomes a reward, and its weight. What a model says of a step is a
column of the batch, `estimate.<term>`, beside the version of the model that said it, `model_version.<term>`. The
estimate is NaN at steps about which the model was not asked.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rewardlab.compat.ding_models import adapted
from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.errors import ConfigError, DataError
from rewardlab.registry import unknown_name
from rewardlab.rewards.base import BaseRewardModel, LooksAt
from rewardlab.rewards.debug_images import DebugImageWriter, debug_directory
from rewardlab.rewards.loading import (
    create_reward_model,
    load_reward_model,
    model_class,
    named_models,
    without_expert_data,
)
from rewardlab.types import Batch

ESTIMATE, MODEL_VERSION = "estimate", "model_version"  # columns of a batch, with one part for each term

# What a model over transitions may look at, besides the environment's reward.
SHOWN = ("observation", "next_observation", "action", "terminated", "truncated", "log_prob")


class ProbabilityMap(NamedTuple):
    """How a probability of success becomes a reward.

    `binary`: success_reward if p > threshold else fail_reward; `continuous`: fail + p * (success - fail).
    """

    reward_type: str
    threshold: float
    success_reward: float
    fail_reward: float

    def __call__(self, probability: Tensor) -> Tensor:
        if self.reward_type == "binary":
            paid = torch.where(probability > self.threshold, self.success_reward, self.fail_reward)
            return paid.to(probability.dtype)
        if self.reward_type == "continuous":
            return self.fail_reward + probability * (self.success_reward - self.fail_reward)
        raise ConfigError(unknown_name("reward_type", str(self.reward_type), ["binary", "continuous"]))


@dataclass(frozen=True)
class RewardTerm:
    """What one reward model needs, and how its estimates enter the reward."""

    name: str
    looks_at: LooksAt = "transitions"
    cameras: tuple[str, ...] = ()  # whose frames it looks at
    asked: Literal["every_step", "last_step"] = "every_step"
    asked_again: Literal["never", "when_changed", "when_drawn"] = "never"  # about stored transitions
    probability_map: ProbabilityMap | None = None  # None: the estimate is a reward already
    weight: float = 1.0
    learns: bool = False  # while the policy trains
    ends_episode: bool = False  # a frame that it calls a success ends the episode

    def asked_at(self, ended: Tensor) -> Tensor:
        """Of steps that ended an episode or not: about which of them the model is asked."""
        return ended if self.asked == "last_step" else torch.ones_like(ended)

    def reward(self, estimate: Tensor, ended: Tensor) -> Tensor:
        """The weighted reward of each step; 0 where the model was not asked."""
        mapped = estimate if self.probability_map is None else self.probability_map(estimate)
        return self.weight * torch.where(self.asked_at(ended) & ~estimate.isnan(), mapped, 0.0)


@dataclass(frozen=True)
class RewardRule:
    """The terms of a reward, and how their sum m is combined with the environment's reward e.

    `replace`: w * m; `add`: e + w * m; `weighted`: env_reward_weight * e + w * m. Without terms the reward is e.
    """

    terms: tuple[RewardTerm, ...] = ()
    combine_mode: str = "replace"
    reward_weight: float = 1.0
    env_reward_weight: float = 0.0

    def at_last_steps_only(self) -> "RewardRule":
        """The same rule with frames judged at the last step of each episode alone."""
        return replace(self, terms=tuple(replace(t, asked="last_step") if t.cameras else t for t in self.terms))


def compute_reward(rule: RewardRule, batch: Batch) -> Tensor:
    """The reward that the learner maximises, from a batch's columns env_reward, estimate, terminated and truncated.

    Bootstrapping at time limits is added later, by the learner.
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
    """The sum of the terms, before it is combined with the environment's reward."""
    ended = batch["terminated"] | batch["truncated"]
    total = torch.zeros(batch.batch_size)
    for term in rule.terms:
        total = total + term.reward(batch[ESTIMATE, term.name], ended)
    return total


def place_estimates(estimates: Tensor, asked: Tensor) -> Tensor:
    """A column in the shape of `asked` with the estimates, in order, where it is true and NaN elsewhere."""
    if estimates.numel() != int(asked.sum()):
        raise DataError(f"{estimates.numel()} estimates for {int(asked.sum())} steps; expected one each")
    column = torch.full(asked.shape, math.nan)
    column[asked] = estimates.flatten().float()
    return column


class TermFacts(NamedTuple):
    """What a training run must know of a term whose model is in another process."""

    term: RewardTerm
    metrics: dict[str, Any]  # the model's figures on held-out episodes; {} if it came without


class RewardManager:
    """The reward models of a run in one process, and the rule by which their estimates become a reward.

    A single model may be given as it is; its term has the name of its type.
    """

    def __init__(
        self,
        models: BaseRewardModel | Mapping[str, BaseRewardModel],
        config: RewardConfig,
        wanted: Mapping[str, RewardModelConfig] | None = None,
        *,
        off_policy: bool = False,
        action_space: Space[Any] | None = None,
    ) -> None:
        """`wanted` has what the config says of each model. `action_space`: actions are clipped to it for the models."""
        if config.reward_mode not in ("per_step", "terminal"):
            raise ConfigError(unknown_name("reward_mode", str(config.reward_mode), ["per_step", "terminal"]))
        self.models = {models.model_type: models} if isinstance(models, BaseRewardModel) else dict(models)
        self.config = config
        self.wanted = {name: RewardModelConfig() for name in self.models} | dict(wanted or {})
        self.off_policy = off_policy
        self.versions = dict.fromkeys(self.models, 0)  # how often each model has changed in this run
        self.debug_images: dict[str, DebugImageWriter] = {}
        box = action_space if isinstance(action_space, spaces.Box) else None
        self._bounds = None if box is None else (torch.as_tensor(box.low), torch.as_tensor(box.high))
        for term in self.terms:  # what cannot be must not wait for the first reward
            if term.probability_map is not None:
                term.probability_map(torch.zeros(0))
            elif term.ends_episode:
                raise ConfigError(
                    f"reward.model.ends_episode: '{term.name}' gives no probability of success to end an episode by"
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
    ) -> Self:
        """Load the models of a config, or those with these names.

        With the observation and action space of a `task`, models that have no checkpoint are built for it, to be given
        their weights by `load_state_dict`.
        """
        wanted = named_models(config)
        if names is not None:
            wanted = {name: one for name, one in wanted.items() if name in names}
        models = {}
        for name, one in wanted.items():
            if task is None or model_class(one).gives_probability:
                models[name] = adapted(load_reward_model(one.checkpoint_path, overrides=one, device=device))
            else:
                models[name] = adapted(create_reward_model(without_expert_data(one), device)).bind(*task)
        manager = cls(models, config, wanted, off_policy=off_policy, action_space=None if task is None else task[1])
        classifiers = [name for name, model in models.items() if model.gives_probability]
        for name in classifiers:
            directory = debug_directory(wanted[name].debug_save_dir)
            if directory is not None:
                place = directory if len(classifiers) == 1 else directory / name
                manager.debug_images[name] = DebugImageWriter(place)
        return manager

    @property
    def model(self) -> BaseRewardModel:
        """The only model."""
        (model,) = self.models.values()
        return model

    @property
    def threshold(self) -> float:
        """Of the only model: the config's threshold, or if that is null the one stored with the model."""
        return self._threshold(self.model)

    @property
    def terms(self) -> tuple[RewardTerm, ...]:
        return tuple(self._term(name, model) for name, model in self.models.items())

    @property
    def rule(self) -> RewardRule:
        config = self.config
        return RewardRule(self.terms, config.combine_mode, config.reward_weight, config.env_reward_weight)

    def facts(self) -> dict[str, TermFacts]:
        return {term.name: TermFacts(term, dict(getattr(self.models[term.name], "metrics", {}))) for term in self.terms}

    def to_device(self, device: str | torch.device) -> Self:
        for model in self.models.values():
            model.to(device)
        return self

    def compute_rewards(self, observations: Any) -> Tensor:
        """The weighted reward of each frame, not yet combined with the environment's."""
        rewards = []
        for term in self.terms:
            estimate = self.score(term.name, observations)
            rewards.append(term.reward(estimate, torch.ones_like(estimate, dtype=torch.bool)))
        return torch.stack(rewards).sum(0)

    def score(self, name: str, data: Any) -> Tensor:
        """What one model says of frames (256 at a time) or transitions; frames may be written as debug images."""
        model = self.models[name]
        estimate = model.score(data).float().cpu()
        if name in self.debug_images:
            images = model.first_camera(data)  # type: ignore[attr-defined]
            self.debug_images[name].add(images, estimate.flatten(), self._threshold(model))
        return estimate

    def estimate(self, batch: Batch, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """What the models that look at transitions or episodes, or those of them with these names, say of a batch."""
        shown = self.shown(batch)
        return {
            name: self.score(name, shown).reshape(batch.batch_size)
            for name, model in self.models.items()
            if model.looks_at != "frames" and (names is None or name in names)
        }

    def shown(self, batch: Batch) -> Batch:
        """What models see of transitions: actions as the environment took them, and its reward unless it is combined
        with the models' later, or several models would each bring it along."""
        shown = batch.select(*SHOWN, strict=False)
        if self._bounds is not None:
            shown["action"] = shown["action"].clamp(*self._bounds)
        if self.config.combine_mode == "replace" and len(self.config.models) == 1:
            shown["reward"] = batch["env_reward"]
        return shown

    def calls_success(self, frames: Any) -> Tensor:
        """Whether any of the models that may end an episode calls each frame a success."""
        verdicts = []
        for term in self.terms:
            if term.ends_episode and term.probability_map is not None:
                verdicts.append(self.score(term.name, frames) > term.probability_map.threshold)
        return torch.stack(verdicts).any(0)

    def state_dict(self, names: Collection[str] | None = None) -> dict[str, Any]:
        """What the estimates of the models, or of those with these names, depend on."""
        chosen = self.models if names is None else names
        return {name: {"version": self.versions[name], "model": self.models[name].state_dict()} for name in chosen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of the models that are here."""
        for name in self.models.keys() & state.keys():
            self.versions[name] = state[name]["version"]
            self.models[name].load_state_dict(state[name]["model"])

    def _term(self, name: str, model: BaseRewardModel) -> RewardTerm:
        config, wanted = self.config, self.wanted[name]
        frames, learns = model.looks_at == "frames", config.cotrains(wanted)
        again: Literal["never", "when_changed", "when_drawn"] = "never"
        if self.off_policy and frames and config.relabel == "changed":
            again = "when_changed" if learns else "never"
        elif self.off_policy and model.looks_at != "episodes":
            again = "when_drawn"
        probability_map = None
        if model.gives_probability:
            probability_map = ProbabilityMap(
                config.reward_type, self._threshold(model), config.success_reward, config.fail_reward
            )
        # Beside a model that looks at frames, reward_mode is about that one.
        last_step = config.reward_mode == "terminal" and (frames or len(config.models) == 1)
        return RewardTerm(
            name,
            looks_at=model.looks_at,
            cameras=tuple(model.image_keys) if frames else (),  # type: ignore[attr-defined]
            asked="last_step" if last_step else "every_step",
            asked_again=again,
            probability_map=probability_map,
            weight=wanted.weight,
            learns=learns,
            ends_episode=wanted.ends_episode,
        )

    def _threshold(self, model: BaseRewardModel) -> float:
        if self.config.reward_threshold is not None:
            return self.config.reward_threshold
        return float(getattr(model, "threshold", 0.5))
