"""Where workers run: in this process, or on the nodes of a Ray cluster, as `cluster` in the config says."""

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Self

from rewardlab.config.schema import ClusterConfig
from rewardlab.errors import ConfigError
from rewardlab.workers.group import Futures, Group, LocalWorker, Worker

Component = Literal["actor", "env", "rollout", "reward"]


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine. `id` is Ray's."""

    id: str | None
    gpus: int


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a worker is put; None means wherever there is room, and no GPU."""

    node: Node | None
    gpu: int | None


@dataclasses.dataclass(frozen=True)
class Seat:
    """What a worker is told when it is built: which of how many it is, and its torch device."""

    index: int
    count: int
    device: str


class Cluster(AbstractContextManager["Cluster"]):
    """Launches groups of workers, and ends them when it is left, also by an error or Ctrl-C.

    On Ray it uses the cluster this process is connected to, or that at $RAY_ADDRESS, or starts one on this machine and
    stops it again.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self._groups: list[Group] = []
        self._started_ray = False

    def __enter__(self) -> Self:
        if self.config.backend == "ray":
            self._started_ray = _connect_ray()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for group in self._groups:
                group.stop()
        finally:
            if self._started_ray:
                import ray

                ray.shutdown()

    def launch(
        self,
        component: Component,
        make: Callable[[Seat], Any],
        *,
        name: str,
        count: int | None = None,
        background: bool = False,
        threads: int = 1,
    ) -> Group:
        """Build a group of workers, each by `make(seat)` in the process it will run in.

        `count` is that of `cluster.workers` unless given. In this process calls run at once, or with `background` on a
        thread per worker. Another process has `threads` threads for torch and OpenCV: workers that each take all cores
        slow each other down several times.
        """
        count = self.config.workers.get(component, 1) if count is None else count
        nodes = self._nodes()
        workers: list[Worker] = []
        for index, place in enumerate(placements(self.config, component, count, nodes)):
            member = f"{name}[{index}]"
            if self.config.backend == "local":
                device = "cpu" if place.gpu is None else f"cuda:{place.gpu}"
                build = functools.partial(make, Seat(index, count, device))
                workers.append(LocalWorker(member, build, background=background))
            else:
                # Of its node's GPUs such a process sees only its own.
                build = functools.partial(make, Seat(index, count, "cpu" if place.gpu is None else "cuda:0"))
                workers.append(_ray_worker(member, build, place, threads))
        group = Group(name, workers)
        self._groups.append(group)
        Futures([worker.start() for worker in group]).result()
        return group

    def _nodes(self) -> list[Node]:
        if self.config.backend == "ray":
            return _ray_nodes()
        import torch  # here, so that a worker that needs no torch starts in a third of the time

        return [Node(None, torch.cuda.device_count())]


def placements(config: ClusterConfig, component: Component, count: int, nodes: Sequence[Node]) -> list[Place]:
    """Where each of `count` workers goes: to the place in the config, or one after the other to every GPU there is.

    A node without GPUs has one device, its CPU, whatever its number in the config.
    """
    place = config.component_placement.get(component)
    if place is None:
        gpus = [Place(node, gpu) for node in nodes for gpu in range(node.gpus)]
        return [gpus[index % len(gpus)] if gpus else Place(None, None) for index in range(count)]
    rank, device = map(int, place.split("-"))
    key = f"cluster.component_placement.{component}: found {place}, but"
    if rank >= len(nodes):
        kind = "cluster.backend local has" if config.backend == "local" else "the Ray cluster has"
        raise ConfigError(f"{key} {kind} {_number(len(nodes), 'node')}, numbered from 0")
    node = nodes[rank]
    if node.gpus and device >= node.gpus:
        raise ConfigError(f"{key} node {rank} has {_number(node.gpus, 'GPU')}, numbered from 0")
    return [Place(node, device if node.gpus else None)] * count


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _connect_ray() -> bool:
    """Connect to Ray unless this process is; true if that was our doing."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ConfigError(
            "cluster.backend: found ray, which is not installed: pip install 'rewardlab[ray]', or set "
            "cluster.backend=local"
        ) from error
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
    # Ray's workers yield to every other program, and on a busy machine take minutes to start; ours are the work itself.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # "local" starts a new cluster; without it Ray would also join one that somebody else left running here.
    address = os.environ.get("RAY_ADDRESS") or "local"
    ray.init(address, include_dashboard=False if address == "local" else None, logging_level=logging.ERROR)
    return True


def _ray_nodes() -> list[Node]:
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    # The head is node 0; the order of the others must only be the same in every run.
    alive.sort(key=lambda node: ("node:__internal_head__" not in node["Resources"], node["NodeManagerAddress"]))
    return [Node(node["NodeID"], int(node["Resources"].get("GPU", 0))) for node in alive]


def _ray_worker(name: str, make: Callable[[], Any], place: Place, threads: int) -> Worker:
    from rewardlab.workers.ray_actor import RayWorker

    environment = {"OMP_NUM_THREADS": str(threads), "OPENCV_FOR_THREADS_NUM": str(threads)}
    if place.gpu is not None:
        # Components share GPUs, so the worker reserves none from Ray and is shown its own by hand.
        environment["CUDA_VISIBLE_DEVICES"] = str(place.gpu)
        environment["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"] = "1"
    return RayWorker(name, make, node_id=place.node.id if place.node else None, environment=environment)
