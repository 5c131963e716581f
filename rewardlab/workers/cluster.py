"""Launches groups of workers in this process or on a Ray cluster, as the `cluster` section of the config says."""

import dataclasses
import functools
import logging
import os
import socket
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Self

import torch

from rewardlab.config.schema import ClusterConfig
from rewardlab.devices import accelerator, device_count, memory_errors_named
from rewardlab.errors import ConfigError
from rewardlab.workers.group import Futures, Group, Guard, LocalWorker, Worker

Component = Literal["actor", "env", "rollout", "reward"]


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine of the cluster, and how many accelerators of the kind that the config asks for it has."""

    id: str | None  # Ray's node ID; None for this machine without Ray
    kind: str  # such as "cuda"; "cpu" if it has no accelerator
    accelerators: int = 0

    @property
    def devices(self) -> list[str]:
        return [f"{self.kind}:{number}" for number in range(self.accelerators)] or ["cpu"]


@dataclasses.dataclass(frozen=True)
class NodeDevice:
    """The node and the torch device that a worker runs on."""

    node: Node
    device: str


@dataclasses.dataclass(frozen=True)
class WorkerPlacement:
    """The index of a worker in its group, the size of the group, and the worker's torch device."""

    index: int
    count: int
    device: torch.device


class Cluster(AbstractContextManager["Cluster"]):
    """A context manager that launches groups of workers and stops them on exit, also after an error or Ctrl-C.

    With the Ray backend it uses the Ray cluster that this process is connected to, else the one at $RAY_ADDRESS, else
    it starts one on this machine and stops it on exit.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self._groups: list[Group] = []
        self._started_ray = False
        self._said_cpu = False

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
        for index, assigned in enumerate(self._assign(component, count)):
            # A Ray worker sees only its own GPU, which CUDA then calls number 0.
            device = torch.device("cuda:0" if _own_gpu(assigned) and not local else assigned.device)
            build = functools.partial(make, WorkerPlacement(index, count, device))
            worker_name, guard = f"{name}[{index}]", functools.partial(memory_errors_named, component, device)
            workers.append(
                LocalWorker(worker_name, build, background=background, guard=guard)
                if local
                else _ray_worker(worker_name, build, assigned, threads, guard, movable)
            )
        group = Group(name, workers)
        self._groups.append(group)
        Futures([worker.start() for worker in group]).result()
        return group

    def driver_device(self, component: Component) -> torch.device:
        """Return the device that this process uses for what belongs to a component: the CPU if it runs elsewhere."""
        return local_device(self.config, component) if self.config.backend == "local" else torch.device("cpu")

    def _assign(self, component: Component, count: int) -> list[NodeDevice]:
        nodes = _local_nodes(self.config) if self.config.backend == "local" else ray_nodes(self.config)
        assigned = assign_devices(self.config, component, count, nodes)
        wanted = self.config.component_placement.get(component)
        if wanted is not None and self.config.device == "auto" and assigned[0].device == "cpu" and not self._said_cpu:
            self._said_cpu = True  # once for all components
            warnings.warn(
                f"cluster.component_placement.{component}: found {wanted}, but that node has no accelerator; such "
                "components run on its CPU",
                stacklevel=3,
            )
        return assigned


def local_device(config: ClusterConfig, component: Component, index: int = 0) -> torch.device:
    """Return the device of a worker of a component on this machine, without Ray."""
    return torch.device(assign_devices(config, component, index + 1, _local_nodes(config))[index].device)


def _local_nodes(config: ClusterConfig) -> list[Node]:
    """Return this machine as the only node."""
    kind = config.device.split(":")[0]
    kind = (accelerator() or "cpu") if kind == "auto" else kind
    return [Node(None, kind, device_count(kind) if kind != "cpu" else 0)]


def ray_nodes(config: ClusterConfig) -> list[Node]:
    """Return the nodes of the Ray cluster, in the order of their numbers in `component_placement`."""
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
    kind = config.device.split(":")[0]
    kind = "cuda" if kind == "auto" else kind  # what Ray counts as GPUs; the driver's own machine may have none
    found = [0 if kind == "cpu" else int(node["Resources"].get("GPU", 0)) for node in alive]
    return [Node(node["NodeID"], kind if gpus else "cpu", gpus) for node, gpus in zip(alive, found, strict=True)]


def assign_devices(config: ClusterConfig, component: Component, count: int, nodes: Sequence[Node]) -> list[NodeDevice]:
    """Return the node and the device of each of `count` workers.

    They go to `cluster.component_placement.<component>`, written "<node>-<device>", if the config has it. Otherwise
    they go to the device that `cluster.device` names by its number, or to all accelerators in turn; environments,
    and all workers if there is no accelerator, to all nodes in turn. An environment worker and the rollout worker that
    chooses its actions have the same index, so that without accelerators they are on the same node. On a node without
    accelerators a device number means its CPU.
    """
    kind, _, number = config.device.partition(":")
    if kind not in ("auto", "cpu") and not any(node.accelerators for node in nodes):
        where = "this machine" if config.backend == "local" else "the Ray cluster"
        raise ConfigError(
            f"cluster.device: found {config.device}, but {where} has no {kind} device for the component '{component}'; "
            "set it to auto or cpu"
        )
    places = _placed(config, component, nodes) or _free_places(component, nodes)
    if number and component not in config.component_placement:
        places = [place for place in places if place.device == config.device]
        if not places:
            most = max(node.accelerators for node in nodes)
            found = f"cluster.device: found {config.device}, but no node"
            raise ConfigError(f"{found} has more than {_pluralize(most, 'such device')}, numbered from 0")
    return [places[index % len(places)] for index in range(count)]


def _free_places(component: Component, nodes: Sequence[Node]) -> list[NodeDevice]:
    """Return all places of a component in the order in which its workers get them."""
    if component != "env" and any(node.accelerators for node in nodes):
        return [NodeDevice(node, device) for node in nodes if node.accelerators for device in node.devices]
    # The first device of every node, then the second ...
    rounds = max(len(node.devices) for node in nodes)
    return [
        NodeDevice(node, node.devices[number])
        for number in range(rounds)
        for node in nodes
        if number < len(node.devices)
    ]


def _placed(config: ClusterConfig, component: Component, nodes: Sequence[Node]) -> list[NodeDevice]:
    """Return the places that `component_placement` names; several if a label stands for several nodes."""
    configured = config.component_placement.get(component)
    if configured is None:
        return []
    name, _, number = configured.rpartition("-")
    found = f"cluster.component_placement.{component}: found {configured}, but"
    ranks = [int(name)] if name.isdigit() else _labelled(config, name, found)
    places = []
    for rank in ranks:
        if rank >= len(nodes):
            kind = "cluster.backend local has" if config.backend == "local" else "the Ray cluster has"
            place = "" if name.isdigit() else f" node {rank} of group '{name}' is not there:"
            raise ConfigError(f"{found}{place} {kind} {_pluralize(len(nodes), 'node')}, numbered from 0")
        node = nodes[rank]
        if node.accelerators and int(number) >= node.accelerators:
            count = _pluralize(node.accelerators, f"{node.kind} device")
            raise ConfigError(f"{found} node {rank} has {count}, numbered from 0")
        places.append(NodeDevice(node, node.devices[int(number)] if node.accelerators else "cpu"))
    return places


def _labelled(config: ClusterConfig, label: str, found: str) -> list[int]:
    groups = {group.label: group.node_ranks for group in config.node_groups if group.label is not None}
    if label not in groups:
        raise ConfigError(
            f"{found} no group of cluster.node_groups has the label '{label}'; labels: {', '.join(groups) or 'none'}"
        )
    return list(groups[label])


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


def _own_gpu(assigned: NodeDevice) -> bool:
    return assigned.device.startswith("cuda")


def _ray_worker(
    name: str, make: Callable[[], Any], assigned: NodeDevice, threads: int, guard: Guard, movable: bool
) -> Worker:
    from rewardlab.workers.ray_actor import RayWorker

    environment = {"OMP_NUM_THREADS": str(threads), "OPENCV_FOR_THREADS_NUM": str(threads)}
    if _own_gpu(assigned):
        # Components share GPUs, so the worker reserves none from Ray, and its visible GPU is set here.
        environment["CUDA_VISIBLE_DEVICES"] = assigned.device.removeprefix("cuda:")
        environment["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"] = "1"
    movable = movable and assigned.device == "cpu"
    return RayWorker(name, make, node_id=assigned.node.id, environment=environment, guard=guard, movable=movable)
