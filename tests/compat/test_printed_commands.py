"""Every command of the older documentation runs as printed (but for the name of the package), or says what it needs."""

import os
import pickle
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rewardlab import train_reward_model
from rewardlab.cli import main
from rewardlab.data import summarize
from rewardlab.models.resnet import ResNet
from rewardlab.rewards import load_reward_model
from rewardlab.rl.evaluation import Evaluation

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

# What needs something that rewardlab does not have: what it is, and what runs instead.
REFUSED = {
    "bash examples/embodiment/run_embodiment.sh maniskill_ppo_mlp_collect": "ManiSkill tabletop_ppo_mlp_collect",
    "bash examples/embodiment/run_embodiment.sh maniskill_ppo_mlp_resnet_reward": "ManiSkill "
    "tabletop_ppo_mlp_resnet_reward",
    "bash examples/embodiment/run_embodiment.sh maniskill_ppo_cnn": "ManiSkill tabletop_ppo_cnn",
    "bash examples/embodiment/run_embodiment.sh maniskill_collect_reward_data": "ManiSkill tabletop_ppo_mlp_collect",
    "bash examples/embodiment/collect_data.sh": "robot tabletop_peginsertion",
    "bash examples/embodiment/run_realworld_async.sh realworld_peginsertion_rlpd_cnn_async": "robot "
    "tabletop_sac_mlp_resnet_reward",
    """python examples/embodiment/train_embodied_agent.py \\
    --config-path examples/embodiment/config/ \\
    --config-name maniskill_ppo_cnn \\
    reward.collect_data=True \\
    reward.use_reward_model=False""": "ManiSkill tabletop_ppo_cnn",
    """python examples/embodiment/train_embodied_agent.py \\
    --config-path examples/embodiment/config/ \\
    --config-name maniskill_ppo_cnn \\
    reward.use_reward_model=True \\
    reward.collect_data=False \\
    reward.reward_model.checkpoint_path="./checkpoints/reward_model.pt\"""": "ManiSkill tabletop_ppo_cnn",
}
# The others; those with many overrides are in tests/test_examples.py too, through their scripts.
TRAIN_ON_DIRECTORIES = """python -m rewardlab.models.reward_model.train_reward_model \\
    --positive-dir ./reward_data/positive \\
    --negative-dir ./reward_data/negative \\
    --output-checkpoint ./checkpoints/reward_model.pt \\
    --pretrained-encoder-path ./resnet10_pretrained.pt \\
    --backbone resnet10 \\
    --image-key base_camera \\
    --image-size 3 64 64 \\
    --batch-size 128 \\
    --epochs 30 \\
    --lr 1e-4 \\
    --hidden-dim 256 \\
    --num-spatial-blocks 8 \\
    --visualize-positive \\
    --vis-output-dir ./positive_samples_vis"""
SHORTER = """python -m rewardlab.models.reward_model.train_reward_model \\
    --positive-dir ./reward_data/positive \\
    --negative-dir ./reward_data/negative \\
    --output-checkpoint ./checkpoints/reward_model.pt \\
    --pretrained-encoder-path ./resnet10_pretrained.pt \\
    --image-key base_camera \\
    --image-size 3 64 64 \\
    --batch-size 128 \\
    --epochs 30 \\
    --hidden-dim 256 \\
    --num-spatial-blocks 8"""
TRAIN_ON_DATA = "bash examples/reward/run_reward_training.sh --data /path/to/collected_data"
PROCESS = "python examples/embodiment/process_realworld_data.py /path/to/your/input_data.pkl"
IN_THE_FOLDER = "./run_embodiment.sh maniskill_train_resnet_reward"

SMALL_MODEL = ["reward.model.width=8", "runner.max_steps=2", "cluster.device=cpu"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the examples in it, as commands are run in the top of the repository."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EMBODIED_PATH", raising=False)
    return tmp_path


def words_of(command: str) -> list[str]:
    return shlex.split(command.replace("\\\n", ""))


