"""Robots of `cluster.node_groups`: what acts is placed at their node, and a config that cannot have them is refused."""

from typing import Any

import pytest

from rewardlab.config import ExperimentConfig, config_from_mapping
from rewardlab.config.robots import attach_robots
from rewardlab.errors import ConfigError


def config(groups: list[dict[str, Any]], **cluster: Any) -> ExperimentConfig:
    env = {"id": "robot/peg_insertion", "target_ee_pose": [0.5, 0.0, 0.1, -3.14, 0.0, 0.0]}
    return config_from_mapping(
        {"env": {"train": env}, "cluster": {"node_groups": groups, **cluster}}, check_files=False
    )


def group(*addresses: str, **keys: Any) -> dict[str, Any]:
    return {"hardware": {"type": "Franka", "configs": [{"robot_ip": address} for address in addresses]}, **keys}


def test_the_environments_get_the_robots() -> None:
    cfg = attach_robots(config([group("10.0.0.2", "10.0.0.3")]))
    expected = [{"type": "Franka", "robot_ip": "10.0.0.2"}, {"type": "Franka", "robot_ip": "10.0.0.3"}]
    assert cfg.env.train.options["robots"] == cfg.env.eval.options["robots"] == expected
    assert attach_robots(cfg) == cfg


def test_what_acts_is_placed_at_the_node_of_the_robots() -> None:
    cfg = attach_robots(config([group("10.0.0.2", node_ranks=[1])], backend="ray"))
    assert cfg.cluster.component_placement == {"env": "1-0", "rollout": "1-0"}
    placed = config([group("10.0.0.2", node_ranks=[1])], backend="ray", component_placement={"rollout": "0-0"})
    assert attach_robots(placed).cluster.component_placement == {"env": "1-0", "rollout": "0-0"}


@pytest.mark.parametrize(
    ("groups", "cluster", "words"),
    [
        (
            [group("10.0.0.2", node_ranks=[1])],
            {},
            "robots at node 1, but with cluster.backend=local there is only this",
        ),
        ([group("a"), group("b", node_ranks=[1])], {"backend": "ray"}, "robots at the nodes \\[0, 1\\]"),
        ([group()], {}, "configs: found none, expected a block for each robot"),
    ],
)
def test_what_cannot_be_is_refused(groups: list[dict[str, Any]], cluster: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        attach_robots(config(groups, **cluster))
