"""Launches groups of workers in this process or on a Ray cluster, as the `cluster` section of the config says."""

import dataclasses
import functools
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Self

from rewardlab.config.schema import ClusterConfig
from rewardlab.errors import ConfigError
from rewardlab.workers.group import Futures, Group, LocalWorker, Worker

Component = Literal["actor", "env", "rollout", "reward"]


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    id: str | None  # Ray's node ID; None for this machine without Ray
    gpus: int


@dataclasses.dataclass(frozen=True)
class NodeGpu:
    """The node and GPU that a worker runs on."""

    node: Node
    gpu: int | None  # None: the worker runs on the CPU


@dataclasses.dataclass(frozen=True)
class WorkerPlacement:
    """The index of a worker in its group, the size of the group, and the worker's torch device."""

    index: int
    count: int
    device: str


class Cluster(AbstractContextManager["Cluster"]):
    """A context manager that launches groups of workers and stops them on exit, also after an error or Ctrl-C.

    With the Ray backend it uses the Ray cluster that this process is connected to, else the one at $RAY_ADDRESS, else
    it starts one on this machine and stops it on exit.
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
        make: Callable[[WorkerPlacement], Any],
        *,
        name: str,
        count: int | None = None,
        background: bool = False,
        threads: int = 1,
    ) -> Group:
        """Build a group of workers; `make(placement)` builds each of them in the process that it will run in.

        `count` defaults to `cluster.workers.<component>`. With the local backend, a call runs immediately, or with
        `background` on one thread per worker. With the Ray backend, each process uses `threads` threads for torch and
        OpenCV: processes that each use all cores slow each other down several times.
        """
        count = self.config.workers.get(component, 1) if count is None else count
        local = self.config.backend == "local"
        movable = component not in self.config.component_placement
        workers: list[Worker] = []
        for index, assigned in enumerate(assign_gpus(self.config, component, count, self._nodes())):
            # A Ray worker sees only its own GPU, which CUDA then calls number 0.
            device = "cpu" if assigned.gpu is None else f"cuda:{assigned.gpu if local else 0}"
            build = functools.partial(make, WorkerPlacement(index, count, device))
            worker_name = f"{name}[{index}]"
            workers.append(
                LocalWorker(worker_name, build, background=background)
                if local
                else _ray_worker(worker_name, build, assigned, threads, movable)
            )
        group = Group(name, workers)
        self._groups.append(group)
        Futures([worker.start() for worker in group]).result()
        return group

    def _nodes(self) -> list[Node]:
        if self.config.backend == "local":
            import torch  # here, because importing torch takes two thirds of the start-up time of a worker

            return [Node(None, torch.cuda.device_count())]
        import ray

        alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        # The head is node 0; the other nodes are in the same order in every run.
        alive.sort(
            key=lambda node: (
                "node:__internal_head__" not in node["Resources"],
                node["NodeManagerAddress"],
                node["NodeID"],  # several nodes on one machine
            )
        )
        return [Node(node["NodeID"], int(node["Resources"].get("GPU", 0))) for node in alive]


def assign_gpus(config: ClusterConfig, component: Component, count: int, nodes: Sequence[Node]) -> list[NodeGpu]:
    """Return the node and GPU of each of `count` workers.

    All workers go to `cluster.component_placement.<component>`, written "<node>-<device>", if the config has it;
    otherwise they are distributed over all GPUs in turn; environments, and all workers if there is no GPU, over all
    nodes in turn. An environment worker and the rollout worker that chooses its actions have the same index, so that
    without GPUs they are on the same node. On a node without GPUs the device number is ignored.
    """
    configured = config.component_placement.get(component)
    if configured is None:
        gpus = [NodeGpu(node, gpu) for node in nodes for gpu in range(node.gpus)]
        places = (component != "env" and gpus) or [NodeGpu(node, None) for node in nodes]
        return [places[index % len(places)] for index in range(count)]
    rank, device = map(int, configured.split("-"))
    key = f"cluster.component_placement.{component}: found {configured}, but"
    if rank >= len(nodes):
        kind = "cluster.backend local has" if config.backend == "local" else "the Ray cluster has"
        raise ConfigError(f"{key} {kind} {_pluralize(len(nodes), 'node')}, numbered from 0")
    node = nodes[rank]
    if node.gpus and device >= node.gpus:
        raise ConfigError(f"{key} node {rank} has {_pluralize(node.gpus, 'GPU')}, numbered from 0")
    return [NodeGpu(node, device if node.gpus else None)] * count


def _pluralize(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _connect_ray() -> bool:
    """Connect to Ray; return False if this process was connected already."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ConfigError(
            "cluster.backend: found ray, which is not installed: pip install 'rewardlab[ray]', or set "
            "cluster.backend=local"
        ) from error
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends usage statistics to its developers
    # Ray starts its workers with a low priority; on a busy machine they would take minutes to start.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # "local" starts a new cluster; otherwise Ray would join any cluster that is already running on this machine.
    address = os.environ.get("RAY_ADDRESS") or "local"
    host, _, port = address.rpartition(":")
    try:
        if port.isdecimal() and "/" not in host:  # not ray://...; Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address, include_dashboard=False if address == "local" else None, logging_level=logging.ERROR)
    except (OSError, ray.exceptions.RayError) as error:
        if address == "local":
            raise
        raise ConfigError(
            f"RAY_ADDRESS: found {address}, where no connection is possible ({str(error).splitlines()[0]}). Check that "
            "`ray start` has run there, that this machine reaches it, and, if the cluster wants a token, that this "
            "process has it. Without RAY_ADDRESS a run starts a Ray of its own"
        ) from error
    return True


def _ray_worker(name: str, make: Callable[[], Any], assigned: NodeGpu, threads: int, movable: bool) -> Worker:
    from rewardlab.workers.ray_actor import RayWorker

    environment = {"OMP_NUM_THREADS": str(threads), "OPENCV_FOR_THREADS_NUM": str(threads)}
    if assigned.gpu is not None:
        # Components share GPUs, so the worker reserves none from Ray, and its visible GPU is set here.
        environment["CUDA_VISIBLE_DEVICES"] = str(assigned.gpu)
        environment["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"] = "1"
    return RayWorker(
        name, make, node_id=assigned.node.id, environment=environment, movable=movable and assigned.gpu is None
    )
