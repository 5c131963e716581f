"""Every YAML block and every override in older keys gives today's keys with the same values."""

import warnings
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from rewardlab.compat import CompatibilityNote, config_keys, names
from rewardlab.config import config_from_mapping, config_names, load_config
from rewardlab.config.schema_keys import schema_keys
from rewardlab.errors import ConfigError

PRINTED = Path(__file__).parent / "blocks"  # as users have them

REWARD_BLOCK = {
    "reward.use_reward_model": True,
    "reward.group_name": "RewardGroup",
    "reward.success_reward": 1.0,
    "reward.fail_reward": 0.0,
    "reward.reward_threshold": 0.5,
    "reward.combine_mode": "replace",
    "reward.reward_weight": 10.0,
    "reward.env_reward_weight": 0.0,
    "reward.model.model_type": "resnet_reward",
    "reward.model.arch": "resnet18",
    "reward.model.hidden_dim": 256,
    "reward.model.image_size": (3, 128, 128),
}
STAGE_1 = {
    "reward.group_name": "RewardGroup",
    "reward.use_reward_model": False,
    "reward.model.image_keys": ("base_camera",),
    "reward.model.image_size": (3, 64, 64),
    "data.collection.enabled": True,
    "data.collection.success_dir": "./reward_data/positive",
    "data.collection.failure_dir": "./reward_data/negative",
    "data.collection.cameras": ("base_camera",),
    "data.collection.target_success": 500,
    "data.collection.target_failure": 500,
    "data.collection.format": "npy",
}
STAGE_3 = {
    "reward.group_name": "RewardGroup",
    "reward.use_reward_model": True,
    "reward.reward_type": "binary",
    "reward.model.checkpoint_path": "./checkpoints/reward_model.pt",
    "reward.model.image_keys": ("base_camera",),
    "reward.model.image_size": (3, 64, 64),
    "reward.model.hidden_dim": 256,
    "reward.model.num_spatial_blocks": 8,
    "reward.model.pretrained_encoder_path": "./resnet10_pretrained.pt",
    "reward.model.use_pretrain": True,
    "reward.model.freeze_encoder": True,
    "data.collection.enabled": False,
    "data.collection.format": "safetensors",
}
BLOCKS: dict[str, dict[str, Any]] = {
    "simulation_reward_block": {
        **REWARD_BLOCK,
        "reward.reward_mode": "terminal",
        "reward.model.dropout": 0.1,
        "reward.model.checkpoint_path": "path/to/checkpoint.safetensors",
        "reward.model.debug_save_dir": "runs//debug_images",
    },
    "simulation_two_stage": {
        "runner.resume_dir": "logs/.../checkpoints/global_step_100",
        "reward.use_reward_model": True,
        "reward.model.checkpoint_path": "path/to/trained_resnet.safetensors",
    },
    "simulation_terminal_mode": {
        "reward.reward_mode": "terminal",
        "reward.success_reward": 1.0,
        "reward.fail_reward": 0.0,
    },
    "simulation_per_step_mode": {"reward.reward_mode": "per_step"},
    "simulation_debug_images": {"reward.model.debug_save_dir": "logs/debug_images"},
    "simulation_troubleshooting": {
        "reward.reward_mode": "terminal",
        "reward.reward_threshold": 0.6,
        "reward.fail_reward": 0.0,
    },
    "realworld_reward_block": {
        **REWARD_BLOCK,
        "reward.reward_mode": "per_step",
        "reward.model.dropout": 0.0,
        "reward.model.normalize": True,
        "reward.model.precision": "bf16",
        "reward.model.checkpoint_path": "path/to/checkpoint/best_model",
        "reward.model.debug_save_dir": None,
    },
    "realworld_collect": {
        "cluster.node_groups.0.hardware.type": "Franka",
        "cluster.node_groups.0.hardware.configs": ({"robot_ip": "ROBOT_IP"},),
        "runner.task": "collect",
        "data.collection.episodes": 20,
        "env.eval.target_ee_pose": (0.5, 0.0, 0.1, -3.14, 0.0, 0.0),
        "env.eval.success_hold_steps": 20,
        "env.train.success_hold_steps": 20,
    },
    "realworld_reward_in_rl": {
        "reward.use_reward_model": True,
        "reward.reward_mode": "per_step",
        "reward.combine_mode": "replace",
        "reward.model.checkpoint_path": "logs/reward_model_realworld/checkpoints/best_model",
    },
    "realworld_debug_images": {"reward.model.debug_save_dir": "logs/debug_images"},
    "workflow_stage1_collect": STAGE_1,
    "workflow_complete_stage1": STAGE_1,
    "workflow_stage3_train": STAGE_3,
    "workflow_complete_stage3": STAGE_3,
    "guide_collect": {
        "env.train.obs_mode": "state",
        "env.train.options": {},
        "data.collection.enabled": True,
        "data.collection.save_dir": "/embodied/data",
        "data.collection.target_success": 5000,
        "data.collection.target_failure": 5000,
        "data.collection.format": "pickle",
        "runner.task": "train_policy",
    },
    "guide_train_reward": {
        "runner.task": "train_reward",
        "data.data_path": "/embodied/data",
        "runner.max_epochs": 100,
        "actor.micro_batch_size": 64,
        "actor.global_batch_size": 64,
        "actor.optim.lr": 1e-4,
        "runner.checkpoint_dir": "/embodied/../../logs/reward_checkpoints",
    },
    "guide_reward_in_rl": {
        "cluster.component_placement": {"actor": "0-0", "env": "0-0", "rollout": "0-0", "reward": "0-1"},
        "runner.resume_dir": None,
        "reward.use_reward_model": True,
        "reward.model.model_type": "resnet_reward",
        "reward.combine_mode": "replace",
        "reward.model.checkpoint_path": "logs/reward_checkpoints/best_model.pt",
    },
}


