"""Gives the environment of a run the robots that `cluster.node_groups` attaches to its nodes."""

import dataclasses
from typing import Any

from rewardlab.config.schema import ClusterConfig, EnvConfig, ExperimentConfig
from rewardlab.errors import ConfigError

FAMILY = "robot"


def attach_robots(cfg: ExperimentConfig) -> ExperimentConfig:
    """Return the config with its robots in `options.robots` of its environments.

    A config that asks for hardware which its environment would not use is an error: a run must not move a simulation
    where a robot was meant.
    """
    if cfg.runner.task == "train_reward":  # reads episodes, wherever they come from
        return cfg
    robots: list[dict[str, Any]] = []
    nodes: set[tuple[int, ...]] = set()
    for index, group in enumerate(cfg.cluster.node_groups):
        if (hardware := group.hardware) is None:
            continue
        key = f"cluster.node_groups.{index}.hardware"
        if not is_robot(cfg.env.train):
            raise ConfigError(
                f"{key}: found {hardware.type}, but env.train.id is '{cfg.env.train.id}', which is no robot: the run "
                f"would use a simulation instead. Set env.train.id to {FAMILY}/<name of the task>, or remove the key"
            )
        if not hardware.configs:
            raise ConfigError(f"{key}.configs: found none, expected a block for each robot, such as robot_ip")
        for config in hardware.configs:
            if "type" in config:
                raise ConfigError(f"{key}.configs: found a key 'type'; it is {key}.type for all of them")
            robots.append({"type": hardware.type, **config})
        nodes.add(group.node_ranks)
    if len(nodes) > 1 or any(len(ranks) > 1 for ranks in nodes):
        found = sorted({rank for ranks in nodes for rank in ranks})
        raise ConfigError(f"cluster.node_groups: found robots at the nodes {found}; expected all at one node")
    return dataclasses.replace(
        cfg,
        cluster=_placed_at(cfg.cluster, nodes.pop()[0]) if nodes else cfg.cluster,
        env=dataclasses.replace(
            cfg.env, train=_with_robots(cfg.env.train, robots), eval=_with_robots(cfg.env.eval, robots)
        ),
    )


def is_robot(env: EnvConfig) -> bool:
    """Return whether an environment is one of robots."""
    return env.id.startswith(f"{FAMILY}/")


def check_robot_keys(env: EnvConfig) -> None:
    """Raise if keys of a robot are set for an environment that is none."""
    if env.target_ee_pose is not None and not is_robot(env):
        raise ConfigError(
            f"target_ee_pose: found {list(env.target_ee_pose)}, but '{env.id}' is no robot and would not use it. Set "
            f"env.train.id to {FAMILY}/<name of the task>, or remove the key"
        )


def _placed_at(cluster: ClusterConfig, node: int) -> ClusterConfig:
    """Return the cluster with what acts on the node of the robots, unless the config places it."""
    if cluster.backend == "local":
        if node != 0:
            raise ConfigError(
                f"cluster.node_groups: found robots at node {node}, but with cluster.backend=local there is only this "
                "machine; expected node_ranks: [0], or cluster.backend=ray"
            )
        return cluster
    beside: dict[Any, str] = {"env": f"{node}-0", "rollout": f"{node}-0"}
    return dataclasses.replace(cluster, component_placement=beside | dict(cluster.component_placement))


def _with_robots(env: EnvConfig, robots: list[dict[str, Any]]) -> EnvConfig:
    check_robot_keys(env)
    if not robots or not is_robot(env):
        return env
    given = env.options.get("robots")
    if given is not None and list(given) != robots:
        raise ConfigError("env.train.options.robots: robots are named in cluster.node_groups; remove the key")
    return dataclasses.replace(env, options={**env.options, "robots": robots})
