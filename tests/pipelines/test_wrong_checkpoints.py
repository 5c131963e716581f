"""Checkpoints of the wrong kind, for the wrong network, or damaged: what to give instead is said in a line."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from policy_runs import train
from safetensors.torch import load_file, save_file

from rewardlab.cli import main
from rewardlab.config import load_config
from rewardlab.errors import ConfigError
from rewardlab.rewards import RewardManager, load_reward_model

pytestmark = pytest.mark.usefixtures("without_drawing")


@pytest.fixture(scope="module")
def policy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("policy") / "run"
    train(out, "runner.max_epochs=1")
    return out


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    return capsys.readouterr().err


def test_a_model_is_no_state_of_a_run(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resume = ["run", "tabletop_ppo_mlp", f"runner.logger.log_path={tmp_path}"]
    assert "holds a trained model, not the state of a run" in answer([*resume, f"runner.resume_dir={model}"], capsys)


def test_a_policy_is_no_reward_model(policy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = policy_run / "checkpoints" / "global_step_1"
    assert "is the checkpoint of a policy" in answer(["score", str(policy), "x"], capsys)
    learned = ["reward.use_reward_model=true", f"reward.model.checkpoint_path={policy}"]
    error = answer(["run", "tabletop_ppo_mlp", *learned, f"runner.logger.log_path={tmp_path}"], capsys)
    assert "is the checkpoint of a policy, expected that of a reward model" in error


def test_a_policy_of_another_shape_is_refused_in_a_line(
    policy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(policy_run, tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "global_step_1"
    resumed = [f"runner.resume_dir={checkpoint}", f"runner.logger.log_path={tmp_path / 'again'}"]
    error = answer(["run", "tabletop_ppo_mlp", *resumed, "actor.model.hidden_sizes=[7]"], capsys)
    assert "does not fit this config (size mismatch for actor.0.weight" in error
    weights = load_file(checkpoint / "model.safetensors")
    save_file({name: torch.zeros(3) for name in weights}, checkpoint / "model.safetensors")
    assert "its policy does not fit the environment" in answer(["evaluate", str(tmp_path / "run")], capsys)


@pytest.mark.parametrize("state", [3, [], {"pairs": 3}, {"pairs": [["policy", 3]]}, {"tensor": "nope"}, {"batch": 3}])
def test_a_damaged_state_is_named(
    state: object, policy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(policy_run, tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "global_step_1"
    facts = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**facts, "state": state}))
    for command in (
        ["evaluate", str(tmp_path / "run")],
        ["run", "tabletop_ppo_mlp", f"runner.resume_dir={checkpoint}", f"runner.logger.log_path={tmp_path / 'again'}"],
    ):
        error = answer(command, capsys)
        assert error.startswith("error: ")
        assert str(checkpoint) in error


def test_cameras_that_no_episode_has_are_answered_with_those_there_are(
    write_toy_episodes: "object", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_toy_episodes(tmp_path / "data")  # type: ignore[operator]
    command = ["train-reward", "--data", str(data), f"runner.logger.log_path={tmp_path / 'run'}"]
    error = answer([*command, "reward.model.image_keys=[base_cam]"], capsys)
    assert "reward.model.image_keys: no camera 'base_cam': " in error
    assert error.endswith("has base_camera\n")
    assert "found no camera; the episodes have base_camera" in answer([*command, "reward.model.image_keys=[]"], capsys)


def test_demonstrations_that_are_not_there_are_named_by_their_key() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.sac.demo_path: there is no file or directory nope"):
        load_config("tabletop_ppo_mlp", ["algorithm.name=sac", "algorithm.sac.demo_path=nope"])


def test_models_are_moved_only_to_devices_that_are_there(model: Path) -> None:
    loaded = load_reward_model(model)
    config = load_config("tabletop_ppo_mlp", []).reward
    for device, message in (("cuda:0", "this machine has no cuda device"), ("gpu0", "expected auto, cpu, cuda")):
        with pytest.raises(ConfigError, match=f"device: found {device}, .*{message}"):
            RewardManager(loaded, config).to_device(device)
