"""The front door in Python: what `rewardlab` itself offers, typed, lazy, and by the pipelines of the commands."""

import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.config import load_config
from rewardlab.python_runs import _as_texts

TINY = {"reward": {"model": {"width": 4, "hidden_dim": 8}}, "runner.max_epochs": 1}
TINY_POLICY = {
    "env.train": {"num_envs": 4, "max_episode_steps": 8},
    "env.eval.num_envs": 2,
    "algorithm.ppo.rollout_steps": 8,
    "runner.max_epochs": 2,
    "actor.global_batch_size": 16,
}


class Camera:
    """What cv2.VideoCapture gives, of the episode's last frame: a success."""

    frame = np.zeros((32, 32, 3), np.uint8)

    def __init__(self, number: int) -> None:
        self.number = number

    def read(self) -> tuple[bool, np.ndarray]:
        return True, self.frame[..., ::-1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, write_toy_episodes) -> rewardlab.ClassifierRun:  # type: ignore[no-untyped-def]
    data, out = write_toy_episodes(tmp_path_factory.mktemp("data")), tmp_path_factory.mktemp("runs") / "classifier"
    return rewardlab.train_classifier(data, out, TINY, quiet=True)


def test_importing_rewardlab_imports_nothing_heavy() -> None:
    code = "import sys, rewardlab; dir(rewardlab); sys.exit(bool({'torch', 'numpy', 'hydra'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_names_are_there() -> None:
    for name in rewardlab.__all__:
        assert getattr(rewardlab, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        rewardlab.laod  # type: ignore[attr-defined]  # noqa: B018


def test_a_classifier_is_trained_measured_and_loaded(trained: rewardlab.ClassifierRun) -> None:
    assert trained.report.is_file()
    assert "At threshold" in trained.figures.sentence()
    assert trained.load().figures == trained.figures


def test_the_command_trains_the_same_classifier(trained: rewardlab.ClassifierRun, tmp_path: Path) -> None:
    data = trained.config.data.data_path
    small = ["reward.model.width=4", "reward.model.hidden_dim=8", "runner.max_epochs=1"]
    assert main(["train-reward", "--data", str(data), *small, f"runner.logger.log_path={tmp_path / 'run'}"]) == 0
    weights = [run / "model.safetensors" for run in (tmp_path / "run/checkpoints/best_model", trained.checkpoint)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_lines_of_a_model_card_give_a_verdict(
    trained: rewardlab.ClassifierRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cv2, "VideoCapture", Camera)
    (code,) = re.findall(r"```python\n(.+?)```", trained.load().card, re.DOTALL)
    exec(code, {})
    model = trained.load()
    assert capsys.readouterr().out.split() == [str(model.probability(Camera.frame)), str(model.verdict(Camera.frame))]


def test_the_card_of_a_model_with_two_cameras_too(
    tmp_path: Path,
    write_toy_episodes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],  # type: ignore[no-untyped-def]
) -> None:
    data = write_toy_episodes(tmp_path / "data", cameras=("front", "wrist"))
    run = rewardlab.train_classifier(data, tmp_path / "run", TINY, quiet=True)
    monkeypatch.setattr(cv2, "VideoCapture", Camera)
    (code,) = re.findall(r"```python\n(.+?)```", run.load().card, re.DOTALL)
    exec(code, {})
    expected = run.load().probability({"front": Camera.frame, "wrist": Camera.frame})
    assert capsys.readouterr().out.split()[0] == str(expected)


@pytest.mark.usefixtures("without_drawing")
def test_a_policy_is_trained_inspected_and_acts(tmp_path: Path) -> None:
    run = rewardlab.train_policy("tabletop_ppo_mlp", TINY_POLICY, out=tmp_path / "run", quiet=True)

    assert [row["iteration"] for row in run.history] == [1, 2]
    assert run.checkpoint == tmp_path / "run/checkpoints/global_step_2"
    assert run.report.is_file()
    assert 0 <= run.evaluate(episodes=4)["success_once"] <= 1
    env = rewardlab.make_vec_env("tabletop/PickCube", num_envs=3)
    observation, _ = env.reset(seed=0)
    assert run.load(env).act(observation).shape == (3, 4)


def test_a_config_of_another_task_is_refused() -> None:
    with pytest.raises(rewardlab.ConfigError, match=r"runner\.task: found collect, expected train_policy"):
        rewardlab.train_policy("tabletop_pickcube")


def test_overrides_of_python_are_those_of_the_command_line() -> None:
    values = {"runner.early_stop.patience": None, "runner": {"logger": {"log_path": Path("a b,c")}}}
    values |= {
        "data.data_path": ["x=1", Path("y")],
        "env.train.image_size": (3, 32, np.int64(48)),
        "data.augment": False,
    }
    cfg = load_config("reward_training", _as_texts(values), check_files=False)
    assert (cfg.runner.early_stop.patience, cfg.runner.logger.log_path) == (None, "a b,c")
    assert (cfg.data.paths, cfg.env.train.image_size, cfg.data.augment) == (("x=1", "y"), (3, 32, 48), False)
    assert _as_texts(["seed=3"]) == ["seed=3"]
    with pytest.raises(rewardlab.ConfigError, match=r"found the text 'seed=3', expected a list"):
        _as_texts("seed=3")
