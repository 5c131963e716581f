"""Workers of reward models: one scores frames for RL, the other trains a classifier together with its like."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from rewardlab.compat.names import older_class_names
from rewardlab.config.schema import ExperimentConfig, RewardConfig
from rewardlab.rewards.manager import RewardManager, TermFacts
from rewardlab.training.processes import joined
from rewardlab.training.reward_run import train_reward_model
from rewardlab.workers.cluster import Cluster
from rewardlab.workers.group import Group
from rewardlab.workers.threads import cores


class FrameScores(NamedTuple):
    """What models say of frames, by the names of their terms, and the versions of the models."""

    estimates: dict[str, Tensor]
    versions: dict[str, int]


class RewardWorker:
    """A RewardManager in a process or thread of its own, for models that look at frames.

    Observations are one batch [N], or a list of the batches of T steps, which are scored together and give [T, N].
    """

    def __init__(
        self,
        config: RewardConfig,
        device: str | torch.device = "cpu",
        *,
        names: Collection[str] | None = None,  # of the models to load; None = all
        off_policy: bool = False,
    ) -> None:
        self.config, self.device = config, device
        self._options: dict[str, Any] = {"names": names, "off_policy": off_policy}

    def init_worker(self) -> None:
        """Load the models."""
        self.manager = RewardManager.from_config(self.config, self.device, **self._options)

    def facts(self) -> dict[str, TermFacts]:
        return self.manager.facts()

    def compute_rewards(self, observations: Any) -> Tensor:
        """The weighted reward of each frame, not yet combined with the environment's."""
        return self.manager.compute_rewards(observations)

    def compute_batch_rewards(self, observations: Any) -> Tensor:
        """The same for a whole rollout; the models take 256 images at a time."""
        return self.compute_rewards(observations)

    def score(self, images: Mapping[str, Any], part: tuple[int, int] = (0, 1)) -> FrameScores:
        """Estimates for the k-th of n equal parts of the frames [m, H, W, 3] by camera; `part` is (k, n)."""
        number, count = part
        rows = len(next(iter(images.values())))
        share = slice(rows * number // count, rows * (number + 1) // count)
        frames = {"images": {camera: pictures[share] for camera, pictures in images.items()}}
        estimates = {name: self.manager.score(name, frames) for name in self.manager.models}
        return FrameScores(estimates, dict(self.manager.versions))

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Take the models of a RewardManager's `state_dict`."""
        self.manager.load_state_dict(state)

    def save_checkpoint(self, path: str | Path, step: int) -> Path:
        """Write the only model as it is now to `path`/step_<step>."""
        return self.manager.model.save(Path(path) / f"step_{step:06d}")


def launch_reward_workers(
    cluster: Cluster, config: RewardConfig, names: Collection[str] | None = None, *, off_policy: bool = False
) -> Group:
    """Workers that each load the models with these names, and share the frames of a rollout. A worker that dies is
    replaced, with the weights it had. Without Ray they are threads."""
    # Threads share everything but their model, so there is one for every core.
    every_core = min(4, cores()) if cluster.config.backend == "local" else 1
    workers = cluster.launch(
        "reward",
        lambda seat: RewardWorker(config, seat.device, names=names, off_policy=off_policy),
        name=config.group_name,
        count=cluster.config.workers.get("reward", every_core),
        background=True,
    )
    workers.setup("init_worker")
    return workers


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
