"""Trains the reward models of a run, and estimates rewards with those that look at transitions or whole episodes."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from gymnasium import Space
from torch import Tensor

from rewardlab.compat import ding_models
from rewardlab.config.schema import ExperimentConfig, RewardConfig, RewardModelConfig
from rewardlab.data.episode_replay import WholeEpisodes
from rewardlab.data.packed_batch import PackedBatch, unpacked
from rewardlab.devices import CPU, on_cpu
from rewardlab.errors import ConfigError
from rewardlab.rewards.base import BaseRewardModel
from rewardlab.rewards.loading import create_reward_model, model_class, named_models
from rewardlab.rewards.manager import RewardManager, RewardTerm, TermFacts
from rewardlab.types import Batch


class RolloutEstimates(NamedTuple):
    """The estimates of a rollout [T, N] by reward term, and metrics to log."""

    estimates: dict[str, Tensor]
    versions: dict[str, int]  # of the models, after training on the rollout
    metrics: dict[str, float]


class RewardTrainer:
    """Holds the reward models that learn while the policy trains, or that look at transitions or whole episodes."""

    def __init__(self, manager: RewardManager) -> None:
        self.manager = manager
        self._carried: dict[str, Any] = {}  # what models over episodes need of earlier rollouts, see `estimate_next`
        limits = [self.models[term.name].longest_episode for term in self._episode_learners]
        self._episodes = WholeEpisodes(None if None in limits else max(limits, default=None))  # type: ignore[type-var]
        self._attach_loggers()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach_loggers()  # loggers are not pickled with their models

    @classmethod
    def from_config(
        cls,
        cfg: ExperimentConfig,
        task: tuple[Space[Any], Space[Any]],
        device: torch.device = CPU,
        *,
        expert_data: Any = None,
    ) -> Self:
        """Build the models for a `task` (observation space, action space) on `device`.

        `expert_data` is for models that learn from an expert and whose config has no expert_data_path.
        """
        config, algorithm = cfg.reward, cfg.algorithm
        model_configs = {name: one for name, one in named_models(config).items() if needs_trainer(config, one)}
        models: dict[str, BaseRewardModel] = {}
        used_expert_data = expert_data is None
        for name, model_config in model_configs.items():
            model = ding_models.adapted(create_reward_model(model_config, device))
            model.check_run(config, algorithm)
            _check_trained(model, model_config, config)
            used_expert_data |= _load_expert_data(model, model_config, config, expert_data)
            if config.cotrains(model_config):
                model.prepare_cotraining(cfg.data, cfg.seed)
            models[name] = model.bind(*task)
        without_frames = all(model.looks_at != "frames" for model in models.values())
        if config.reward_mode == "terminal" and len(models) == len(config.models) and without_frames:
            raise ConfigError(
                "reward.reward_mode: found terminal, which is for models that look at frames; models over transitions "
                "score every step: set it to per_step"
            )
        if not used_expert_data:
            raise ConfigError(f"expert_data was given, but no reward model takes it: found {', '.join(models)}")
        off_policy = algorithm.off_policy is not None
        return cls(RewardManager(models, config, model_configs, off_policy=off_policy, action_space=task[1]))

    @property
    def models(self) -> dict[str, BaseRewardModel]:
        return self.manager.models

    def pretrain(self) -> dict[str, float]:
        """Train the models that learn from expert data on it and return their losses."""
        experts = {name: model for name, model in self.models.items() if model.learns_from_expert}
        if not experts:
            raise ConfigError(f"reward.pretrain: {', '.join(self.models)} does not learn from expert data")
        ready = [name for name, model in experts.items() if model.can_train()]
        if not ready:
            raise ConfigError(
                f"reward.pretrain: {', '.join(experts)} learns to tell the expert from the policy, which has not acted "
                "yet; set reward.cotrain instead"
            )
        for name in ready:
            self.models[name].train()
            self.manager.versions[name] += 1
        return self._losses()

    def update(
        self, rollout: Batch | PackedBatch, iteration: int, frames: Mapping[str, Any] | None = None
    ) -> RolloutEstimates:
        """Train the models that learn on a rollout, then estimate its rewards as `estimate_rollout` does.

        `frames`, for models that look at frames, are the images by camera and the `success` of the scored steps.
        """
        rollout = unpacked(rollout)
        inputs = self.manager.model_inputs(rollout)
        ended = self._episodes.add(inputs) if self._episode_learners else None
        data = {"frames": frames, "transitions": inputs, "episodes": ended}
        for term in self.manager.terms:
            if term.learns and data[term.looks_at] is not None:
                self.models[term.name].cotrain(data[term.looks_at], iteration)
                self.manager.versions[term.name] += 1
        metrics = self._losses()
        for term in self.manager.terms:  # as they are now: a classifier chooses its threshold again after training
            if term.probability_map is not None:
                metrics[f"reward_model/{term.name}_threshold"] = term.probability_map.threshold
            if term.learns:
                metrics |= _held_out_metrics(term.name, self.models[term.name])
        result = self.estimate_rollout(rollout)
        return result._replace(metrics=metrics | result.metrics)

    def estimate_rollout(self, rollout: Batch | PackedBatch) -> RolloutEstimates:
        """Estimate the rewards of a rollout with the models that look at transitions or episodes.

        The rollout continues the last one unless `begin` was called.
        """
        rollout = unpacked(rollout)
        estimates = self.manager.estimate(
            rollout, [n for n, model in self.models.items() if model.looks_at != "episodes"]
        )
        for name, model in self.models.items():
            if model.looks_at == "episodes":
                carried = self._carried.get(name)
                estimates[name], self._carried[name] = self.manager.estimate_next(name, rollout, carried)
        metrics = {}
        for name, estimate in estimates.items():
            metrics[f"reward_model/{name}_mean"] = float(estimate.mean())
            metrics[f"reward_model/{name}_std"] = float(estimate.std(unbiased=False))
        return RolloutEstimates(estimates, dict(self.manager.versions), metrics)

    def begin(self) -> None:
        """Drop unfinished episodes, because all environments were reset."""
        self._carried.clear()
        self._episodes.forget()

    def facts(self) -> dict[str, TermFacts]:
        """Return the terms of the models and the metrics of their checkpoints."""
        return self.manager.facts()

    def state_dict(self, names: Collection[str] | None = None) -> dict[str, Any]:
        """Return the weights of the models, or of those with these names, for copies of them in other workers."""
        return self.manager.state_dict(names)

    def training_state(self) -> dict[str, Any]:
        """Return the complete training state: weights, optimizers, random generators and collected data."""
        return {
            name: {"version": self.manager.versions[name], "model": on_cpu(model.training_state())}
            for name, model in self.models.items()
        }

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        for name, model in self.models.items():
            self.manager.versions[name] = state[name]["version"]
            model.load_training_state(state[name]["model"])

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint of each model to `directory`/<name of its term>."""
        for name, model in self.models.items():
            model.save(Path(directory) / name)

    @property
    def _episode_learners(self) -> list[RewardTerm]:
        return [term for term in self.manager.terms if term.learns and term.looks_at == "episodes"]

    def _attach_loggers(self) -> None:
        self._scalars = {name: ScalarMeans() for name in self.models}
        for name, model in self.models.items():
            model.tb_logger = self._scalars[name]

    def _losses(self) -> dict[str, float]:
        """Return the mean losses that models logged since the last call, each under the name of its term."""
        losses: dict[str, float] = {}
        for name, scalars in self._scalars.items():
            for tag, mean in scalars.means().items():
                # Two models may be of the same type.
                unique = tag.replace(f"/{self.models[name].model_type}_", f"/{name}_", 1)
                losses[f"{unique}_{name}" if unique in losses else unique] = mean
        return losses


