"""The base class of reward models, and the registry of their names.

A reward model is a network with its objective and its data. It is not an `nn.Module`: `train()` fits it. It does not
know the learner: `manager.py` turns its estimates into the reward that the learner maximises.
"""

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar

import torch
from gymnasium import Space
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rewardlab.config.schema import AlgorithmConfig, DataConfig, RewardConfig
from rewardlab.devices import find_device
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
    """The base class of reward models: it estimates rewards, and may be trained while a policy trains.

    A training loop calls `collect_data`, `train` and `clear_data` in turn. Data is a TensorDict batch or a list of
    dictionaries. Constructors read no files.

    If the networks depend on the task, `bind` sets their shapes; a pipeline calls it once with the spaces of its
    environments. Without an environment, the config has `obs_shape` and `action_shape`; checkpoints have them too.
    """

    model_type: ClassVar[str] = ""  # the registered name
    tb_logger: ScalarLogger | None = None
    clear_buffer_per_iters: int = 1  # `clear_data` clears in every n-th iteration
    # The data that `estimate` needs: frames of `image_keys`, transitions in any order, or whole episodes in time order
    # (because the reward of a step depends on the steps before it).
    looks_at: ClassVar[LooksAt] = "transitions"
    # Models over episodes learn from an episode when it ends, or has so many steps; None: only when it ends.
    longest_episode: int | None = None
    gives_probability: ClassVar[bool] = False  # estimates are probabilities of success, to compare with `threshold`
    begins_untrained: ClassVar[bool] = False  # rewards are meaningless before `train`
    hindsight: ClassVar[bool] = False  # samples stored transitions with other goals (`HERRewardModel.sample`)

    @abstractmethod
    def estimate(self, data: Any) -> Any:
        """Return a copy of `data` with the estimates as `reward` and the original reward as `env_reward`.

        Neither `data` nor the model is changed. See `with_rewards`.
        """

    def estimate_next(self, data: Any, carried: Any = None) -> tuple[Any, Any]:
        """Estimate a rollout [T, N] that continues the last one, for models that look at episodes.

        Return what `estimate` does and what to pass as `carried` with the next rollout; None begins new episodes. By
        default that is every step of the unfinished episodes, which are estimated again. A model whose reward depends
        on less should carry less, so that the cost does not grow with the episode.
        """
        whole = data if carried is None else TensorDict.cat([carried, data])
        return self.estimate(whole)[-len(data) :], _unfinished_steps(whole)

    @abstractmethod
    def train(self, *args: Any, **kwargs: Any) -> None:
        """Fit the model to the data it has collected; `train(data)` collects `data` first.

        Subclasses define `train(self)`. One that defines `train(self, data)` is given the data that was collected last.
        """

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Let `train` of every subclass also be called with data."""
        super().__init_subclass__(**arguments)
        if "train" in vars(cls) and not _takes_data(cls.train):
            cls.train = _collecting_first(cls.train)  # type: ignore[method-assign]

    def can_train(self) -> bool:
        """Return whether enough data is collected to train; a training loop waits until it is."""
        return True

    @abstractmethod
    def collect_data(self, data: Any) -> None:
        """Add transitions to train on."""

    @abstractmethod
    def clear_data(self, iter: int) -> None:
        """Drop the collected data in every n-th iteration (`time_to_clear`)."""

    def cotrain(self, data: Any, iter: int) -> None:
        """Run one iteration of training beside a policy: collect, train if there is enough data, clear if due."""
        self.collect_data(data)
        if self.can_train():
            self.train(*([data] if _takes_data(type(self).train) else []))
        self.clear_data(iter)

    def load_expert_data(self, data: Any) -> None:
        """Add data of an expert, for models that learn from one; `clear_data` does not drop it."""
        raise ConfigError(f"reward model '{self.model_type}' does not learn from expert data")

    def bind(self, observation_space: Space[Any], action_space: Space[Any]) -> Self:
        """Build the networks that depend on the task, and return the model.

        The spaces are those of one environment (`single_observation_space` ...). Models that know their inputs, such
        as classifiers, do nothing.
        """
        return self

    def check_run(self, reward: RewardConfig, algorithm: AlgorithmConfig) -> None:  # noqa: B027 - optional
        """Raise a ConfigError if the model cannot be used with these settings."""

    def prepare_cotraining(self, data: DataConfig, seed: int) -> None:  # noqa: B027 - optional
        """Load the data that the model needs besides the policy's transitions, before a run trains it further."""

    @property
    def learns_from_expert(self) -> bool:
        """Return whether the model implements `load_expert_data`."""
        return type(self).load_expert_data is not BaseRewardModel.load_expert_data

    def score(self, data: Any) -> Tensor:
        """Return the estimate of each row: the `reward` that `estimate` returns, checked for NaN."""
        estimated = self.estimate(data)
        if isinstance(estimated, list):
            return checked_scores(torch.stack([torch.as_tensor(item["reward"]).reshape(()) for item in estimated]))
        return checked_scores(estimated["reward"])

    def time_to_clear(self, iter: int) -> bool:
        """Return whether `clear_data` clears in this iteration."""
        return iter % self.clear_buffer_per_iters == 0

    def settings(self) -> dict[str, Any]:
        """Return the constructor arguments that build the same model again, as plain values for a checkpoint."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return other values to store in a checkpoint, such as the threshold."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return the contents of a checkpoint's `config.json`."""
        return {"model_type": self.model_type, "architecture": self.settings(), **self.facts()}

    def _modules(self) -> dict[str, nn.Module]:
        return {name: value for name, value in vars(self).items() if isinstance(value, nn.Module)}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the parameters and running statistics of all networks."""
        return {
            f"{name}.{key}": value
            for name, module in self._modules().items()
            for key, value in module.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the parameters and running statistics of all networks."""
        check_weights(self.state_dict(), state, "state_dict")
        for name, module in self._modules().items():
            start = f"{name}."
            module.load_state_dict({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})

    def training_state(self) -> dict[str, Any]:
        """Return the state from which training continues exactly; models that learn add optimizers and data."""
        return {"weights": self.state_dict()}

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        """Load the result of `training_state`."""
        self.load_state_dict(state["weights"])

    def to(self, device: str | torch.device) -> Self:
        """Move all networks to a device of this machine and return the model."""
        found = find_device(device)
        for module in self._modules().values():
            module.to(found)
        return self

    def save(self, path: str | Path, *, card: str | None = None) -> Path:
        """Write a checkpoint directory with the model card `card`; an existing checkpoint is replaced atomically."""
        return write_checkpoint(Path(path), self.describe(), self.state_dict(), card=card)

    def load(self, path: str | Path) -> None:
        """Load the weights of a checkpoint with the same architecture; `load_reward_model` also builds the model."""
        self.load_state_dict(read_checkpoint(Path(path)).weights)

    def read_files(self) -> None:  # noqa: B027 - most settings name none
        """Read the files that the settings name, such as pretrained weights: constructors read none."""


