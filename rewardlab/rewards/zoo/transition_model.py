"""What the reward models over transitions share: their task, their data, the loop of `train`, their state.

A model of this kind is a dataclass: its fields are the keys of its config and the arguments of its constructor.
It gives `_build`, which makes its networks for a task, `_losses`, which yields what is minimised, and `_score`. By
default the two ask `self.network`: `network.learn(columns)` is a loss, `network(columns)` the rewards.
"""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from gymnasium import Space
from pydantic import PositiveFloat, PositiveInt
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.devices import find_device, seeded_generator
from rewardlab.errors import ConfigError, DataError
from rewardlab.models.encoders import seeded_weights
from rewardlab.rewards.base import BaseRewardModel, LooksAt, with_rewards
from rewardlab.rewards.checkpoint import read_checkpoint
from rewardlab.rewards.zoo.experts import errors_named, expert_transitions, source_name
from rewardlab.rewards.zoo.settings import check_settings
from rewardlab.rewards.zoo.task import ActionShape, ObsShape, Task
from rewardlab.rewards.zoo.transitions import Columns, Rows, on_device, read_rows

_CHUNK, _IMAGE_CHUNK = 65_536, 256


def random_batches(columns: Columns, count: int, size: int, generator: torch.Generator) -> Iterator[Columns]:
    """`count` batches of random rows; all rows' number if there are fewer than `size`."""
    rows = len(next(iter(columns.values())))
    for chosen in torch.randint(rows, (count, min(size, rows)), generator=generator):
        yield {name: column[chosen] for name, column in columns.items()}


