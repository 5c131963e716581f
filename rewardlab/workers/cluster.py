"""Launches groups of workers in this process or on a Ray cluster, as the `cluster` section of the config says."""

import dataclasses
import logging
import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Self

import torch

from rewardlab.config.schema import ClusterConfig
from rewardlab.devices import find_device, memory_errors_named
from rewardlab.envs.closing import closed_after_errors
from rewardlab.errors import ConfigError
from rewardlab.stopping import kept_handlers
from rewardlab.workers.group import Futures, Group, LocalWorker, Worker
from rewardlab.workers.placement import (
    Component,
    Node,
    NodeDevice,
    assign_devices,
    local_nodes,
    ray_nodes,
    replacement_place,
    require_own_devices,
    warn_about_cpu,
)
from rewardlab.workers.process_worker import ProcessWorker


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
        self._nodes: list[Node] = []  # at the first launch: the numbers of nodes stay the same when one is lost
        self._started_ray = False
        self._warned_about_cpu = False

    def __enter__(self) -> Self:
        if self.config.backend == "ray":
            self._started_ray = _connect_ray()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop_workers()
        finally:
            if self._started_ray:
                import ray

                ray.shutdown()

    def stop_workers(self) -> None:
        """Stop all workers; new ones can be launched."""
        groups, self._groups = self._groups, []
        for group in groups:
            group.stop()

    def launch(
        self,
        component: Component,
        make: Callable[[WorkerPlacement], Any],
        *,
        name: str,
        count: int | None = None,
        background: bool = False,
        threads: int = 1,
        own_devices: bool = False,
        own_process: bool = False,
        call_threads: int = 1,
    ) -> Group:
        """Build a group of workers; `make(placement)` builds each of them in the process that it will run in.

        `count` defaults to `cluster.workers.<component>`. With the local backend, a call runs immediately, or with
        `background` on one thread per worker, with `own_process` in a process per worker. With the Ray backend, each
        worker has a process. A process uses `threads` threads for torch and OpenCV: processes that each use all cores
        slow each other down several times. With `own_devices`, two workers on one accelerator are an error.
        """
        count = self.config.workers.get(component, 1) if count is None else count
        workers: list[Worker] = []
        places = self._assign(component, count)
        if own_devices:
            require_own_devices(places)
        for index, place in enumerate(places):
            build = partial(_build_on_device, make, component, index, count)
            guard = partial(memory_errors_named, component)
            title, on = f"{name}[{index}]", place.device
            if self.config.backend == "local" and own_process:
                workers.append(
                    ProcessWorker(
                        title, partial(build, on), guard=partial(guard, on), environment=_thread_limits(threads)
                    )
                )
            elif self.config.backend == "local":
                workers.append(LocalWorker(title, partial(build, on), background=background, guard=partial(guard, on)))
            else:
                move = partial(self._move, component, index)
                workers.append(_ray_worker(title, build, guard, place, move, threads, call_threads))
            workers[-1].label = f"{component}_{index}"
        group = Group(name, workers)
        self._groups.append(group)
        with closed_after_errors(partial(_close_built, group)):  # the others may have built environments
            Futures([worker.start() for worker in group]).result()
        return group

    def driver_device(self, component: Component) -> torch.device:
        """Return the device that this process uses for what belongs to a component: the CPU if it runs elsewhere."""
        local = self.config.backend == "local"
        return torch.device(self._assign(component, 1)[0].device if local else "cpu")

    def _assign(self, component: Component, count: int) -> list[NodeDevice]:
        nodes = local_nodes(self.config) if self.config.backend == "local" else ray_nodes(self.config)
        self._nodes = self._nodes or nodes
        assigned = assign_devices(self.config, component, count, self._nodes)
        remaining = {node.id for node in nodes}
        assigned = [
            place if place.node.id in remaining else self._move(component, index, place)
            for index, place in enumerate(assigned)
        ]
        if not self._warned_about_cpu:  # once for all components
            self._warned_about_cpu = warn_about_cpu(self.config, component, assigned)
        return assigned

    def _move(self, component: Component, index: int, lost: NodeDevice) -> NodeDevice:
        """Return the new place of a worker whose node has left the Ray cluster; raise NodeLost if there is none."""
        workers: list[Any] = [worker for group in self._groups for worker in group]
        names = [worker.name for worker in workers if worker.place.node == lost.node]
        return replacement_place(
            self.config, component, index, lost, known=self._nodes, now=ray_nodes(self.config), workers=names
        )


def _build_on_device(
    make: Callable[[WorkerPlacement], Any], component: Component, index: int, count: int, device: str
) -> Any:
    """Build a worker, in its process: only there is it known whether torch can use the device."""
    placement = WorkerPlacement(index, count, torch.device(device))
    find_device(placement.device, f"cluster.device, for the component '{component}'")
    return make(placement)


def _close_built(group: Group) -> None:
    """Close what the workers of a group have built, if it can be closed."""
    for worker in group:
        with suppress(Exception):  # it was not built, or has no `close`
            worker.submit("close").result()


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
        with kept_handlers():
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


def _thread_limits(threads: int) -> dict[str, str]:
    """Return the environment variables of a process that uses so many threads for torch and OpenCV."""
    return {"OMP_NUM_THREADS": str(threads), "OPENCV_FOR_THREADS_NUM": str(threads)}


def _ray_worker(
    name: str,
    make: Callable[[str], Any],
    guard: Callable[[str], AbstractContextManager[None]],
    place: NodeDevice,
    move: Callable[[NodeDevice], NodeDevice],
    threads: int,
    call_threads: int,
) -> Worker:
    from rewardlab.workers.ray_actor import RayWorker

    environment = _thread_limits(threads)
    # Components share GPUs, so a worker reserves none from Ray, which would then hide all of them.
    environment["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"] = "1"
    return RayWorker(name, make, place, environment=environment, guard=guard, move=move, call_threads=call_threads)