def value_at(cfg: Any, key: str) -> Any:
    for part in key.split("."):
        cfg = cfg[int(part)] if part.isdigit() else getattr(cfg, part)
    return cfg


def notes_of(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(entry.message) for entry in caught]


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
@pytest.mark.parametrize("block", BLOCKS)
def test_block_of_older_keys(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBODIED_PATH", "/embodied")
    mapping: Any = OmegaConf.to_container(OmegaConf.load(PRINTED / f"{block}.yaml"))
    cfg = config_from_mapping(mapping, check_files=False)
    assert {key: value_at(cfg, key) for key in BLOCKS[block]} == BLOCKS[block]
    # The same block as a file of its own, through Hydra.
    assert load_config(str(PRINTED / f"{block}.yaml"), check_files=False) == cfg


def test_every_block_is_tested() -> None:
    assert {file.stem for file in PRINTED.glob("*.yaml")} == {*BLOCKS, "simulation_negative_reward"}


def test_negative_reward_is_refused_with_the_key_to_use() -> None:
    with pytest.raises(ConfigError, match=r"use_negative_reward = True is not supported: .*set reward\.fail_reward"):
        load_config(str(PRINTED / "simulation_negative_reward.yaml"))
    with pytest.warns(CompatibilityNote, match="reward.use_negative_reward is ignored"):
        config_from_mapping({"reward": {"use_negative_reward": False}})


def test_overrides_of_a_training_command() -> None:
    overrides = [
        "data.num_samples_per_episode=0",
        "data.fail_success_ratio=3.0",
        "actor.global_batch_size=32",
        "actor.micro_batch_size=16",
        "runner.max_epochs=100",
        "runner.val_check_interval=10",
        "runner.save_interval=10",
        "runner.early_stop.patience=10",
        'data.debug_save_dir="logs/training_data_debug_realworld"',
        "runner.logger.log_path=logs/reward_model_realworld",
    ]
    cfg = load_config("tabletop_pickcube", overrides)
    assert (cfg.data.num_samples_per_episode, cfg.data.fail_success_ratio) == (0, 3.0)
    assert (cfg.actor.global_batch_size, cfg.actor.micro_batch_size) == (32, 16)
    assert (cfg.runner.max_epochs, cfg.runner.val_check_interval, cfg.runner.save_interval) == (100, 10, 10)
    assert cfg.runner.early_stop.patience == 10
    assert cfg.data.debug_save_dir == "logs/training_data_debug_realworld"
    assert cfg.runner.logger.log_path == "logs/reward_model_realworld"


def test_overrides_of_older_keys() -> None:
    with pytest.warns(CompatibilityNote):
        collect = load_config("tabletop_pickcube", ["reward.collect_data=True", "reward.use_reward_model=False"])
    assert collect.data.collection.enabled
    assert collect.data.collection.format == "npy"
    assert not collect.reward.use_reward_model

    train = ["reward.use_reward_model=True", "reward.collect_data=False"]
    train.append('reward.reward_model.checkpoint_path="./checkpoints/reward_model.pt"')
    with pytest.warns(CompatibilityNote):
        policy = load_config("tabletop_pickcube", train, check_files=False)
    assert policy.reward.model.checkpoint_path == "./checkpoints/reward_model.pt"
    assert not policy.data.collection.enabled


def test_each_old_name_is_noted_once_in_one_line() -> None:
    old = {"reward": {"mode": "add", "reward_model": {"hidden_dim": 8, "dropout": 0.0}, "reward_model_type": "resnet"}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config_from_mapping(old, ["reward.mode=weighted"])
    assert notes_of(caught) == [
        "reward.mode is now reward.combine_mode",
        "reward.reward_model is now reward.model",
        "reward.reward_model_type is now reward.model.model_type",
        "reward.model.model_type: resnet is now resnet_reward",
    ]


def test_todays_names_give_no_notes(recwarn: pytest.WarningsRecorder) -> None:
    load_config("tabletop_pickcube", ["reward.combine_mode=add"])
    assert not recwarn.list


def test_translate_leaves_its_argument_alone() -> None:
    old = {"reward": {"mode": "add"}}
    assert config_keys.translate(old).mapping == {"reward": {"combine_mode": "add"}}
    assert old == {"reward": {"mode": "add"}}


def test_old_and_new_name_with_different_values_is_an_error() -> None:
    with pytest.raises(ConfigError) as error:
        config_from_mapping({"reward": {"mode": "add", "combine_mode": "replace"}})
    assert str(error.value) == (
        "reward.mode = 'add' and reward.combine_mode = 'replace' set the same key: keep reward.combine_mode alone"
    )


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_old_and_new_name_with_the_same_value_is_fine() -> None:
    cfg = config_from_mapping({"reward": {"mode": "add", "combine_mode": "add"}})
    assert cfg.reward.combine_mode == "add"


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
@pytest.mark.parametrize(("key", "override"), [("mode", "combine_mode"), ("combine_mode", "mode")])
def test_an_override_wins_whichever_name_it_uses(key: str, override: str) -> None:
    cfg = config_from_mapping({"reward": {key: "add"}}, [f"reward.{override}=weighted"])
    assert cfg.reward.combine_mode == "weighted"


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_what_an_old_name_implies_gives_way_to_what_is_said() -> None:
    collect = {"reward_data_collection": {"enabled": True}}
    assert config_from_mapping(collect).data.collection.format == "pickle"
    assert config_from_mapping(collect, ["data.collection.format=npy"]).data.collection.format == "npy"
    said = {"data": {"collection": {"format": "safetensors"}}}
    assert config_from_mapping(said, ["reward.collect_data=true"]).data.collection.format == "safetensors"


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_arguments_of_a_simulator_become_options() -> None:
    params = {"id": "PickCube-v1", "obs_mode": "rgb", "control_mode": "pd_ee_delta_pos", "render_mode": "rgb_array"}
    block = {"env_type": "maniskill", "total_num_envs": 8, "reward_render_mode": "always", "init_params": params}
    env = config_from_mapping({"env": {"train": block}}, ["env.eval.init_params.id=PushCube-v1"]).env
    assert (env.train.id, env.train.obs_mode, env.train.num_envs) == ("maniskill/PickCube-v1", "images", 8)
    assert (env.eval.id, env.eval.obs_mode) == ("maniskill/PushCube-v1", "images")
    assert env.train.options == {"control_mode": "pd_ee_delta_pos"}


def test_the_name_of_a_simulator_is_noted_as_part_of_the_id() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = config_from_mapping({}, ["env.train.init_params.id=PickCube-v1", "env.train.env_type=maniskill"]).env
        assert config_from_mapping({}, [f"env.train.init_params.id={env.train.id}"]).env == env
    assert notes_of(caught)[:3] == [
        "env.train.init_params.id is now env.train.id",
        "env.train.init_params.id: PickCube-v1 is now maniskill/PickCube-v1",
        "env.train.env_type is ignored: env.train.id begins with it, as in maniskill/PickCube-v1",
    ]


def test_older_config_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(names.CONFIG_NAMES, "older_pickcube", {"config": "tabletop_pickcube"})
    with pytest.warns(CompatibilityNote, match="config older_pickcube is now tabletop_pickcube"):
        assert load_config("older_pickcube") == load_config("tabletop_pickcube")


def test_tables_lead_to_keys_that_exist_and_from_keys_that_do_not() -> None:
    known = set(schema_keys())
    implied = {key for values in config_keys.IMPLIED.values() for key in values}
    implied |= {key for values in config_keys.SET.values() for key in values}
    assert {*config_keys.KEYS.values(), *config_keys.VALUES, *implied} <= known
    assert known.isdisjoint({*config_keys.KEYS, *config_keys.DROPPED, *config_keys.REFUSED})


def test_no_row_leads_to_another_row() -> None:
    for today in config_keys.KEYS.values():
        path = today.split(".")
        assert not any(".".join(path[:n]) in config_keys.KEYS for n in range(1, len(path) + 1)), today


def test_older_name_of_reward_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBODIED_PATH", "/embodied")
    with pytest.warns(CompatibilityNote, match="maniskill_train_reward_model is now maniskill_train_resnet_reward"):
        cfg = load_config("maniskill_train_reward_model", check_files=False)
    assert (cfg.runner.task, cfg.data.data_path) == ("train_reward", "/embodied/data")
    assert cfg.runner.checkpoint_dir == "/embodied/../../logs/reward_checkpoints"
    assert cfg.runner.best_model_file == "/embodied/../../logs/reward_checkpoints/reward_model_best.pt"


def test_the_configs_named_in_place_of_older_ones_exist() -> None:
    assert {row["config"] for row in names.CONFIG_NAMES.values()} <= set(config_names())


def test_the_size_of_collected_pictures_is_that_of_the_drawn_ones() -> None:
    block = {"collect_data": True, "data_collection": {"image_size": [3, 96, 128]}}
    with pytest.warns(CompatibilityNote, match=r"reward\.data_collection\.image_size is now env\.train\.image_size"):
        cfg = config_from_mapping({"reward": block})
    assert cfg.env.train.image_size == cfg.env.eval.image_size == (3, 96, 128)
    with pytest.raises(ConfigError, match="set the same key"):
        config_from_mapping({"reward": block, "actor": {"model": {"image_size": [3, 64, 64]}}})


# Over which of our configs a block is laid; all but one of these said the same keys by today's names.
OVER = {
    "realworld_collect": "tabletop_pickcube",
    "guide_collect": "maniskill_collect_reward_data",
    "guide_train_reward": "maniskill_train_resnet_reward",
    "guide_reward_in_rl": "maniskill_ppo_mlp_resnet_reward",
    **dict.fromkeys(["simulation_terminal_mode", "simulation_troubleshooting"], "maniskill_ppo_mlp_resnet_reward"),
    **{block: "maniskill_ppo_cnn" for block in BLOCKS if block.startswith("workflow_")},
}


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_over_a_shipped_config_wins(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBODIED_PATH", "/embodied")
    base = OVER.get(block, "tabletop_ppo_mlp_collect")
    (tmp_path / "base.yaml").write_text(f"defaults: [{base}]\nreward: {{model: {{checkpoint_path: model}}}}")
    file = tmp_path / "mine.yaml"
    file.write_text(f"defaults: [base, _self_]\n{(PRINTED / f'{block}.yaml').read_text()}")
    cfg = load_config(str(file), check_files=False)
    # What an older key implies gives way to what a shipped config says, as the name of the experiment is its own.
    weak = ("data.collection.format", "reward.model.debug_save_dir", "runner.task", "env.train.options")
    said = {key: value for key, value in BLOCKS[block].items() if key not in weak}
    assert {key: value_at(cfg, key) for key in said} == said


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_overrides_by_older_names_over_a_shipped_config_win() -> None:
    old = ["reward.mode=add", "reward.collect_data=false", "reward_training.epochs=7", "reward_mode=terminal"]
    cfg = load_config("tabletop_ppo_mlp_resnet_reward", [*old, "reward.resnet.checkpoint_path=m"], check_files=False)
    assert (cfg.reward.combine_mode, cfg.reward.reward_mode, cfg.runner.max_epochs) == ("add", "terminal", 7)


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_files_that_build_on_files_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "below.yaml").write_text(
        "defaults: [tabletop_ppo_mlp, _self_]\nreward: {mode: add, reward_weight: 2.0}"
    )
    (tmp_path / "above.yaml").write_text("defaults: [below, _self_]\nreward: {combine_mode: weighted}")
    (tmp_path / "first.yaml").write_text("defaults: [_self_, below]\nreward: {combine_mode: weighted}")
    reward = load_config(str(tmp_path / "above.yaml")).reward
    assert (reward.combine_mode, reward.reward_weight) == ("weighted", 2.0)
    assert load_config(str(tmp_path / "first.yaml")).reward.combine_mode == "add"
    (tmp_path / "reward").mkdir()
    (tmp_path / "reward" / "mine.yaml").write_text("combine_mode: add\nreward_weight: 3.0")
    (tmp_path / "group.yaml").write_text("defaults: [tabletop_ppo_mlp, reward: mine, _self_]\nreward: {mode: weighted}")
    reward = load_config(str(tmp_path / "group.yaml")).reward
    assert (reward.combine_mode, reward.reward_weight) == ("weighted", 3.0)
    (tmp_path / "zoo.yaml").write_text(
        "defaults: [zoo/cartpole_ppo_rnd@_global_, _self_]\nreward_training: {epochs: 3}"
    )
    assert load_config(str(tmp_path / "zoo.yaml")).runner.max_epochs == 3


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_training_the_reward_model_only_is_a_task_of_its_own() -> None:
    block = {"reward_training": {"enabled": True, "only": True}}
    assert (
        load_config("tabletop_ppo_mlp", ["reward_training.only=true"], check_files=False).runner.task == "train_reward"
    )
    assert config_from_mapping(block, check_files=False).runner.task == "train_reward"
    block["reward_training"]["only"] = False
    said = {**block, "runner": {"task": "train_policy"}}
    assert config_from_mapping(said).runner.task == "train_policy"
    with pytest.raises(
        ConfigError, match=r"reward_training\.only = 'train_reward' and runner\.task = .* set the same key"
    ):
        config_from_mapping({**said, "reward_training": {"only": True}})


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_a_reward_model_that_is_switched_off_may_be_incomplete() -> None:
    off = load_config("zoo/cartpole_dqn_red", ["reward.use_reward_model=false"])
    assert (off.reward.use_reward_model, off.reward.pretrain, off.reward.models[0].options) == (False, True, {})
    with pytest.raises(ConfigError, match=r"reward\.model\.options\.expert_data_path: not given, but required"):
        load_config("zoo/cartpole_dqn_red")
