"""A configuration that would mislead is refused before it runs; looking at it is allowed."""

from pathlib import Path
from typing import Any

import pytest

from rewardlab.config import config_from_mapping, load_config
from rewardlab.config.robots import attach_robots
from rewardlab.errors import ConfigError
from rewardlab.pipelines import collect, train_policy

ROBOT = Path(__file__).parents[1] / "compat" / "blocks" / "realworld_collect.yaml"
HARDWARE = {"cluster": {"node_groups": [{"hardware": {"type": "Franka", "configs": [{"robot_ip": "10.0.0.2"}]}}]}}
POSE = {"env": {"eval": {"target_ee_pose": [0.5, 0.0, 0.1, -3.14, 0.0, 0.0]}}}
COLLECT = {"runner": {"task": "collect"}, "data": {"collection": {"episodes": 1}}}


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (
            HARDWARE,
            "cluster.node_groups.0.hardware: found Franka, but env.train.id is 'tabletop/PickCube'",
        ),
        (POSE, "target_ee_pose: found .*, but 'tabletop/PickCube' is no robot and would not use it"),
        ({"env": {"train": POSE["env"]["eval"]}}, "target_ee_pose: found .*, but 'tabletop/PickCube' is no robot"),
    ],
)
@pytest.mark.parametrize("task", [{}, COLLECT])
def test_a_robot_is_not_replaced_by_a_simulation(block: dict[str, Any], reason: str, task: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{reason}"):
        config_from_mapping({**task, **block})
    cfg = config_from_mapping({**task, **block}, check_files=False)  # to look at it
    for run in (collect.run, train_policy.run):  # of a config that was made in Python
        with pytest.raises(ConfigError, match=f"^{reason}"):
            run(cfg)


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_a_robot_config_in_older_keys_is_refused_too() -> None:
    assert load_config(str(ROBOT), check_files=False).runner.task == "collect"
    with pytest.raises(ConfigError, match="which is no robot: the run would use a simulation instead"):
        load_config(str(ROBOT))


def test_a_classifier_may_be_trained_with_the_config_of_a_robot(tmp_path: Path) -> None:
    task = {"runner": {"task": "train_reward"}, "data": {"data_path": str(tmp_path)}}
    cfg = config_from_mapping({**task, **HARDWARE})
    assert attach_robots(cfg) is cfg


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm.sac.demo_path=demos"], "algorithm.sac.demo_path: ppo does not learn from demonstrations"),
        (["reward.model.checkpoint_path=x"], "reward.use_reward_model: not given, but reward.model.checkpoint_path is"),
        (["cluster.node_groups=[{node_ranks: [1]}]"], "cluster.node_groups.0.label: found null, expected a name"),
        (["cluster.node_groups=[{label: arm}]"], 'cluster.node_groups.0.label: found "arm", which no component uses'),
        (
            ["cluster.node_groups=[{label: arm}, {label: arm}]", "cluster.component_placement.env=arm-0"],
            'cluster.node_groups.0.label: found "arm", which several groups have',
        ),
        (["runner.task=train_reward", "reward.backend=onnx"], "reward.backend: found onnx, which is for policies on a"),
        (["runner.task=train_reward", "actor.precision=bf16"], "actor.precision: found bf16, which is for policies"),
        (["reward.cotrain=true"], "reward.use_reward_model: not given, but reward.cotrain is"),
        (
            ["reward.use_reward_model=true", "reward.model.model_type=rnd", "reward.env_reward_weight=0.5"],
            "reward.env_reward_weight: found 0.5, which combine_mode replace does not use",
        ),
        (["cluster.workers.actor=2"], "cluster.workers.actor: found 2, but a policy is updated by one worker"),
        (["cluster.workers.rollout=2"], "cluster.workers.rollout: found 2, but there is one for each of the 1 env"),
    ],
)
def test_keys_that_would_have_no_effect_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config("tabletop_ppo_mlp", overrides)
    assert str(error.value).startswith(message)
    load_config("tabletop_ppo_mlp", overrides, check_files=False)


def test_keys_of_what_is_switched_off_are_fine() -> None:
    off = ["reward.use_reward_model=false", "reward.model.checkpoint_path=/to/be/trained", "reward.cotrain=true"]
    load_config("tabletop_ppo_mlp", [*off, "algorithm.sac.utd_ratio=4.0", "algorithm.dqn.replay_size=9"])
    load_config("tabletop_ppo_mlp", ["cluster.workers.rollout=2", "cluster.workers.env=2"])


def test_one_file_of_the_best_model_is_a_classifiers_and_ends_in_pt(tmp_path: Path) -> None:
    file = ["runner.best_model_file=out/model.bin", f"data.data_path={tmp_path}"]
    with pytest.raises(ConfigError, match=r"best_model_file: found out/model\.bin, expected a file ending in \.pt"):
        load_config("reward_training", file)
    with pytest.raises(ConfigError, match=r"best_model_file: .* runner\.task train_policy trains no classifier"):
        load_config("tabletop_ppo_mlp", ["runner.best_model_file=model.pt"])
