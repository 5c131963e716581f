"""Loading, layering and every way a configuration can be wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

from rewardlab.config import ExperimentConfig, config_from_mapping, config_names, load_config, text_override, to_yaml
from rewardlab.config.load import OTHER_NAMES, config_files
from rewardlab.config.schema_keys import schema_keys
from rewardlab.errors import ConfigError


def fault(overrides: list[str], name: str = "tabletop_pickcube") -> str:
    with pytest.raises(ConfigError) as error:
        load_config(name, overrides)
    return str(error.value)


def write(directory: Path, name: str, text: str) -> str:
    file = directory / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


# -- what a good configuration gives ---------------------------------------------------------------------------------


def test_shipped_configs_load_and_describe_themselves() -> None:
    names = config_names()
    assert {"tabletop_pickcube", "tabletop_peginsertion", "tabletop_pickcube_randomized"} <= set(names)
    for name, description in names.items():
        assert description, f"{name}.yaml does not start with a comment"
        needed = ["reward.model.checkpoint_path=trained"] if name.endswith("_reward") else []
        if "???" in config_files()[name].read_text():
            with pytest.raises(ConfigError, match=r"reward.model.options.expert_data_path: not given, but required"):
                load_config(name, needed, check_files=False)
            needed.append("reward.model.options.expert_data_path=episodes")
        load_config(name, needed, check_files=False)


def test_pickcube() -> None:
    cfg = load_config("tabletop_pickcube")
    assert cfg.runner.task == "collect"
    assert (cfg.env.train.id, cfg.env.train.num_envs) == ("tabletop/PickCube", 64)
    assert (cfg.env.train.cameras, cfg.env.train.image_size) == (("base_camera",), (3, 64, 64))
    assert (cfg.data.collection.episodes, cfg.data.collection.policy) == (200, "noisy_expert")
    assert load_config("tabletop_peginsertion").env.eval.id == "tabletop/PegInsertion"


def test_one_config_builds_on_another() -> None:
    cfg = load_config("tabletop_pickcube_randomized")
    assert cfg.env.train.num_envs == 64
    assert set(cfg.env.train.options["randomize"]) == {"light", "colors", "camera", "distractors", "object_size"}


def test_episodes_of_maniskill_and_of_metaworld_have_directories_of_their_own() -> None:
    """A directory is read to the bottom, so that neither may be below the other."""
    metaworld = load_config("metaworld_collect").data.collection.save_dir
    assert load_config("metaworld_reward", check_files=False).data.paths == (metaworld,)
    maniskill = Path(load_config("maniskill_ppo_mlp_collect", check_files=False).data.collection.save_dir)
    assert maniskill.parts[0] == "collected_data"  # what docs/simulators.md names as --data
    assert maniskill.parts[0] not in Path(metaworld).parts


def test_a_users_file_builds_on_a_shipped_one(tmp_path: Path) -> None:
    cfg = load_config(write(tmp_path, "mine", "defaults: [tabletop_peginsertion, _self_]\nseed: 7\n"))
    assert (cfg.seed, cfg.env.train.id) == (7, "tabletop/PegInsertion")


def test_groups_compose(tmp_path: Path) -> None:
    (tmp_path / "algorithm").mkdir()
    write(tmp_path / "algorithm", "ppo", "name: ppo\n")
    write(tmp_path / "algorithm", "sac", "name: sac\nsac: {tau: 0.01}\n")
    write(tmp_path, "mine", "defaults: [algorithm: ppo, _self_]\n")
    assert load_config("mine", config_dir=tmp_path).algorithm.name == "ppo"
    chosen = load_config("mine", ["algorithm=sac", "algorithm.gamma=0.9"], config_dir=tmp_path).algorithm
    assert (chosen.name, chosen.sac.tau, chosen.gamma) == ("sac", 0.01, 0.9)


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_an_override_needs_no_plus(prefix: str) -> None:
    cfg = load_config("tabletop_pickcube", [f"{prefix}data.fail_success_ratio=3", f"{prefix}seed=5"])
    assert (cfg.data.fail_success_ratio, cfg.seed) == (3.0, 5)


def test_overrides_reach_blocks_and_items_of_a_list() -> None:
    nodes = {"cluster": {"node_groups": [{"hardware": {"type": "Franka", "configs": [{"robot_ip": "?"}]}}]}}
    overrides = [
        "cluster.node_groups.0.hardware.configs.0.robot_ip=10.0.0.2",
        "cluster.component_placement={actor: 0-0, reward: 1}",
        "env.train.image_size=[3,128,96]",
    ]
    cfg = config_from_mapping(nodes, overrides, check_files=False)
    hardware = cfg.cluster.node_groups[0].hardware
    assert hardware is not None
    assert hardware.configs == ({"robot_ip": "10.0.0.2"},)
    assert cfg.cluster.component_placement == {"actor": "0-0", "reward": "0-1"}
    assert cfg.env.train.image_size == (3, 128, 96)


@pytest.mark.parametrize("text", ["/a b/(c),x=1", "it's", 'say "hi"', "null", "100", "a\\b", "é#"])
def test_text_override_keeps_the_text(text: str) -> None:
    assert config_from_mapping({}, [text_override("data.debug_save_dir", text)]).data.debug_save_dir == text


def test_eval_inherits_what_it_does_not_set() -> None:
    env = {"train": {"id": "CartPole-v1", "num_envs": 8, "options": {"a": 1, "b": 2}}, "eval": {"options": {"b": 3}}}
    cfg = config_from_mapping({"env": env}, ["env.train.max_episode_steps=50", "env.eval.num_envs=2"])
    assert (cfg.env.eval.id, cfg.env.eval.num_envs, cfg.env.eval.max_episode_steps) == ("CartPole-v1", 2, 50)
    assert cfg.env.eval.options == {"a": 1, "b": 3}
    assert cfg.env.train.options == {"a": 1, "b": 2}


def test_interpolations_see_defaults_overrides_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARDLAB_TEST", "/data")
    mapping = {
        "data": {"data_path": "${oc.env:REWARDLAB_TEST}/x", "debug_save_dir": "${runner.logger.log_path}/frames"},
        "reward": {"model": {"debug_save_dir": "${data.debug_save_dir}/scored"}},
    }
    cfg = config_from_mapping(mapping, ["runner.logger.log_path=elsewhere"])
    assert cfg.data.data_path == "/data/x"
    assert cfg.reward.model.debug_save_dir == "elsewhere/frames/scored"


def test_debug_directory_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUG_IMAGE_SAVE_DIR", "/tmp/frames")
    assert config_from_mapping({}).reward.model.debug_save_dir == "/tmp/frames"
    assert config_from_mapping({}, ["reward.model.debug_save_dir=null"]).reward.model.debug_save_dir is None


def test_to_yaml_round_trip(tmp_path: Path) -> None:
    overrides = ["runner.logger.experiment_name='1e4'", "actor.optim.lr=1e-4", "cluster.component_placement.reward=0-1"]
    cfg = load_config("tabletop_pickcube_randomized", [*overrides, "env.eval.num_envs=2"])
    assert load_config(write(tmp_path, "again", to_yaml(cfg))) == cfg
    assert "experiment_name: '1e4'" in to_yaml(cfg)


def test_data_may_be_in_several_directories(tmp_path: Path) -> None:
    assert config_from_mapping({"data": {"data_path": "a"}}).data.paths == ("a",)
    cfg = config_from_mapping({"runner": {"task": "train_reward"}}, [f"data.data_path=[{tmp_path},{tmp_path}]"])
    assert cfg.data.paths == (str(tmp_path), str(tmp_path))
    assert load_config(write(tmp_path, "again", to_yaml(cfg))) == cfg
    with pytest.raises(ConfigError, match=r"data\.data_path: there is no file or directory gone"):
        config_from_mapping({"runner": {"task": "train_reward"}}, [f"data.data_path=[{tmp_path},gone]"])


def test_an_empty_mapping_gives_the_defaults() -> None:
    assert config_from_mapping({}) == ExperimentConfig()


def test_loading_does_not_import_torch() -> None:
    code = "import sys; from rewardlab.config import load_config; load_config('tabletop_pickcube'); "
    subprocess.run([sys.executable, "-c", code + "assert 'torch' not in sys.modules"], check=True)


# -- what a bad one says ---------------------------------------------------------------------------------------------


def test_unknown_key_names_the_nearest_in_its_block() -> None:
    message = fault(["reward.combine_mod=add"])
    assert message == "unknown key 'reward.combine_mod'. Did you mean 'reward.combine_mode'?"


def test_key_in_the_wrong_block_names_the_right_one() -> None:
    assert "unknown key 'reward.hidden_dim'. Did you mean 'reward.model.hidden_dim'?" in fault(["reward.hidden_dim=3"])
    assert "unknown key 'rewards'. Did you mean 'reward'?" in fault(["rewards.hidden_dim=3"])
    assert fault(["algorithm.lr=3"]) == "unknown key 'algorithm.lr'. Did you mean 'actor.optim.lr'?"
    assert fault(["max_epochs=3"]) == "unknown key 'max_epochs'. Did you mean 'runner.max_epochs'?"
    assert "'algorithm.sac.tau'? Like it: algorithm.dqn.tau" in fault(["algorithm.tau=3"])


def test_names_of_other_libraries_lead_to_todays() -> None:
    assert set(OTHER_NAMES.values()) <= {key.rpartition(".")[2] for key in schema_keys()}
    assert "Did you mean 'actor.optim.lr'?" in fault(["algorithm.learning_rate=3"])


def test_an_error_never_lists_all_there_is() -> None:
    for message in (fault(["nonsense=3"]), fault([], "nonsense"), fault([], "zoo/cartpole")):
        assert message.count(",") <= 8


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("env.train.num_envs=many", 'env.train.num_envs: found "many", expected a whole number'),
        ("env.train.num_envs='8'", 'env.train.num_envs: found "8", expected a whole number'),
        ("env.train.num_envs=true", "env.train.num_envs: found true, expected a whole number"),
        ("env.train.num_envs=0", "env.train.num_envs: found 0, expected a number above 0"),
        ("reward.success_reward=high", 'reward.success_reward: found "high", expected a number'),
        ("reward.success_reward=nan", "reward.success_reward: found NaN, expected a finite number"),
        ("reward.reward_threshold=1.0", "reward.reward_threshold: found 1.0, expected a number below 1.0"),
        ("reward.use_reward_model=1", "reward.use_reward_model: found 1, expected true or false"),
        ("data.debug_save_dir=[a]", 'data.debug_save_dir: found ["a"], expected text'),
        ("data.data_path=[a,1]", 'data.data_path: found ["a", 1], expected a directory, or a list of directories'),
        ("env.train.cameras=base", 'env.train.cameras: found "base", expected a list'),
        ("runner.logger=null", "runner.logger: found null, expected a block of keys"),
        ("env.train=null", "env.train: found null, expected a block of keys"),
        ("env.train.image_size=[64,64,3]", "env.train.image_size: found [64, 64, 3], expected [3, height, width]"),
        (
            "env.train.image_size=[3,4,64]",
            "env.train.image_size: found [3, 4, 64], expected [3, height, width] with a height and a width of at least",
        ),
        ("runner.task=colect", "runner.task: unknown value 'colect'. Did you mean 'collect'? Choices: "),
        ("runner.task=3", "runner.task: found 3, expected 'collect', 'train_reward' or 'train_policy'"),
        (
            "cluster.component_placement.reward=gpu1",
            'cluster.component_placement.reward: found "gpu1", expected "<node>-<device>" such as 0-1',
        ),
        (
            "cluster.component_placement.rewrd=0-1",
            "unknown key 'cluster.component_placement.rewrd'. Did you mean 'cluster.component_placement.reward'?",
        ),
        ("data.data_path=???", "data.data_path: not given, but required (??? in the config)"),
        ("data.data_path=${no.such.key}", "data.data_path: Interpolation key 'no.such.key' not found"),
        (
            "data.collection.frames=few",
            'data.collection.frames: found "few", expected all, every:5 (each fifth frame of',
        ),
        ("data.collection.frames=every:0", 'data.collection.frames: found "every:0", expected all, every:5'),
        ("data.collection.frames=10", "data.collection.frames: found 10, expected all, every:5"),
        ("data.collection.episodes=null", "data.collection.episodes: found null, expected a number of episodes"),
    ],
)
def test_wrong_value(override: str, message: str) -> None:
    found = fault([override])
    assert found.startswith(message)
    assert "\n" not in found


def test_errors_of_several_keys_are_listed_one_per_line() -> None:
    lines = fault(["seed=-1", "env.train.num_envs=a", "reward.reward_mode=stepwise"]).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["seed", "env.train.num_envs", "reward.reward_mode"]


def test_a_fault_of_eval_alone_is_reported() -> None:
    assert fault(["env.eval.num_envs=a"]) == 'env.eval.num_envs: found "a", expected a whole number'


def test_batch_must_be_whole_micro_batches() -> None:
    assert fault(["actor.global_batch_size=32", "actor.micro_batch_size=24"]) == (
        "actor.global_batch_size: found 32, expected a multiple of micro_batch_size, which is 24"
    )


def test_a_reward_model_needs_a_checkpoint() -> None:
    assert fault(["reward.use_reward_model=true"]) == (
        "reward.model.checkpoint_path: found null, expected the path of a trained reward model, because "
        "reward.use_reward_model is true (random weights are never used); or name one that learns in the run, such as "
        "model_type: rnd"
    )


def test_files_that_a_run_reads_must_exist(tmp_path: Path) -> None:
    use = ["reward.use_reward_model=true", f"reward.model.checkpoint_path={tmp_path}/model"]
    missing = f"reward.model.checkpoint_path: there is no file or directory {tmp_path}/model"
    assert fault(use) == missing
    assert fault([*use, "runner.resume_dir=/no/run"]).splitlines() == [
        "runner.resume_dir: there is no file or directory /no/run",
        missing,
    ]
    load_config("tabletop_pickcube", use, check_files=False)
    (tmp_path / "model").mkdir()
    load_config("tabletop_pickcube", use)
    # Not read by this run, so it may not exist yet.
    load_config("tabletop_pickcube", ["reward.model.checkpoint_path=/to/be/trained", "data.data_path=/to/be/collected"])


def test_training_a_reward_model_needs_data(tmp_path: Path) -> None:
    assert fault(["runner.task=train_reward"]).startswith("data.data_path: found null, expected the directory")
    assert fault(["runner.task=train_reward", "data.data_path=/no/data"]) == (
        "data.data_path: there is no file or directory /no/data"
    )
    load_config("tabletop_pickcube", ["runner.task=train_reward", f"data.data_path={tmp_path}"])


def test_missing_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMBODIED_PATH", raising=False)
    with pytest.raises(ConfigError) as error:
        config_from_mapping({"data": {"data_path": "${oc.env:EMBODIED_PATH}/data"}})
    assert str(error.value) == "data.data_path: Environment variable 'EMBODIED_PATH' not found"


def test_unknown_config_name() -> None:
    message = fault([], "tabletop_pickcub")
    assert message.startswith("unknown config 'tabletop_pickcub'. Did you mean 'tabletop_pickcube'? Like it: ")
    assert "`rewardlab config list` shows all" in message
    assert fault([], "/no/such.yaml") == "there is no configuration file /no/such.yaml"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [("seed: 1\nrunner:\n\ttask: collect\n", 3, "cannot start any token"), ("seed: 1\nseed: 2\n", 2, "duplicate key")],
)
def test_broken_yaml_names_file_and_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    file = write(tmp_path, "broken", text)
    message = fault([], file)
    assert message.startswith(f"{file}, line {line}: not valid YAML: ")
    assert problem in message


def test_missing_entry_of_a_defaults_list(tmp_path: Path) -> None:
    file = write(tmp_path, "mine", "defaults: [no_such_config]\n")
    assert fault([], file) == f"{file}: In 'mine': Could not load 'no_such_config'."


@pytest.mark.parametrize(
    ("override", "reason"),
    [("seed", "expected key=value"), ("seed=1,2", "expected one value"), ("~seed", "a key cannot be removed")],
)
def test_override_that_is_none(override: str, reason: str) -> None:
    assert fault([override]).startswith(f"override '{override}': {reason}")
