"""What every reward model can do, and the registry of their names.

A reward model is a network with its objective and its data. It is not an `nn.Module`: `train()` fits it. It knows
nothing of the learner: `manager.py` turns its estimates into the reward that the learner maximises.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar

import torch
from gymnasium import Space
from tensordict import TensorDictBase
from torch import Tensor, nn

from rewardlab.config.schema import AlgorithmConfig, DataConfig, RewardConfig
from rewardlab.errors import ConfigError, DataError
from rewardlab.models.weights import check_weights
from rewardlab.registry import Registry
from rewardlab.rewards.checkpoint import read_checkpoint, write_checkpoint

LooksAt: TypeAlias = Literal["frames", "transitions", "episodes"]
Transitions: TypeAlias = TensorDictBase | Sequence[Mapping[str, Any]]
T = TypeVar("T", bound=Transitions)
M = TypeVar("M", bound="type[BaseRewardModel]")


class ScalarLogger(Protocol):
    """The part of a TensorBoard SummaryWriter that reward models use."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


class BaseRewardModel(ABC):
    """Estimates rewards. `collect_data`, `train` and `clear_data` are called in turn while a policy trains.

    Data is a TensorDict batch or a list of dictionaries. Constructors build and read no files.

    A model whose networks depend on the task learns its shapes from `bind`, which a pipeline calls once with the spaces
    of its environments. Without an environment, the config says the same as `obs_shape` and `action_shape`; checkpoints
    do too.
    """

    model_type: ClassVar[str] = ""  # the name it is registered by
    tb_logger: ScalarLogger | None = None
    clear_buffer_per_iters: int = 1  # `clear_data` does its work in every n-th iteration
    # What `estimate` must be given: frames of `image_keys`, transitions in any order, or whole episodes in time order
    # (because a step's reward depends on the steps before it).
    looks_at: ClassVar[LooksAt] = "transitions"
    gives_probability: ClassVar[bool] = False  # its estimates are probabilities of success, above or below `threshold`
    begins_untrained: ClassVar[bool] = False  # its rewards mean nothing before `train`
    hindsight: ClassVar[bool] = False  # draws stored transitions with goals of its own (`HERRewardModel.sample`)

    @abstractmethod
    def estimate(self, data: Any) -> Any:
        """A copy of `data` with `reward` replaced and the original kept as `env_reward`; see `with_rewards`.

        Neither `data` nor the model is changed.
        """

    @abstractmethod
    def train(self) -> None:
        """Fit the model to the data it has collected."""

    def can_train(self) -> bool:
        """Whether what was collected is enough to train on; a training loop waits until it is."""
        return True

    @abstractmethod
    def collect_data(self, data: Any) -> None:
        """Add transitions to learn from."""

    @abstractmethod
    def clear_data(self, iter: int) -> None:
        """Forget the collected data, if it is time to (`time_to_clear`)."""

    def cotrain(self, data: Any, iter: int) -> None:
        """One round of learning beside a policy: collect, train if there is enough, clear if it is time to."""
        self.collect_data(data)
        if self.can_train():
            self.train()
        self.clear_data(iter)

    def load_expert_data(self, data: Any) -> None:
        """Take data of an expert, for models that learn from one. `clear_data` does not forget it."""
        raise ConfigError(f"reward model '{self.model_type}' does not learn from expert data")

    def bind(self, observation_space: Space[Any], action_space: Space[Any]) -> Self:
        """Build what depends on the task. The spaces are of one environment (`single_observation_space` ...).

        Does nothing for models that know what they look at, such as classifiers.
        """
        return self

    def check_run(self, reward: RewardConfig, algorithm: AlgorithmConfig) -> None:  # noqa: B027 - most have no objection
        """Raise a ConfigError if a run with these settings makes no sense with this model."""

    def prepare_cotraining(self, data: DataConfig, seed: int) -> None:  # noqa: B027 - most need nothing
        """Load what the model needs besides the policy's own transitions, before it is trained further in a run."""

    @property
    def learns_from_expert(self) -> bool:
        return type(self).load_expert_data is not BaseRewardModel.load_expert_data

    def score(self, data: Any) -> Tensor:
        """What the model says of each row: the `reward` that `estimate` gives, checked for NaN."""
        estimated = self.estimate(data)
        if isinstance(estimated, list):
            return checked_scores(torch.stack([torch.as_tensor(item["reward"]).reshape(()) for item in estimated]))
        return checked_scores(estimated["reward"])

    def time_to_clear(self, iter: int) -> bool:
        return iter % self.clear_buffer_per_iters == 0

    def settings(self) -> dict[str, Any]:
        """Arguments of the constructor that build the same model again; stored in checkpoints, so plain values."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What else a checkpoint says about the model, such as its threshold."""
        return {}

    def describe(self) -> dict[str, Any]:
        """What `config.json` of a checkpoint says."""
        return {"model_type": self.model_type, "architecture": self.settings(), **self.facts()}

    def _modules(self) -> dict[str, nn.Module]:
        return {name: value for name, value in vars(self).items() if isinstance(value, nn.Module)}

    def state_dict(self) -> dict[str, Tensor]:
        """Every parameter and running statistic of every network the model has."""
        return {
            f"{name}.{key}": value
            for name, module in self._modules().items()
            for key, value in module.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        check_weights(self.state_dict(), state, "state_dict")
        for name, module in self._modules().items():
            start = f"{name}."
            module.load_state_dict({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})

    def training_state(self) -> dict[str, Any]:
        """All that an interrupted training needs to go on exactly: more than `state_dict`, for models that learn."""
        return {"weights": self.state_dict()}

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        self.load_state_dict(state["weights"])

    def to(self, device: str | torch.device) -> Self:
        for module in self._modules().values():
            module.to(device)
        return self

    def save(self, path: str | Path, *, card: str | None = None) -> Path:
        """Write a checkpoint directory with the model card `card`; an existing checkpoint there is replaced safely."""
        return write_checkpoint(Path(path), self.describe(), self.state_dict(), card=card)

    def load(self, path: str | Path) -> None:
        """Take the weights of a checkpoint of the same architecture; `load_reward_model` builds the model too."""
        self.load_state_dict(read_checkpoint(Path(path)).weights)

    @classmethod
    def from_settings(
        cls, settings: Mapping[str, Any], device: str | torch.device, tb_logger: ScalarLogger | None
    ) -> Self:
        """Build the model; what must be read from files beside the constructor is read here."""
        model = cls(**settings)
        model.tb_logger = tb_logger
        return model.to(device)


def checked_scores(scores: Tensor) -> Tensor:
    bad = scores.flatten().isnan().nonzero()
    if len(bad):
        raise DataError(
            f"the reward model gave NaN for row {int(bad[0])} of {scores.numel()} ({len(bad)} in all): its weights "
            "are broken; use an earlier checkpoint"
        )
    return scores


REWARD_MODELS: Registry[type[BaseRewardModel]] = Registry("reward model")


def register_reward_model(name: str) -> Callable[[M], M]:
    """Class decorator: `create_reward_model({"type": name, ...})` builds the class with the other keys as arguments."""

    def add(cls: M) -> M:
        if not (isinstance(cls, type) and issubclass(cls, BaseRewardModel)):
            raise ConfigError(f"reward model '{name}' must be a subclass of BaseRewardModel")
        REWARD_MODELS.register(name)(cls)
        if "model_type" not in vars(cls):
            cls.model_type = name
        return cls

    return add


def with_rewards(data: T, rewards: Tensor) -> T:
    """A shallow copy of `data` with `reward` replaced; what was there is kept as `env_reward`.

    Data that has an `env_reward` already keeps it: what the environment said does not change by estimating twice.
    """
    if len(rewards) != len(data):
        raise DataError(f"{len(rewards)} rewards for {len(data)} transitions")
    rewards = rewards.detach()
    if isinstance(data, TensorDictBase):
        copy = data.clone(recurse=False)
        if "reward" in data.keys():  # noqa: SIM118
            original = data["reward"]
            if "env_reward" not in data.keys():  # noqa: SIM118
                copy["env_reward"] = original.clone()
            rewards = rewards.reshape(original.shape)
        copy["reward"] = rewards.to(data.device or rewards.device)
        return copy
    return _items_with_rewards(data, rewards)  # type: ignore[return-value]


def _items_with_rewards(data: Sequence[Mapping[str, Any]], rewards: Tensor) -> list[dict[str, Any]]:
    originals: Sequence[Any] = [item.get("reward") for item in data]
    new: Sequence[Any]
    if data and all(isinstance(original, Tensor) for original in originals):
        # All at once: copying tensors of one number each would take longer than any network.
        new = rewards.reshape(len(data), *originals[0].shape).unbind()
        originals = torch.stack(list(originals)).unbind()
    else:
        new = [reward if old is None else float(reward) for reward, old in zip(rewards, originals, strict=True)]
    copies = []
    for item, reward, original in zip(data, new, originals, strict=True):
        copy = {**item, "reward": reward}
        if original is not None:
            copy.setdefault("env_reward", original)
        copies.append(copy)
    return copies