@dataclasses.dataclass(kw_only=True, eq=False)
class TransitionRewardModel(BaseRewardModel):
    """Base of the reward models that learn from, and judge, transitions."""

    obs_shape: ObsShape | None = None  # null = said by `bind`; n, [height, width, 3] or {part: shape}
    action_shape: ActionShape | None = None  # null = said by `bind`; n discrete actions, or [n] continuous numbers
    batch_size: PositiveInt = 64  # rows of an update; of all there are, if there are fewer
    learning_rate: PositiveFloat = 1e-3
    update_per_collect: PositiveInt = 100  # updates in a call of `train`
    clear_buffer_per_iters: PositiveInt = 1
    seed: int = 0

    begins_untrained: ClassVar[bool] = True
    needed: ClassVar[tuple[str, ...]] = ("observation", "action")  # columns it cannot do without
    optional: ClassVar[tuple[str, ...]] = ()  # columns it uses where they are

    def __post_init__(self) -> None:
        check_settings(self)
        self.updates = 0
        self.device = torch.device("cpu")
        self._data: list[Columns] = []  # collected, on the CPU
        self._generator = seeded_generator(self.seed)
        self._optimizer: torch.optim.Optimizer | None = None
        self._task: Task | None = None
        if self.obs_shape is not None and (self.action_shape is not None or "action" not in self.needed):
            self._take_task(Task.from_shapes(self.obs_shape, self.action_shape))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "tb_logger": None}  # a log file stays where it is

    @abstractmethod
    def _build(self, task: Task) -> None:
        """Make the networks, as attributes."""

    def _losses(self) -> Iterator[Tensor]:
        """Yield the loss of each update of one call of `train`."""
        for batch in self._batches(self._training_data()):
            yield self.network.learn(batch)  # type: ignore[attr-defined]

    def _score(self, rows: Rows) -> Tensor:
        """Return the reward of each row."""
        return self.network(rows.columns)  # type: ignore[attr-defined]

    def bind(self, observation_space: Space[Any], action_space: Space[Any]) -> Self:
        task = Task.from_spaces(observation_space, action_space)
        if self._task is not None:
            known = dataclasses.replace(self._task, action=self._task.action or task.action)
            if known != task:
                raise ConfigError(
                    f"reward model '{self.model_type}' was built for observations {self._task.observation} and actions "
                    f"{self._task.action}, the environment has {task.observation} and {task.action}"
                )
            self._task = task  # it knows the bounds of actions too
            return self
        self.obs_shape = {name: list(shape) for name, shape in task.observation.items()}
        self.action_shape = task.action
        self._take_task(task)
        return self

    def _take_task(self, task: Task) -> None:
        self._task = task
        with seeded_weights(self.seed):
            self._build(task)
        self.to(self.device)

    @property
    def task(self) -> Task:
        if self._task is None:
            raise ConfigError(
                f"reward model '{self.model_type}' does not know its task: call bind(observation_space, action_space), "
                "or give obs_shape and action_shape"
            )
        return self._task

    def parameters(self) -> Iterator[nn.Parameter]:
        for module in self._modules().values():
            yield from module.parameters()

    def _read(self, data: Any) -> Rows:
        return read_rows(data, self.task, self.needed, self.optional).to(self.device)

    @torch.no_grad()
    def estimate(self, data: Any) -> Any:
        rows = self._read(data)
        self._check_ready()
        return self._with_rewards(data, self._score_in_chunks(rows).reshape(rows.shape))

    def _with_rewards(self, data: Any, scores: Tensor) -> Any:
        """Return a copy of `data` with the rewards that follow from its scores, in the shape of the batch."""
        return with_rewards(data, scores)

    def _score_in_chunks(self, rows: Rows) -> Tensor:
        chunks = [rows] if self.looks_at == "episodes" else self._chunks(rows)  # an episode is not cut
        return torch.cat([self._score(chunk) for chunk in chunks])

    def _chunks(self, rows: Rows) -> list[Rows]:
        """Cut rows into at least one chunk: convolutions over a whole rollout of images would need gigabytes."""
        size = _IMAGE_CHUNK if self.task.has_images else _CHUNK
        return [rows.part(start, start + size) for start in range(0, max(1, len(rows)), size)]

    def _check_ready(self) -> None:
        """Raise if a reward would come from weights that have learned nothing."""

    def collect_data(self, data: Any) -> None:
        rows = self._read(data)
        rows.check_finite()
        if not len(rows):
            return
        if self._data and self._data[0].keys() != rows.columns.keys():
            was, now = (", ".join(sorted(columns)) for columns in (self._data[0], rows.columns))
            raise DataError(f"transitions with the columns {now} after ones with {was}: clear_data comes between")
        self._data.append({name: column.detach().to("cpu", copy=True) for name, column in rows.columns.items()})
        self._learn_statistics(rows)

    def _learn_statistics(self, rows: Rows) -> None:
        """Update running statistics with new rows."""

    def can_train(self) -> bool:
        return bool(self._data)

    def clear_data(self, iter: int) -> None:
        if self.time_to_clear(iter):
            self._data.clear()

    def _batches(self, columns: Columns) -> Iterator[Columns]:
        for batch in random_batches(columns, self.update_per_collect, self.batch_size, self._generator):
            yield on_device(batch, self.device)

    def _training_data(self) -> Columns:
        return self._collected()

    def _collected(self) -> Columns:
        if not self._data:
            raise DataError(f"reward model '{self.model_type}' has no transitions to train on: call collect_data first")
        if len(self._data) > 1:
            self._data = [{name: torch.cat([part[name] for part in self._data]) for name in self._data[0]}]
        return self._data[0]

    def train(self) -> None:
        """Make `update_per_collect` updates on random batches of what was collected."""
        for loss in self._losses():
            self._step(loss)

    def _prepared_optimizer(self) -> torch.optim.Optimizer:
        if self._optimizer is None:
            self._optimizer = self._make_optimizer([p for p in self.parameters() if p.requires_grad])
        return self._optimizer

    def _step(self, loss: Tensor) -> None:
        optimizer = self._prepared_optimizer()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise DataError(
                f"the loss is {value} at update {self.updates}: training stopped, the weights before it kept"
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        self.log("loss", value)
        self.updates += 1

    def _make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.learning_rate, fused=True)

    def log(self, name: str, value: float | Tensor) -> None:
        if self.tb_logger is not None:
            self.tb_logger.add_scalar(f"reward_model/{self.model_type}_{name}", float(value), self.updates)

    def settings(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def state_dict(self) -> dict[str, Tensor]:
        """Networks, statistics and the number of updates; not the collected data."""
        return {**super().state_dict(), "updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.task  # noqa: B018  an error if it is not known
        super().load_state_dict(state)
        self.updates = int(state["updates"])

    def training_state(self) -> dict[str, Any]:
        return {
            **super().training_state(),
            "optimizer": None if self._optimizer is None else self._optimizer.state_dict(),
            "generator": self._generator.get_state(),
            "data": self._collected() if self._data else {},
        }

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        super().load_training_state(state)
        self._optimizer = None
        if state["optimizer"] is not None:
            self._prepared_optimizer().load_state_dict(state["optimizer"])
        self._generator.set_state(state["generator"])
        self._data = [state["data"]] if state["data"] else []

    def load(self, path: str | Path) -> None:
        if self._task is None:
            known = (read_checkpoint(Path(path)).config or {}).get("architecture", {})
            self.obs_shape, self.action_shape = known.get("obs_shape"), known.get("action_shape")
            if self.obs_shape is not None:
                self._take_task(Task.from_shapes(self.obs_shape, self.action_shape))
        super().load(path)

    def to(self, device: str | torch.device) -> Self:
        self.device = find_device(device)
        return super().to(self.device)


class EpisodeRewardModel(TransitionRewardModel):
    """Base of the reward models whose score of a step depends on the steps before it in its episode.

    They give `_score_episodes` instead of `_score`. What it carries from one rollout to the next has a bounded size, so
    that the cost of a rollout does not depend on how long its episodes have been running.
    """

    optional: ClassVar[tuple[str, ...]] = ("terminated", "truncated")
    looks_at: ClassVar[LooksAt] = "episodes"

    @abstractmethod
    def _score_episodes(self, rows: Rows, carried: Any) -> tuple[Tensor, Any]:
        """Return the score of each row, and what the unfinished episodes need in the next call, by environment.

        Without `carried` (None), every episode begins with its first row.
        """

    def _score(self, rows: Rows) -> Tensor:
        return self._score_episodes(rows, None)[0]

    @torch.no_grad()
    def estimate_next(self, data: Any, carried: Any = None) -> tuple[Any, Any]:
        rows = self._read(data)
        self._check_ready()
        if carried is not None and len(carried) != rows.environments:
            raise DataError(f"the rollout has {rows.environments} environments, the one before it had {len(carried)}")
        scores, carried = self._score_episodes(rows, carried)
        return self._with_rewards(data, scores.reshape(rows.shape)), carried


@dataclasses.dataclass(kw_only=True, eq=False)
class ExpertRewardModel(TransitionRewardModel):
    """Base of the reward models that learn from an expert's transitions."""

    expert_data_path: str | None = None  # read by create_reward_model; null = given to load_expert_data

    def __post_init__(self) -> None:
        self._unread: tuple[Any, ...] = ()  # expert data that came before the task was known
        self._expert: Rows | None = None
        super().__post_init__()

    def load_expert_data(self, data: Any) -> None:
        """Take an expert's transitions, in any form that `rewardlab.rewards.zoo.experts` reads."""
        self._take_expert(source_name(data), expert_transitions(data))

    def _take_expert(self, *data: Any) -> None:
        """Read the expert's data, as soon as the task is known."""
        self._unread = data
        if data and self._task is not None:
            self._read_expert(*data)
            self._unread = ()

    def _take_task(self, task: Task) -> None:
        super()._take_task(task)
        self._take_expert(*self._unread)

    def _read_expert(self, name: str, transitions: TensorDict) -> None:
        with errors_named(name):
            rows = read_rows(transitions, self.task, self.needed, ("terminated", "truncated"))
            rows.check_finite()
            self.task.check_bounds(rows.columns["action"])
        self._expert = rows
        self._learn_expert(rows.to(self.device))

    def _learn_expert(self, rows: Rows) -> None:
        """Fit what is fitted to the expert at once, such as statistics."""

    @property
    def expert(self) -> Rows:
        if self._expert is None:
            raise DataError(
                f"reward model '{self.model_type}' has no expert data: set its option expert_data_path, or call "
                "load_expert_data first"
            )
        return self._expert

    def _is_ready(self) -> bool:
        return self.updates > 0

    def _check_ready(self) -> None:
        if not self._is_ready():
            raise DataError(f"reward model '{self.model_type}' has not been fitted: call load_expert_data, then train")

    def read_files(self) -> None:
        if self.expert_data_path is not None:
            self.load_expert_data(self.expert_data_path)


class FittedOnceRewardModel(ExpertRewardModel):
    """Base of the reward models that are fitted to the expert alone, once, and again after new expert data."""

    def collect_data(self, data: Any) -> None:
        """Do nothing: only the expert is learned from."""

    def can_train(self) -> bool:
        return True

    def _training_data(self) -> Columns:
        return self.expert.columns

    def train(self) -> None:
        if not self.updates:
            super().train()
            self._finish_fit()

    def _finish_fit(self) -> None:
        """Set what depends on the fitted network, such as its scale."""
