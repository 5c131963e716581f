"""Sizes for several machines in one config, and where shipped configs lie."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from rewardlab.config import config_from_mapping, config_names, load_config
from rewardlab.config.load import config_files, default_config_dirs
from rewardlab.config.machines import check_machine
from rewardlab.config.schema import ClusterConfig
from rewardlab.errors import ConfigError

ROOT = Path(__file__).parents[2]
MANISKILL = sorted(name for name in config_names() if name.startswith("maniskill_"))
SIZED = {
    "seed": 1,
    "env": {"train": {"num_envs": 64}},
    "machines": {"cpu2": {"env": {"train": {"num_envs": 4}}}, "laptop": {"seed": 3}},
}


def numbers(config: dict[str, Any], *overrides: str) -> tuple[int, int, int]:
    cfg = config_from_mapping(config, overrides)
    return cfg.seed, cfg.env.train.num_envs, cfg.env.eval.num_envs


def test_a_machine_is_over_the_files_and_under_the_overrides() -> None:
    assert numbers(SIZED) == (1, 64, 64)
    assert numbers(SIZED, "+machine=cpu2") == numbers(SIZED, "machine=cpu2") == (1, 4, 4)
    assert numbers(SIZED, "env.train.num_envs=2", "+machine=cpu2") == (1, 2, 2)
    assert numbers(SIZED, "+machine=laptop") == (3, 64, 64)
    assert numbers({**SIZED, "machine": "cpu2"}) == (1, 4, 4)
    assert numbers({**SIZED, "machine": "cpu2"}, "machine=laptop") == (3, 64, 64)


def test_older_keys_are_read_in_the_sizes_of_a_machine() -> None:
    older = {"machines": {"cpu2": {"env": {"train": {"total_num_envs": 4}}}}}
    with pytest.warns(UserWarning, match=r"env\.train\.total_num_envs is now env\.train\.num_envs"):
        assert config_from_mapping(older, ["+machine=cpu2"]).env.train.num_envs == 4


@pytest.mark.parametrize(
    ("config", "override", "message"),
    [
        (SIZED, "+machine=cpu", r"machine: unknown machine 'cpu'\. Did you mean 'cpu2'\? Choices: cpu2, laptop"),
        ({}, "+machine=cpu2", "machine: found cpu2, but this config has sizes for one machine only; leave it out"),
        ({"machines": 3}, "seed=1", "machines: found 3, expected the name of a machine, and in its block keys"),
        ({"machines": {"a": 3}}, "seed=1", "machines: found {'a': 3}, expected"),
        ({"machines": {"a": {"sed": 3}}}, "machine=a", "unknown key 'sed'. Did you mean 'seed'?"),
    ],
)
def test_a_wrong_machine_is_answered(config: dict[str, Any], override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_from_mapping(config, [override])


@pytest.mark.parametrize("name", MANISKILL)
def test_shipped_sizes_for_two_cores_need_no_gpu(name: str) -> None:
    with pytest.raises(ConfigError, match=r"sized for a GPU, and there is none here; add \+machine=cpu2$"):
        load_config(name)
    large, small = load_config(name, check_files=False), load_config(name, ["+machine=cpu2"], check_files=False)
    assert (large.cluster.device, small.cluster.device) == ("cuda", "cpu")
    if large.runner.task == "train_policy":
        assert small.env.train.num_envs < large.env.train.num_envs
        assert small.env.eval.options["sim_backend"] == "cpu"


def test_the_word_is_said_only_where_it_helps() -> None:
    check_machine(ClusterConfig(device="cuda"), [])  # said later, where the device is asked for
    check_machine(ClusterConfig(device="cpu"), ["cpu2"])
    check_machine(ClusterConfig(device="cuda", backend="ray"), ["cpu2"])  # another node may have one
    with pytest.raises(ConfigError, match=r"found cuda:1.*add \+machine=a or \+machine=b"):
        check_machine(ClusterConfig(device="cuda:1"), ["a", "b"])


def test_a_users_file_has_the_machines_of_what_it_builds_on(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    machines = "machines: {cpu2: {seed: 7}, lab: {seed: 8}}"
    file.write_text(f"defaults: [maniskill_ppo_cnn, _self_]\nenv: {{train: {{num_envs: 512}}}}\n{machines}\n")
    two_cores = load_config(str(file), ["+machine=cpu2"])
    assert (two_cores.seed, two_cores.cluster.device, two_cores.env.train.num_envs) == (7, "cpu", 32)
    lab = load_config(str(file), ["+machine=lab"], check_files=False)
    assert (lab.seed, lab.cluster.device, lab.env.train.num_envs) == (8, "cuda", 512)


def test_every_config_has_one_file_which_a_wheel_carries() -> None:
    directories = default_config_dirs()
    assert len(config_files()) == sum(len(list(directory.rglob("*.yaml"))) for directory in directories)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["force-include"] == {str(place.relative_to(ROOT)): "rewardlab/configs" for place in directories}


def test_configs_of_one_directory_build_on_those_of_the_other(tmp_path: Path) -> None:
    files = config_files()
    trained, base = files["maniskill_train_resnet_reward"], files["reward_training"]
    assert trained.parent != base.parent
    by_path = load_config(str(trained), ["+machine=cpu2"], check_files=False)
    assert by_path == load_config("maniskill_train_resnet_reward", ["+machine=cpu2"], check_files=False)
    assert (
        by_path.actor.optim.weight_decay == load_config("reward_training", check_files=False).actor.optim.weight_decay
    )
