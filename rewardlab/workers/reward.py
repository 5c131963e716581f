"""Workers of reward models: RewardWorker scores frames for RL, FSDPRewardWorker trains a success classifier."""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from rewardlab.compat.names import older_names
from rewardlab.config.schema import ExperimentConfig, RewardConfig
from rewardlab.console import make_console
from rewardlab.cores import available_cores
from rewardlab.devices import CPU
from rewardlab.rewards.manager import RewardManager, TermFacts
from rewardlab.stopping import StopRequest
from rewardlab.training.processes import joined
from rewardlab.training.reward_run import train_reward_model
from rewardlab.workers.cluster import Cluster
from rewardlab.workers.group import Group

POLL = 0.1  # seconds between two looks at whether a training on other nodes has ended, or should


class FrameScores(NamedTuple):
    """The estimates of frames and the versions of the models, by the names of their reward terms."""

    estimates: dict[str, Tensor]
    versions: dict[str, int]


class RewardWorker:
    """Scores frames with the reward models of a RewardManager, in its own process or thread.

    Observations are one batch [N], or a list of the batches of T steps, which are scored together as [T, N].
    """

    def __init__(
        self,
        config: RewardConfig,
        device: str | torch.device = "cpu",
        *,
        names: Collection[str] | None = None,  # reward terms whose models are loaded; None = all
        off_policy: bool = False,
        debug_images: bool = True,
    ) -> None:
        self.config, self.device = config, device
        self._options: dict[str, Any] = {"names": names, "off_policy": off_policy, "debug_images": debug_images}

    def init_worker(self) -> None:
        """Load the models."""
        self.manager = RewardManager.from_config(self.config, self.device, **self._options)

    def facts(self) -> dict[str, TermFacts]:
        """Return the terms of the models and the metrics of their checkpoints."""
        return self.manager.facts()

    def compute_rewards(self, observations: Any) -> Tensor:
        """Return the weighted reward of each frame, not yet combined with the environment's reward."""
        return self.manager.compute_rewards(observations)

    def compute_batch_rewards(self, observations: Any) -> Tensor:
        """Return the weighted reward of each frame of a rollout, computed in mini-batches of 256 images."""
        return self.compute_rewards(observations)

    def score(
        self, images: Mapping[str, Any], part: tuple[int, int] = (0, 1), position: int | None = None
    ) -> FrameScores:
        """Score the k-th of n equal parts of the frames [m, H, W, 3] by camera, where `part` is (k, n).

        `position` is that of the first frame (of all parts) among all frames of the run.
        """
        number, count = part
        rows = len(next(iter(images.values())))
        share = slice(rows * number // count, rows * (number + 1) // count)
        frames = {"images": {camera: array[share] for camera, array in images.items()}}
        position = None if position is None else position + share.start
        estimates = {name: self.manager.score(name, frames, position) for name in self.manager.models}
        return FrameScores(estimates, dict(self.manager.versions))

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Load the weights of the models from the `state_dict` of another RewardManager."""
        self.manager.load_state_dict(state)

    def next_debug_id(self) -> int:
        """Return the first id that no debug image of an earlier run has."""
        return max([0, *(writer.next_id() for writer in self.manager.debug_images.values())])

    def number_debug_images(self, first_id: int) -> None:
        """Give frames with a position ids from `first_id` on."""
        for writer in self.manager.debug_images.values():
            writer.first_id = first_id

    def close(self) -> None:
        """Wait until debug images are written."""
        for writer in self.manager.debug_images.values():
            writer.flush()

    def save_checkpoint(self, path: str | Path, step: int) -> Path:
        """Write a checkpoint of the only model to `path`/step_<step> and return its path."""
        return self.manager.model.save(Path(path) / f"step_{step:06d}")


def launch_reward_workers(
    cluster: Cluster, config: RewardConfig, names: Collection[str] | None = None, *, off_policy: bool = False
) -> Group:
    """Launch the workers that share the frames of a rollout, each with the models of these reward terms.

    A worker that dies is restarted with the same weights. With cluster.backend=local the workers are threads, one per
    core up to four.
    """
    default_count = min(4, available_cores()) if cluster.config.backend == "local" else 1
    workers = cluster.launch(
        "reward",
        lambda placement: RewardWorker(config, placement.device, names=names, off_policy=off_policy),
        name=config.group_name,
        count=cluster.config.workers.get("reward", default_count),
        background=True,
    )
    workers.setup("init_worker")
    return workers


class FSDPRewardWorker:
    """Trains a reward model in one process, in the processes of `torchrun`, or together with the workers of its group.

    In a group, the first worker opens a rendezvous, and `train` of every worker is called with its address.
    """

    def __init__(self, cfg: ExperimentConfig, rank: int = 0, size: int = 1, device: torch.device = CPU) -> None:
        self.cfg, self.rank, self.size, self.device = cfg, rank, size, device
        self._store: TCPStore | None = None
        self._stop = StopRequest()

    def request_stop(self, number: int) -> None:
        """Let `train` end in order, while it goes on in another thread."""
        self._stop.request(number)

    def open_rendezvous(self) -> tuple[str, int]:
        """Open the store through which the workers of the group connect, and return its host and port."""
        from ray.util import get_node_ip_address

        host: str = get_node_ip_address()  # type: ignore[no-untyped-call]
        # Port 0: the operating system picks a free one.
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return host, self._store.port

    def train(self, rendezvous: tuple[str, int] | None = None) -> Path:
        """Train the model and return the checkpoint of the best one, which the first worker writes."""
        if rendezvous is not None and self._store is None:
            self._store = TCPStore(*rendezvous, is_master=False)
        with joined(self.device, self._store, self.rank, self.size) as processes:
            return train_reward_model(self.cfg, processes, make_console(), self._stop)


def train_on_group(cluster: Cluster, cfg: ExperimentConfig, stop: StopRequest) -> Path:
    """Train one reward model with all `actor` workers of a Ray cluster and return its checkpoint."""
    group = cluster.launch(
        "actor",
        lambda placement: FSDPRewardWorker(cfg, placement.index, placement.count, placement.device),
        name="RewardTraining",
        own_devices=True,
        call_threads=2,
    )
    rendezvous = group[0].submit("open_rendezvous") if len(group) > 1 else None
    training = group.call("train", rendezvous)
    while not stop.requested and not training.done():
        time.sleep(POLL)
    if stop.number is not None:
        group.call("request_stop", stop.number).result()
    return training.result()[0]


__getattr__ = older_names(__name__)