def _takes_data(train: Callable[..., None]) -> bool:
    """Return whether a `train` is defined with an argument for data."""
    return len(inspect.signature(train).parameters) > 1


def _collecting_first(train: Callable[[Any], None]) -> Callable[..., None]:
    @functools.wraps(train)
    def collect_and_train(self: "BaseRewardModel", data: Any = None) -> None:
        if data is not None:
            self.collect_data(data)
        train(self)

    return collect_and_train


def _unfinished_steps(steps: TensorDictBase) -> TensorDictBase | None:
    """Return the last steps of [T, N], from the first step of the oldest unfinished episode on."""
    ended = steps["terminated"] | steps["truncated"]
    number = torch.arange(1, len(ended) + 1, device=ended.device)[:, None]
    begins = int((ended * number).amax(0).amin())
    return steps[begins:].clone() if begins < len(steps) else None


def checked_scores(scores: Tensor) -> Tensor:
    """Return the scores; raise a DataError if one of them is NaN."""
    bad = scores.flatten().isnan().nonzero()
    if len(bad):
        raise DataError(
            f"the reward model gave NaN for row {int(bad[0])} of {scores.numel()} ({len(bad)} in all): its weights "
            "are broken; use an earlier checkpoint"
        )
    return scores


REWARD_MODELS: Registry[type[BaseRewardModel]] = Registry("reward model")


def register_reward_model(name: str) -> Callable[[M], M]:
    """Register the decorated class: `create_reward_model({"type": name, ...})` builds it with the other keys."""

    def add(cls: M) -> M:
        if not (isinstance(cls, type) and issubclass(cls, BaseRewardModel)):
            raise ConfigError(f"reward model '{name}': found {cls!r}, expected a subclass of BaseRewardModel")
        REWARD_MODELS.register(name)(cls)
        if "model_type" not in vars(cls):
            cls.model_type = name
        return cls

    return add


def with_rewards(data: T, rewards: Tensor) -> T:
    """Return a shallow copy of `data` with `rewards` as `reward` and the original reward as `env_reward`.

    An `env_reward` that is already there is kept, so that estimating twice does not lose the environment's reward.
    """
    if len(rewards) != len(data):
        raise DataError(f"{len(rewards)} rewards for {len(data)} transitions; expected one each")
    rewards = rewards.detach()
    if isinstance(data, TensorDictBase):
        copy = data.clone(recurse=False)
        if "reward" in data.keys():  # noqa: SIM118
            original = data["reward"]
            if "env_reward" not in data.keys():  # noqa: SIM118
                copy["env_reward"] = original.clone()
            rewards = rewards.reshape(original.shape)
        copy["reward"] = rewards.to(data.device or _device_of(data))
        return copy
    return _items_with_rewards(data, rewards)  # type: ignore[return-value]


def _device_of(data: TensorDictBase) -> torch.device:
    """Return the device of the columns of a batch that does not say it."""
    column: Tensor = next(iter(data.values(include_nested=True, leaves_only=True)))  # type: ignore[assignment]
    return column.device


def _items_with_rewards(data: Sequence[Mapping[str, Any]], rewards: Tensor) -> list[dict[str, Any]]:
    originals: Sequence[Any] = [item.get("reward") for item in data]
    new: Sequence[Any]
    if data and all(isinstance(original, Tensor) for original in originals):
        rewards = rewards.to(originals[0].device)
        # In one operation: copying one-number tensors one by one would take longer than the network.
        new = rewards.reshape(len(data), *originals[0].shape).unbind()
        originals = torch.stack(list(originals)).unbind()
    else:
        rewards = rewards.cpu()
        new = [reward if old is None else float(reward) for reward, old in zip(rewards, originals, strict=True)]
    copies = []
    for item, reward, original in zip(data, new, originals, strict=True):
        copy = {**item, "reward": reward}
        if original is not None:
            copy.setdefault("env_reward", original)
        copies.append(copy)
    return copies