def shell(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": path}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def python(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `python ...` in this process, which has imported torch already; returns the exit status."""
    assert words[0] == "python"
    is_module = words[1] == "-m"
    monkeypatch.setattr(sys, "argv", words[2:] if is_module else words[1:])
    run: Callable[..., Any] = runpy.run_module if is_module else runpy.run_path
    with pytest.raises(SystemExit) as end:
        run(words[2] if is_module else words[1], run_name="__main__")
    return int(end.value.code or 0)


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_not_here_is_named_with_what_is(
    command: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words_of(command)
    if words[0] == "python":
        status, said = python(words, monkeypatch), capsys.readouterr().err
    elif words[1].endswith("run_embodiment.sh") and words[2] != "maniskill_ppo_cnn":  # one of them by its script
        status, said = main(["run", *words[2:]]), capsys.readouterr().err
    else:
        done = shell(words, elsewhere)
        status, said = done.returncode, done.stderr
    needs, instead = REFUSED[command].split()
    assert status == 2
    assert said.startswith("error: config '")
    assert needs in said
    assert said.strip().endswith(f"nearest to it that runs: {instead}")


@pytest.mark.usefixtures("without_drawing")
def test_training_by_the_module_of_the_documentation(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, write_toy_episodes: Callable[..., Path]
) -> None:
    write_toy_episodes(elsewhere / "reward_data", "npy", count=4, length=6, size=64)
    torch.save(ResNet("resnet10").state_dict(), elsewhere / "resnet10_pretrained.pt")
    assert python([*words_of(TRAIN_ON_DIRECTORIES), "--epochs", "1"], monkeypatch) == 0
    assert load_reward_model("checkpoints/reward_model.pt").image_size == (3, 64, 64)  # type: ignore[attr-defined]
    pictures = sorted(path.name for path in (elsewhere / "positive_samples_vis").glob("*.png"))
    assert pictures[:2] == ["positive_000000_frame004.png", "positive_000000_frame005.png"]
    fewer = vars(train_reward_model._parser().parse_args(words_of(SHORTER)[3:]))
    assert (fewer["backbone"], fewer["lr"], fewer["visualize_positive"]) == ("resnet10", 1e-4, False)


@pytest.mark.parametrize("script", ["train_reward_model.py", "train_reward_model.sh"])
def test_the_scripts_of_that_module_take_the_same_arguments(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    if script.endswith(".py"):
        assert python(["python", f"examples/embodiment/{script}", "--help"], monkeypatch) == 0
        assert "--positive-dir" in capsys.readouterr().out
    else:
        assert "--positive-dir" in shell(["bash", f"examples/embodiment/{script}", "--help"], elsewhere).stdout


def test_a_recording_of_a_robot(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    obs = {"main_images": torch.rand(16, 16, 3), "states": torch.zeros(2)}
    step: dict[str, Any] = {"transitions": {"obs": obs, "next_obs": obs}, "action": torch.ones(6)}
    ends = [{"rewards": torch.ones(1), "terminations": torch.tensor([number % 5 == 4])} for number in range(10)]
    (elsewhere / "logs").mkdir()
    (elsewhere / "logs" / "data.pkl").write_bytes(pickle.dumps([step | end for end in ends]))
    words = words_of(PROCESS.replace("/path/to/your/input_data.pkl", "logs/data.pkl"))
    assert python(words, monkeypatch) == 0
    summary = summarize(elsewhere / "logs" / "collected_data")
    assert (summary.success_episodes, summary.failure_episodes, summary.success_frames) == (2, 0, 10)


def test_the_script_sets_the_place_of_data_and_has_its_run_bit(elsewhere: Path) -> None:
    place = elsewhere / "examples" / "embodiment"
    done = shell(words_of(IN_THE_FOLDER), place)
    assert "config maniskill_train_resnet_reward is now reward_training" in done.stderr
    assert done.stderr.strip().endswith(f"error: data.data_path: there is no file or directory {place / 'data'}")


@pytest.mark.usefixtures("without_drawing")
def test_training_from_the_folder_of_its_script(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, write_toy_episodes: Callable[..., Path]
) -> None:
    place = elsewhere / "examples" / "embodiment"
    write_toy_episodes(place / "data", "pickle")
    monkeypatch.setenv("EMBODIED_PATH", str(place))  # as the script does
    monkeypatch.chdir(place)
    assert main(["run", *words_of(IN_THE_FOLDER)[1:], *SMALL_MODEL]) == 0
    load_reward_model(elsewhere / "logs" / "reward_checkpoints" / "best_model")


@pytest.mark.usefixtures("without_drawing")
def test_training_by_a_path_of_data(elsewhere: Path, write_toy_episodes: Callable[..., Path]) -> None:
    write_toy_episodes(elsewhere / "collected_data", "pickle")
    words = words_of(TRAIN_ON_DATA.replace("/path/to/collected_data", "collected_data"))
    assert main(["train-reward", *words[2:], *SMALL_MODEL, "runner.logger.log_path=out"]) == 0
    load_reward_model(elsewhere / "out" / "checkpoints" / "best_model")


@pytest.mark.usefixtures("without_drawing")
def test_a_config_of_ones_own_by_its_directory(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stages of the workflow as printed, on the built-in task: older keys, the directory, EMBODIED_PATH."""
    configs = elsewhere / "examples" / "embodiment" / "config"
    configs.mkdir()
    (configs / "maniskill_ppo_cnn.yaml").write_text(
        "defaults: [tabletop_ppo_cnn, _self_]\n"
        "reward:\n"
        "  data_collection: {positive_dir: '${oc.env:EMBODIED_PATH}/p', negative_dir: n, image_size: [3, 32, 32]}\n"
        "env: {train: {num_envs: 2, max_episode_steps: 4}}\n"
    )
    monkeypatch.setattr(Evaluation, "run", lambda self, policy: {"return": 0.0})
    command = next(command for command in REFUSED if "collect_data=True" in command)
    small = ["runner.max_epochs=1", "algorithm.ppo.rollout_steps=4", "actor.global_batch_size=8", "cluster.device=cpu"]
    assert python([*words_of(command), *small, "algorithm.ppo.update_epochs=1"], monkeypatch) == 0
    assert "reward.collect_data is now data.collection.enabled" in capsys.readouterr().err
    written = [*elsewhere.glob("n/*.npy"), *elsewhere.glob("examples/embodiment/p/*.npy")]
    assert len(written) == 2


def test_scripts_have_their_run_bit() -> None:
    for script in EXAMPLES.rglob("*.sh"):
        assert os.access(script, os.X_OK) == (script.name != "python.sh"), script
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-s", "examples"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        modes = {line.split()[3]: line.split()[0] for line in listed.stdout.splitlines() if line.endswith(".sh")}
        assert {name for name, mode in modes.items() if mode != "100755"} == {"examples/python.sh"}