class ScalarMeans:
    """A logger for reward models that averages what they log over an iteration."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self._values.setdefault(tag, []).append(float(scalar_value))

    def means(self) -> dict[str, float]:
        """Return the mean of every scalar since the last call."""
        values, self._values = self._values, {}
        return {tag: sum(numbers) / len(numbers) for tag, numbers in values.items()}


def _held_out_metrics(name: str, model: BaseRewardModel) -> dict[str, float]:
    """Return the FPR, recall and ROC-AUC of a classifier on held-out episodes, as of its last calibration."""
    estimates = getattr(model, "metrics", {}).get("estimates", {})
    values = {key: estimates.get(key, {}).get("value") for key in ("fpr", "recall", "roc_auc")}
    return {f"reward_model/{name}_valid_{key}": value for key, value in values.items() if value is not None}


def needs_trainer(config: RewardConfig, model_config: RewardModelConfig) -> bool:
    """Return whether a model of a run belongs to the RewardTrainer and not only to the workers that score frames."""
    return config.cotrains(model_config) or model_class(model_config).looks_at != "frames"


def _check_trained(model: BaseRewardModel, model_config: RewardModelConfig, config: RewardConfig) -> None:
    trains = config.cotrains(model_config) or config.pretrain
    if model.begins_untrained and not trains and model_config.checkpoint_path is None:
        raise ConfigError(
            f"reward.cotrain: found false, but reward model '{model.model_type}' begins untrained; set reward.cotrain "
            "or reward.pretrain, or give its checkpoint_path"
        )


def _load_expert_data(
    model: BaseRewardModel, model_config: RewardModelConfig, config: RewardConfig, expert_data: Any
) -> bool:
    """Load expert data unless `create_reward_model` did; return whether `expert_data` was used."""
    path = model_config.options.get("expert_data_path")
    if not model.learns_from_expert or (path is not None and model_config.checkpoint_path is None):
        return False
    if model_config.checkpoint_path is not None and not (config.cotrains(model_config) or config.pretrain):
        return False  # a trained model that does not learn needs no expert data
    source = expert_data if path is None else path
    if source is not None:
        model.load_expert_data(source)
    return source is expert_data
