"""Trains the reward models of a run, and asks those that look at transitions or whole episodes."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from gymnasium import Space
from tensordict import TensorDict
from torch import Tensor

from rewardlab.compat.ding_models import adapted
from rewardlab.config.schema import ExperimentConfig, RewardConfig, RewardModelConfig
from rewardlab.data.episode_replay import WholeEpisodes
from rewardlab.errors import ConfigError
from rewardlab.rewards.base import BaseRewardModel
from rewardlab.rewards.loading import create_reward_model, model_class, named_models
from rewardlab.rewards.manager import SHOWN, RewardManager, TermFacts
from rewardlab.types import Batch


class Judgement(NamedTuple):
    """What the models say of a rollout [T, N], by term, and figures to log."""

    estimates: dict[str, Tensor]
    versions: dict[str, int]  # of the models, after what they learned from the rollout
    figures: dict[str, float]


class RewardTrainer:
    """Of a run's models, those that learn while the policy does and those that do not look at single frames."""

    def __init__(self, manager: RewardManager) -> None:
        self.manager = manager
        self._unfinished: Batch | None = None  # steps [T, N] of episodes that began in earlier rollouts
        self._episodes = WholeEpisodes()  # for models that learn from whole ones
        self._attach_loggers()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach_loggers()  # models do not take their logger along to another process

    @classmethod
    def from_config(
        cls,
        cfg: ExperimentConfig,
        task: tuple[Space[Any], Space[Any]],
        *,
        device: str = "cpu",
        expert_data: Any = None,
    ) -> Self:
        """Build the models for the spaces of a `task`; `expert_data` is for those whose config names none."""
        config, algorithm = cfg.reward, cfg.algorithm
        wanted = {name: one for name, one in named_models(config).items() if needs_trainer(config, one)}
        models: dict[str, BaseRewardModel] = {}
        taken = expert_data is None
        for name, one in wanted.items():
            model = adapted(create_reward_model(one, device))
            model.check_run(config, algorithm)
            _check_trained(model, one, config)
            taken |= _give_expert_data(model, one, config, expert_data)
            if config.cotrains(one):
                model.prepare_cotraining(cfg.data, cfg.seed)
            models[name] = model.bind(*task)
        if config.reward_mode == "terminal" and len(models) == len(config.models) and not _any_frames(models):
            raise ConfigError(
                "reward.reward_mode: found terminal, which is for models that look at frames; models over transitions "
                "judge every step: set it to per_step"
            )
        if not taken:
            raise ConfigError(f"expert_data was given, but no reward model takes it: found {', '.join(models)}")
        off_policy = algorithm.off_policy is not None
        return cls(RewardManager(models, config, wanted, off_policy=off_policy, action_space=task[1]))

    @property
    def models(self) -> dict[str, BaseRewardModel]:
        return self.manager.models

    def pretrain(self) -> dict[str, float]:
        """Train the models that learn from expert data on it; the losses."""
        experts = {name: model for name, model in self.models.items() if model.learns_from_expert}
        if not experts:
            raise ConfigError(f"reward.pretrain: {', '.join(self.models)} does not learn from expert data")
        ready = [name for name, model in experts.items() if model.can_train()]
        if not ready:
            raise ConfigError(
                f"reward.pretrain: {', '.join(experts)} learns to tell the expert from the policy, which has done "
                "nothing yet; set reward.cotrain instead"
            )
        for name in ready:
            self.models[name].train()
            self.manager.versions[name] += 1
        return self._losses()

    def update(self, rollout: Batch, iteration: int, frames: Mapping[str, Any] | None = None) -> Judgement:
        """Train on what the policy did (collect, train, clear where it is time to), then judge it.

        `frames` are the pictures by camera and the `success` of the steps that have a frame, for models that look at
        frames: these have judged the rollout already.
        """
        shown = self.manager.shown(rollout)
        ended = self._episodes.add(shown) if self._looks_at_episodes else None
        data = {"frames": frames, "transitions": shown, "episodes": ended}
        for term in self.manager.terms:
            if term.learns and data[term.looks_at] is not None:
                self.models[term.name].cotrain(data[term.looks_at], iteration)
                self.manager.versions[term.name] += 1
        losses = self._losses()
        judgement = self.judge(rollout)
        return judgement._replace(figures=losses | judgement.figures)

    def judge(self, rollout: Batch) -> Judgement:
        """What the models that do not look at frames say of a rollout which continues the last one, see `begin`."""
        rollout = rollout.select(*SHOWN, "env_reward", strict=False)
        whole = rollout if self._unfinished is None else TensorDict.cat([self._unfinished, rollout])
        estimates, figures = {}, {}
        for name, model in self.models.items():
            if model.looks_at != "frames":
                seen = whole if model.looks_at == "episodes" else rollout
                estimates[name] = self.manager.estimate(seen, [name])[name][-len(rollout) :]
                figures[f"reward_model/{name}_mean"] = float(estimates[name].mean())
                figures[f"reward_model/{name}_std"] = float(estimates[name].std(unbiased=False))
        if self._looks_at_episodes:
            self._unfinished = _unfinished(whole)
        return Judgement(estimates, dict(self.manager.versions), figures)

    def begin(self) -> None:
        """All environments were reset: unfinished episodes are dropped."""
        self._unfinished = None
        self._episodes.forget()

    def facts(self) -> dict[str, TermFacts]:
        return self.manager.facts()

    def state_dict(self, names: Collection[str] | None = None) -> dict[str, Any]:
        """What the estimates of models depend on, for copies of them elsewhere."""
        return self.manager.state_dict(names)

    def training_state(self) -> dict[str, Any]:
        """All that continuing to train depends on: optimizers, random generators and collected data too."""
        return {
            name: {"version": self.manager.versions[name], "model": model.training_state()}
            for name, model in self.models.items()
        }

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        if state.keys() != self.models.keys():
            found, here = (", ".join(names) for names in (state, self.models))
            raise ConfigError(f"reward.model: the checkpoint was made with {found}, this run has {here}")
        for name, model in self.models.items():
            self.manager.versions[name] = state[name]["version"]
            model.load_training_state(state[name]["model"])

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint of each model, `directory`/<its name>."""
        for name, model in self.models.items():
            model.save(Path(directory) / name)

    @property
    def _looks_at_episodes(self) -> bool:
        return any(model.looks_at == "episodes" for model in self.models.values())

    def _attach_loggers(self) -> None:
        self._scalars = {name: Scalars() for name in self.models}
        for name, model in self.models.items():
            model.tb_logger = self._scalars[name]

    def _losses(self) -> dict[str, float]:
        """What the models reported of their updates, each under its own name: two may be of one type."""
        losses: dict[str, float] = {}
        for name, scalars in self._scalars.items():
            for tag, mean in scalars.means().items():
                own = tag.replace(f"/{self.models[name].model_type}_", f"/{name}_", 1)
                losses[f"{own}_{name}" if own in losses else own] = mean
        return losses


class Scalars:
    """Stands in for a TensorBoard writer: averages what a model reports of single updates over an iteration."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self._values.setdefault(tag, []).append(float(scalar_value))

    def means(self) -> dict[str, float]:
        values, self._values = self._values, {}
        return {tag: sum(numbers) / len(numbers) for tag, numbers in values.items()}


