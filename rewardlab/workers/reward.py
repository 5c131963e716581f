"""Workers of reward models: one scores frames for RL, the other trains a classifier together with its like."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import torch
from rich.console import Console
from tensordict import TensorDictBase
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from rewardlab.compat.names import older_class_names
from rewardlab.config.schema import ExperimentConfig, RewardConfig
from rewardlab.errors import DataError
from rewardlab.rewards.classifier import SuccessClassifier
from rewardlab.rewards.manager import RewardManager
from rewardlab.training.processes import joined
from rewardlab.training.reward_run import train_reward_model
from rewardlab.workers.cluster import Cluster, Seat
from rewardlab.workers.group import Future, Futures, Group
from rewardlab.workers.threads import cores

T = TypeVar("T")
Weights = dict[str, Tensor]


class Scores(NamedTuple):
    """What a reward model says of frames, and the reward that follows; both in the leading shape of the frames."""

    estimate: Tensor  # the probability of success, if the model is a classifier
    reward: Tensor  # with the model's own weight, not yet combined with the environment's


@dataclass(frozen=True)
class RewardFacts:
    """What a training run must know of its reward model."""

    model_type: str
    cameras: tuple[str, ...]
    threshold: float  # the verdict is "success" above it
    metrics: dict[str, Any]  # its figures on held-out episodes; {} if it came without


class RewardWorker:
    """A RewardManager in a place of its own.

    Observations are one batch [N] or the batches of T steps in a list, which are scored together and give [T, N].
    """

    def __init__(self, config: RewardConfig, device: str | torch.device = "cpu") -> None:
        self.config = config
        self.device = device

    def init_worker(self) -> None:
        """Load the model."""
        self.manager = RewardManager.from_config(self.config, self.device)

    def facts(self) -> RewardFacts:
        model = self.manager.model
        cameras = model.image_keys if isinstance(model, SuccessClassifier) else ()
        metrics = model.metrics if isinstance(model, SuccessClassifier) else {}
        return RewardFacts(model.model_type, cameras, self.manager.threshold, metrics)

    def compute_rewards(self, observations: Any) -> Tensor:
        """The model's reward of each frame, with its own weight, not yet combined with the environment's."""
        return self.manager.compute_rewards(observations)

    def compute_batch_rewards(self, observations: Any) -> Tensor:
        """The same for a whole rollout; the model takes 256 images at a time."""
        return self.compute_rewards(observations)

    def score(self, observations: Any, part: tuple[int, int] = (0, 1)) -> Scores:
        """Estimates and rewards, for who wants to look behind the reward; each frame is scored once.

        `part` (k, n) is the k-th of n shares of the frames, for workers that are given the same ones.
        """
        estimate = self.manager.score(observations if part == (0, 1) else _share(observations, *part))
        return Scores(estimate, self.manager.reward_of(estimate))

    def update(self, transitions: Any, iteration: int) -> Weights:
        """Co-training: learn from transitions while the policy does; returns the new weights."""
        model = self.manager.model
        model.cotrain(transitions, iteration)
        return model.state_dict()

    def weights(self) -> Weights:
        return self.manager.model.state_dict()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.manager.model.load_state_dict(weights)

    def save_checkpoint(self, path: str | Path, step: int) -> Path:
        """Write the model as it is now to `path`/step_<step>."""
        return self.save(Path(path) / f"step_{step:06d}")

    def save(self, path: str | Path) -> Path:
        """Write the model as it is now to `path`."""
        return self.manager.model.save(path)


class RewardGroup:
    """Reward workers as one: every batch is split over them and joined in order.

    Scoring may be repeated, so a worker that dies is replaced, with the weights it had.
    """

    def __init__(self, workers: Group) -> None:
        self.workers = workers
        workers.setup("init_worker")

    @classmethod
    def launch(cls, cluster: Cluster, config: RewardConfig, *, background: bool = False) -> Self:
        """`background`: without Ray, score on threads beside the caller."""

        def make(seat: Seat) -> RewardWorker:
            return RewardWorker(config, seat.device)

        # Threads of one process need no second copy of anything but the model, so there is one for every core.
        every_core = min(4, cores()) if background and cluster.config.backend == "local" else 1
        count = cluster.config.workers.get("reward", every_core)
        return cls(cluster.launch("reward", make, name=config.group_name, count=count, background=background))

    def facts(self) -> RewardFacts:
        facts: RewardFacts = self.workers[0].submit("facts").result()
        return facts

    def weights(self) -> Weights:
        weights: Weights = self.workers[0].submit("weights").result()
        return weights

    def load_weights(self, weights: Weights) -> None:
        self.workers.setup("load_weights", weights)

    def compute_batch_rewards(self, observations: Any) -> Future[Tensor]:
        return Joined(self._scatter("compute_batch_rewards", observations), torch.cat)

    def score(self, observations: Any) -> Future[Scores]:
        return Joined(self._scatter("score", observations), _join_scores)

    def update(self, transitions: Any, iteration: int) -> None:
        """The first worker learns; all have its weights afterwards."""
        weights = self.workers[0].submit("update", transitions, iteration)
        self.workers.setup("load_weights", weights)

    def save_checkpoint(self, path: str | Path, step: int) -> Path:
        return self.workers[0].submit("save_checkpoint", path, step).result()

    def save(self, path: str | Path) -> Path:
        return self.workers[0].submit("save", path).result()

    def _scatter(self, method: str, observations: Any) -> Futures[Any]:
        return self.workers.scatter(method, split_rows(observations, len(self.workers)), retry=True)


class Joined(Future[T]):
    """The results of several workers as one."""

    def __init__(self, parts: Futures[T], join: Callable[[list[T]], T]) -> None:
        self._parts, self._join = parts, join

    def result(self, timeout: float | None = None) -> T:
        return self._join(self._parts.result(timeout))

    def done(self) -> bool:
        return self._parts.done()


def _join_scores(parts: list[Scores]) -> Scores:
    return Scores(torch.cat([part.estimate for part in parts]), torch.cat([part.reward for part in parts]))


def split_rows(observations: Any, count: int) -> list[Any]:
    """Up to `count` parts along the first axis, in order, of sizes that differ by one at most; none of them empty."""
    count = max(1, min(count, _rows(observations)))
    return [_share(observations, number, count) for number in range(count)]


def _share(observations: Any, number: int, count: int) -> Any:
    rows = _rows(observations)
    return _cut(observations, slice(rows * number // count, rows * (number + 1) // count))


def _rows(observations: Any) -> int:
    if isinstance(observations, Mapping):
        found = {_rows(value) for value in observations.values()}
        if len(found) != 1:
            raise DataError(f"expected observations of one length; found lengths {sorted(found)}")
        return found.pop()
    return len(observations)


def _cut(observations: Any, rows: slice) -> Any:
    if isinstance(observations, Mapping) and not isinstance(observations, TensorDictBase):
        return {key: _cut(value, rows) for key, value in observations.items()}
    return observations[rows]


class FSDPRewardWorker:
    """Trains a reward model; alone, with the processes of `torchrun`, or with the other workers of its group.

    In a group the first worker opens a meeting point, and `train` of every worker is given its address.
    """

    def __init__(self, cfg: ExperimentConfig, rank: int = 0, size: int = 1) -> None:
        self.cfg, self.rank, self.size = cfg, rank, size
        self._store: TCPStore | None = None

    def open_meeting(self) -> tuple[str, int]:
        from ray.util import get_node_ip_address

        host: str = get_node_ip_address()  # type: ignore[no-untyped-call]
        # The system picks the port, so that no other program can have it.
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return host, self._store.port

    def train(self, meeting: tuple[str, int] | None = None) -> Path:
        """Returns the checkpoint of the best model, which the first worker has written."""
        if meeting is not None and self._store is None:
            self._store = TCPStore(*meeting, is_master=False)
        with joined(self._store, self.rank, self.size) as processes:
            return train_reward_model(self.cfg, processes, Console())


def train_on_group(cluster: Cluster, cfg: ExperimentConfig) -> Path:
    """Train with the `actor` workers of a Ray cluster as one."""
    group = cluster.launch("actor", lambda seat: FSDPRewardWorker(cfg, seat.index, seat.count), name="RewardTraining")
    meeting = group[0].submit("open_meeting") if len(group) > 1 else None
    return group.call("train", meeting).result()[0]


__getattr__ = older_class_names(__name__)
