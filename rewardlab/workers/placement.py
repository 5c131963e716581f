"""Where the workers of a component run: on which node and device, as the `cluster` section of the config says."""

import dataclasses
import itertools
import os
import warnings
from collections.abc import Sequence
from typing import Literal

import torch

from rewardlab.config.schema import ClusterConfig
from rewardlab.devices import accelerator, device_count
from rewardlab.errors import ConfigError, RewardlabError

Component = Literal["actor", "env", "rollout", "reward"]


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine of the cluster, and how many accelerators of the kind that the config asks for it has."""

    id: str | None  # Ray's node ID; None for this machine without Ray
    kind: str  # such as "cuda"; "cpu" if it has no accelerator
    accelerators: int = 0
    address: str = "this machine"
    offers_cpus: bool = True  # not after `ray start --num-cpus=0`: Ray starts no worker there

    @property
    def devices(self) -> list[str]:
        return [f"{self.kind}:{number}" for number in range(self.accelerators)] or ["cpu"]


@dataclasses.dataclass(frozen=True)
class NodeDevice:
    """The node and the torch device that a worker runs on."""

    node: Node
    device: str


class NodeLost(RewardlabError):
    """The node of a worker has left the Ray cluster, and no other node can do its work."""


def local_nodes(config: ClusterConfig) -> list[Node]:
    """Return this machine as the only node."""
    kind = (accelerator() or "cpu") if config.device_kind == "auto" else config.device_kind
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
    # What Ray counts as GPUs; the driver's own machine may have none.
    kind = "cuda" if config.device_kind == "auto" else config.device_kind
    nodes = []
    for node in alive:
        gpus = 0 if kind == "cpu" else int(node["Resources"].get("GPU", 0))
        offers_cpus = node["Resources"].get("CPU", 0) > 0
        nodes.append(Node(node["NodeID"], kind if gpus else "cpu", gpus, node["NodeManagerAddress"], offers_cpus))
    return nodes


def training_device(config: ClusterConfig) -> torch.device:
    """Return the device on which this process trains a classifier; each process of `torchrun` has its own."""
    rank, count = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    assigned = assign_devices(config, "actor", count, local_nodes(config))
    require_own_devices(assigned)
    warn_about_cpu(config, "actor", assigned)
    return torch.device(assigned[rank].device)


def require_own_devices(assigned: Sequence[NodeDevice]) -> None:
    """Raise if two processes that train one classifier would share an accelerator, which NCCL refuses."""
    places = [place for place in assigned if place.device != "cpu"]
    if len(set(places)) < len(places):
        raise ConfigError(
            f"cluster.workers.actor: {len(assigned)} processes would train a classifier on {len(set(places))} "
            f"accelerators ({', '.join(sorted({place.device for place in places}))}); expected one accelerator for "
            "each process. Start fewer processes, remove cluster.component_placement.actor, or set cluster.device=cpu"
        )


def warn_about_cpu(config: ClusterConfig, component: Component, assigned: Sequence[NodeDevice]) -> bool:
    """Say so if a place without an accelerator is used as its CPU; return whether that was the case."""
    wanted = config.component_placement.get(component)
    if wanted is None or config.device != "auto" or all(place.device != "cpu" for place in assigned):
        return False
    warnings.warn(
        f"cluster.component_placement.{component}: found {wanted}, but that node has no accelerator; such components "
        "run on its CPU",
        stacklevel=4,
    )
    return True


def assign_devices(config: ClusterConfig, component: Component, count: int, nodes: Sequence[Node]) -> list[NodeDevice]:
    """Return the node and the device of each of `count` workers.

    They go to `cluster.component_placement.<component>`, written "<node>-<device>", if the config has it. Otherwise
    they go to the device that `cluster.device` names by its number, or to all accelerators in turn, first one of each
    node. Environments and policies use all nodes, with or without accelerators: an environment worker and the rollout
    worker that chooses its actions have the same index, and so the same node.
    """
    kind = config.device_kind
    if kind not in ("auto", "cpu") and not any(node.accelerators for node in nodes):
        where = "this machine" if config.backend == "local" else "the Ray cluster"
        raise ConfigError(
            f"cluster.device: found {config.device}, but {where} has no {kind} device for the component '{component}'; "
            "set it to auto or cpu"
        )
    places = _placed(config, component, nodes)
    if places is None:
        places = _free_places(component, nodes)
        if config.device != kind:  # with a number
            places = [place for place in places if place.device == config.device]
        if not places:
            most = max(node.accelerators for node in nodes)
            raise ConfigError(
                f"cluster.device: found {config.device}, but no node has more than {_pluralize(most, 'such device')}, "
                f"numbered from 0; choose one of these, or {kind} for all of them"
            )
    return [places[index % len(places)] for index in range(count)]


def replacement_place(
    config: ClusterConfig,
    component: Component,
    index: int,
    lost: NodeDevice,
    known: Sequence[Node],
    now: Sequence[Node],
    workers: Sequence[str],
) -> NodeDevice:
    """Return where a worker goes whose node has left the Ray cluster: to the same kind of device on another node.

    `known` are the nodes at the beginning of the run, which `component_placement` counts, and `now` those that are
    there. A component with an entry in `component_placement` stays on the nodes that the entry names. `workers` are the
    names of all workers of the lost node, for the error.
    """
    configured, kind = config.component_placement.get(component), lost.device.partition(":")[0]
    if configured is not None:
        remaining = {node.id for node in now}
        places = [place for place in _placed(config, component, known) or [] if place.node.id in remaining]
    elif kind == "cpu":
        places = [NodeDevice(node, "cpu") for node in now if node.offers_cpus]
    else:
        places = [place for place in _free_places(component, now) if place.device.partition(":")[0] == kind]
        if config.device != config.device_kind:  # with a number
            places = [place for place in places if place.device == config.device]
    if places:
        return places[index % len(places)]
    if configured is not None:
        advice = f"or choose another node with cluster.component_placement.{component}, which is {configured}"
    elif kind == "cpu":
        advice = "or another one: no other node offers CPUs"
    else:
        device = config.device if config.device_kind == kind else kind
        advice = f"or set cluster.device=cpu: no other node has a device {device}"
    ran = f", on which {', '.join(workers)} ran," if workers else ""
    raise NodeLost(
        f"node {lost.node.address}{ran} has left the Ray cluster, and no other node can run {component} worker {index} "
        f"({lost.device}). Start the node again, {advice}"
    )


def _free_places(component: Component, nodes: Sequence[Node]) -> list[NodeDevice]:
    """Return all places of a component in the order in which its workers get them."""
    nodes = [node for node in nodes if node.offers_cpus] or nodes
    with_accelerators = [node for node in nodes if node.accelerators]
    usable = nodes if component in ("env", "rollout") else with_accelerators or nodes
    rounds = itertools.zip_longest(*([NodeDevice(node, device) for device in node.devices] for node in usable))
    return [place for places in rounds for place in places if place is not None]


def _placed(config: ClusterConfig, component: Component, nodes: Sequence[Node]) -> list[NodeDevice] | None:
    """Return the places that `component_placement` names; several if a label stands for several nodes."""
    configured = config.component_placement.get(component)
    if configured is None:
        return None
    name, _, number = configured.rpartition("-")
    found = f"cluster.component_placement.{component}: found {configured}, but"
    places = []
    for rank in [int(name)] if name.isdecimal() else _labelled(config, name, found):
        if rank >= len(nodes):
            owner = "cluster.backend local has" if config.backend == "local" else "the Ray cluster has"
            place = "" if name.isdecimal() else f" node {rank} of group '{name}' is not there:"
            raise ConfigError(f"{found}{place} {owner} {_pluralize(len(nodes), 'node')}, numbered from 0")
        node, kind = nodes[rank], config.device_kind
        if node.accelerators and int(number) >= node.accelerators:
            count = _pluralize(node.accelerators, f"{node.kind} device")
            raise ConfigError(f"{found} node {rank} has {count}, numbered from 0")
        if not node.accelerators and kind not in ("auto", "cpu"):
            raise ConfigError(f"{found} node {rank} has no {kind} device, which cluster.device asks for")
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