def _any_frames(models: Mapping[str, BaseRewardModel]) -> bool:
    return any(model.looks_at == "frames" for model in models.values())


def needs_trainer(config: RewardConfig, wanted: RewardModelConfig) -> bool:
    return config.cotrains(wanted) or model_class(wanted).looks_at != "frames"


def _check_trained(model: BaseRewardModel, wanted: RewardModelConfig, config: RewardConfig) -> None:
    trains = config.cotrains(wanted) or config.pretrain
    if model.begins_untrained and not trains and wanted.checkpoint_path is None:
        raise ConfigError(
            f"reward.cotrain: found false, but reward model '{model.model_type}' begins untrained; set reward.cotrain "
            "or reward.pretrain, or give its checkpoint_path"
        )


def _give_expert_data(
    model: BaseRewardModel, wanted: RewardModelConfig, config: RewardConfig, expert_data: Any
) -> bool:
    """Load what `create_reward_model` has not loaded; whether `expert_data` was used."""
    path = wanted.options.get("expert_data_path")
    if not model.learns_from_expert or (path is not None and wanted.checkpoint_path is None):
        return False
    if wanted.checkpoint_path is not None and not (config.cotrains(wanted) or config.pretrain):
        return False  # a trained model can be asked without its expert
    source = expert_data if path is None else path
    if source is not None:
        model.load_expert_data(source)
    return source is expert_data


def _unfinished(steps: Batch) -> Batch | None:
    """The last steps of [T, N], from where the oldest episode that has not ended begins."""
    ended = steps["terminated"] | steps["truncated"]
    number = torch.arange(1, len(ended) + 1)[:, None]
    begins = int((ended * number).amax(0).amin())
    return steps[begins:].clone() if begins < len(steps) else None
