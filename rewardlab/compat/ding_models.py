"""Reward model classes written for DI-engine, as reward models of this package.

Such a class takes its whole config, `__init__(config, device, tb_logger)`, and lists of dictionaries as data. It may
keep anything anywhere, so that its weights alone do not make a copy of it.
"""

import functools
import inspect
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from gymnasium import Space
from tensordict import TensorDictBase
from torch import Tensor

from rewardlab.compat import show_notes
from rewardlab.compat.ding_rewards import TYPES, reward_options
from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards.base import REWARD_MODELS, BaseRewardModel, ScalarLogger, with_rewards

# What a class says of itself, and its adapter must say too.
_TRAITS = ("model_type", "clear_buffer_per_iters", "looks_at", "begins_untrained", "hindsight")


class WholeConfig(dict[str, Any]):
    """A config whose keys are also attributes."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


@functools.cache
def is_ding_class(cls: type[BaseRewardModel]) -> bool:
    """Whether a class is written for DI-engine."""
    return list(inspect.signature(cls).parameters)[:3] == ["config", "device", "tb_logger"]


def accepted_keys(model_type: str) -> Collection[str] | None:
    """The keys that a type of reward model takes; None for a class that takes its whole config."""
    cls = REWARD_MODELS.find(model_type)
    return None if is_ding_class(cls) else list(inspect.signature(cls).parameters)


def create_reward_model(
    cfg: Mapping[str, Any], device: str | torch.device = "cpu", tb_logger: ScalarLogger | None = None
) -> BaseRewardModel:
    """Build a reward model from the `reward_model` block of DI-engine's configs, in its keys."""
    from rewardlab.rewards.loading import create_reward_model as create  # which knows this module

    given = dict(cfg)
    found = given.pop("type", None)
    if not isinstance(found, str):
        raise ConfigError(f"reward_model.type: found {found!r}, expected the name of a reward model")
    kind = TYPES.get(found, found)
    accepted = accepted_keys(kind)
    if accepted is None:
        return create({"type": kind, **given}, device, tb_logger)
    options, notes = reward_options(kind, given)
    # Without an environment, whose spaces would say them, the shapes are those of the config.
    options |= {key: given[key] for key in ("obs_shape", "action_shape") if key in given}
    unknown = [f"reward_model.{key}" for key in options if key not in accepted]
    if unknown:
        notes.append(f"keys of the DI-engine config that are not known here are ignored: {', '.join(unknown)}")
    show_notes(notes, stacklevel=3)
    return create({"type": kind, **{key: options[key] for key in options if key in accepted}}, device, tb_logger)


def make(
    cls: type[BaseRewardModel],
    settings: Mapping[str, Any],
    device: str | torch.device = "cpu",
    tb_logger: ScalarLogger | None = None,
) -> BaseRewardModel:
    """Build a class that is written for DI-engine; see `adapted`."""
    return cls(WholeConfig(settings), device, tb_logger)  # type: ignore[call-arg]


def adapted(model: BaseRewardModel) -> BaseRewardModel:
    """An adapter around an instance of a class that is written for DI-engine; any other model unchanged."""
    if not is_ding_class(type(model)):
        return model
    return DingRewardModel(model)


class DingRewardModel(BaseRewardModel):
    """Gives batches to a model that takes lists of dictionaries, and its rewards back as a batch. Lists pass as they
    are."""

    def __init__(self, model: BaseRewardModel) -> None:
        self.model = model
        for name in _TRAITS:
            setattr(self, name, getattr(model, name))

    @property
    def tb_logger(self) -> ScalarLogger | None:
        return self.model.tb_logger

    @tb_logger.setter
    def tb_logger(self, logger: ScalarLogger | None) -> None:
        self.model.tb_logger = logger

    def estimate(self, data: Any) -> Any:
        estimated = self.model.estimate(_items(data))
        if not isinstance(data, TensorDictBase):
            return estimated
        rewards = _rewards(estimated)
        if rewards.numel() != data.numel():
            found = f"{rewards.numel()} rewards for {data.numel()} transitions"
            raise DataError(f"reward model '{self.model_type}': {found}")
        return with_rewards(data, rewards.reshape(data.batch_size))

    @property
    def learns_from_expert(self) -> bool:
        return self.model.learns_from_expert

    def load_expert_data(self, data: Any) -> None:
        self.model.load_expert_data(data)

    def collect_data(self, data: Any) -> None:
        self.model.collect_data(_items(data))

    def can_train(self) -> bool:
        return self.model.can_train()

    def train(self) -> None:
        self.model.train()

    def clear_data(self, iter: int) -> None:
        self.model.clear_data(iter)

    def cotrain(self, data: Any, iter: int) -> None:
        self.model.cotrain(_items(data), iter)

    def bind(self, observation_space: Space[Any], action_space: Space[Any]) -> Self:
        self.model.bind(observation_space, action_space)
        return self

    def to(self, device: str | torch.device) -> Self:
        self.model.to(device)
        return self

    def save(self, path: str | Path, *, card: str | None = None) -> Path:
        return self.model.save(path) if card is None else self.model.save(path, card=card)

    def load(self, path: str | Path) -> None:
        self.model.load(path)

    def state_dict(self) -> dict[str, Any]:
        """The whole model, to be used in another place of the same run."""
        return {"model": self.model}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.model = state["model"]

    def training_state(self) -> dict[str, Any]:
        return self.model.training_state()

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        if type(self.model).training_state is BaseRewardModel.training_state:
            warnings.warn(
                f"reward model '{self.model_type}' is resumed with its networks alone; what else it keeps begins anew, "
                "since it has no training_state of its own",
                stacklevel=2,
            )
        self.model.load_training_state(state)


def _items(data: Any) -> Any:
    """The transitions of a batch [B] or [T, N] as a list of DI-engine's dictionaries, in time order."""
    if not isinstance(data, TensorDictBase):
        return data
    flat = data.flatten()
    reward = flat["reward"] if "reward" in flat else torch.zeros(len(flat))
    columns = {
        "obs": _observation(flat["observation"]),
        "next_obs": _observation(flat["next_observation"]),
        "action": flat["action"],
        "reward": reward,
        "done": flat["terminated"] | flat["truncated"],
    }
    rows = zip(*(column.unbind(0) for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _observation(observation: Any) -> Any:
    """An observation of one part, such as a state, goes without its name."""
    parts = list(observation.values()) if isinstance(observation, TensorDictBase) else []
    return parts[0] if len(parts) == 1 else observation


def _rewards(estimated: Any) -> Tensor:
    if isinstance(estimated, list):
        return torch.stack([torch.as_tensor(item["reward"]).reshape(()) for item in estimated]).float().cpu()
    return torch.as_tensor(estimated["reward"]).float().cpu()
