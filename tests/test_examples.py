"""The scripts under examples/ work as their users call them."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rewardlab.rewards import load_reward_model

ROOT = Path(__file__).parent.parent

# As users call it, but for the path of the data.
TRAINING_COMMAND = """
    --data {data}
    data.num_samples_per_episode=0
    data.fail_success_ratio=3.0
    actor.global_batch_size=32
    actor.micro_batch_size=16
    runner.max_epochs=100
    runner.val_check_interval=10
    runner.save_interval=10
    runner.early_stop.patience=10
    data.debug_save_dir="logs/training_data_debug_realworld"
    runner.logger.log_path="logs/reward_model_realworld"
"""


def bash(script: Path, *arguments: str, cwd: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    python = Path(sys.executable).parent
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": path or f"{python}:{os.environ['PATH']}"}
    command = ["bash", str(script), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_reward_training_by_its_script(tmp_path: Path, write_toy_episodes: Callable[..., Path]) -> None:
    data = write_toy_episodes(tmp_path / "collected data", "pickle")
    printed = shlex.split(TRAINING_COMMAND.format(data=shlex.quote(str(data))))
    small = ["reward.model.width=8", "runner.max_steps=3"]
    done = bash(ROOT / "examples/reward/run_reward_training.sh", *printed, *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    load_reward_model(tmp_path / "logs/reward_model_realworld/checkpoints/best_model")
    debug = tmp_path / "logs/training_data_debug_realworld"
    assert len(list((debug / "success").glob("*.png"))) > 5
    assert len(list((debug / "failure").glob("*.png"))) > 5


def test_reward_model_training_by_its_script(tmp_path: Path, write_toy_episodes: Callable[..., Path]) -> None:
    write_toy_episodes(tmp_path / "reward_data", "npy")
    script = ROOT / "examples/embodiment/train_reward_model.sh"
    done = bash(script, "--epochs", "1", "--image-size", "3", "32", "32", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert load_reward_model(tmp_path / "checkpoints/reward_model.pt").image_size == (3, 32, 32)


@pytest.mark.parametrize("script", ["reward/run_reward_training.sh", "embodiment/train_reward_model.sh"])
def test_without_rewardlab_the_scripts_say_so(tmp_path: Path, script: str) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = bash(tmp_path / "examples" / script, cwd=tmp_path, path=f"{python.parent}:/usr/bin:/bin")
    assert done.returncode == 1
    assert done.stderr.startswith("rewardlab is not installed for python3")
