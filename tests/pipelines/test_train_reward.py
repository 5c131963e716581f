"""Stage 2 from the command line: from a directory of episodes to a checkpoint that says how far it can be trusted."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rewardlab.cli import main
from rewardlab.data import read_episodes
from rewardlab.models.resnet import ResNet
from rewardlab.rewards import load_reward_model, load_success_classifier
from rewardlab.run_state import load_state, save_state

SMALL = [
    "reward.model.width=8",
    "reward.model.hidden_dim=16",
    "reward.model.image_size=[3,32,32]",
    "runner.max_epochs=2",
    "actor.optim.lr=0.003",
]


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("episodes") / "data"
    main(["collect", "tabletop_pickcube", "--episodes", "12", "--out", str(out), "env.train.image_size=[3,32,32]"])
    return out


def train(data: Path, out: Path, *overrides: str) -> int:
    return main(["train-reward", "--data", str(data), *SMALL, f"runner.logger.log_path={out}", *overrides])


@pytest.fixture(scope="module")
def run(episodes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "model"
    assert train(episodes, out) == 0
    return out


def test_the_checkpoint_explains_itself(run: Path) -> None:
    best = run / "checkpoints" / "best_model"
    config = json.loads((best / "config.json").read_text())
    model = load_reward_model(best)
    assert model.threshold == config["threshold"] == config["metrics"]["threshold"]
    assert config["metrics"]["target_fpr"] == 0.01
    assert any("too few" in text or "too little" in text or "promise" in text for text in config["metrics"]["warnings"])
    assert "threshold" in (best / "README.md").read_text()


def test_the_report_is_one_file_with_pictures(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 4
    assert "tabletop/PickCube" in page
    assert list(run.glob("events.out.tfevents.*"))


def test_the_report_shows_the_frames_of_each_directory(episodes: Path, tmp_path: Path) -> None:
    """Episodes of two directories share their names; those of the second have few pictures."""
    data = tmp_path / "data"
    shutil.copytree(episodes, data / "first")
    arguments = ["--seed", "1", "env.train.image_size=[3,32,32]", "data.collection.frames=every:7"]
    main(["collect", "tabletop_pickcube", "--episodes", "12", "--out", str(data / "second"), *arguments])
    assert train(data, tmp_path / "run", "runner.max_epochs=1", "data.val_fraction=0.5") == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "first/" in page
    assert "second/" in page


def test_the_model_scores_frames_as_in_training(run: Path, episodes: Path) -> None:
    model = load_reward_model(run / "checkpoints" / "best_model")
    episode = read_episodes(episodes)[0]
    frames = episode.load().columns["observation.images.base_camera"]
    together = model.probabilities({"base_camera": frames})
    alone = [float(model.probabilities({"base_camera": frames[t : t + 1]})) for t in range(3)]
    assert together[:3].tolist() == alone


def test_a_run_is_not_overwritten_and_can_be_continued(
    run: Path, episodes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "checkpoints" / "best_model" / "model.safetensors").read_bytes()
    assert train(episodes, run) == 2
    assert "exists already" in capsys.readouterr().err
    assert (run / "checkpoints" / "best_model" / "model.safetensors").read_bytes() == before
    last = run / "checkpoints" / "last"
    assert train(episodes, run, f"runner.resume_dir={last}", "runner.max_epochs=3") == 0
    assert load_state(last)[0]["progress"]["epoch"] == 3


def test_a_second_model_in_one_checkpoint_dir_gets_the_advice_that_helps(
    run: Path, episodes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another log_path does not help: the model goes to checkpoint_dir."""
    there = run / "checkpoints"
    assert train(episodes, tmp_path / "second", f"runner.checkpoint_dir={there}") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "Choose another runner.checkpoint_dir" in said
    assert "log_path" not in said


def scalars(out: Path) -> dict[str, list[int]]:
    """The steps of every curve in TensorBoard."""
    found: dict[str, list[int]] = {}
    for file in out.glob("events.out.tfevents.*"):
        events = EventAccumulator(str(file))
        events.Reload()
        for tag in events.Tags()["scalars"]:
            found.setdefault(tag, []).extend(event.step for event in events.Scalars(tag))
    return found


def test_validation_figures_are_in_tensorboard(episodes: Path, tmp_path: Path) -> None:
    assert train(episodes, tmp_path / "run", "runner.val_check_interval=2", "runner.max_epochs=3") == 0
    curves = scalars(tmp_path / "run")
    steps = len(curves["train/loss"])
    assert curves["valid/loss"] == curves["valid/accuracy"] == [steps * 2 // 3, steps]
    for name in ("threshold", "fpr", "recall", "roc_auc", "precision"):
        assert curves[f"best_model/{name}"] == [steps]


def test_a_frozen_encoder_and_the_size_of_the_frames_are_stored_as_trained(episodes: Path, tmp_path: Path) -> None:
    """It was stored as not frozen, so that co-training changed the encoder that training had kept."""
    encoder = tmp_path / "encoder.pt"
    torch.save(ResNet("resnet10", width=8).state_dict(), encoder)
    settings = ["reward.model.model_type=binary_classifier", f"reward.model.pretrained_encoder_path={encoder}"]
    assert train(episodes, tmp_path / "run", *settings, "reward.model.image_size=[3,16,16]", "runner.max_epochs=1") == 0
    encoder.unlink()
    best = tmp_path / "run" / "checkpoints" / "best_model"
    stored = json.loads((best / "config.json").read_text())["architecture"]
    assert stored["freeze_encoder"] is True
    assert (stored["image_size"], stored["frame_sizes"]) == ([3, 16, 16], {"base_camera": [32, 32]})
    assert load_success_classifier(best).network.frozen


def test_only_a_run_that_trains_a_classifier_can_be_resumed(
    episodes: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = save_state(tmp_path / "global_step_1", {"actor": {}, "iteration": 1}, {"algorithm": "ppo"})
    assert train(episodes, tmp_path / "run", f"runner.resume_dir={policy}") == 2
    assert "is not a run that trains a classifier; expected the directory checkpoints/last" in capsys.readouterr().err
    best = shutil.copytree(run / "checkpoints" / "best_model", tmp_path / "alone" / "best_model")
    assert train(episodes, tmp_path / "run", f"runner.resume_dir={best}") == 2
    assert "holds a trained model, not the state of a run" in capsys.readouterr().err
    last = run / "checkpoints" / "last"
    assert train(episodes, tmp_path / "run", f"runner.resume_dir={last}", "reward.model.width=16") == 2
    assert "weights do not fit the network" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["pickle", "npy"])
def test_other_formats_train_the_same_model(episodes: Path, tmp_path: Path, format: str) -> None:
    main(["data", "convert", str(episodes), str(tmp_path / "converted"), "--format", format])
    assert train(tmp_path / "converted", tmp_path / "model", "runner.max_epochs=1") == 0
    assert (tmp_path / "model" / "checkpoints" / "best_model" / "model.safetensors").is_file()


def test_both_networks_can_be_trained(episodes: Path, tmp_path: Path) -> None:
    assert train(episodes, tmp_path, "runner.max_epochs=1", "reward.model.model_type=binary_classifier") == 0
    model = load_reward_model(tmp_path / "checkpoints" / "best_model")
    assert type(model).__name__ == "BinaryRewardClassifier"
    assert np.isfinite(model.threshold)


def test_data_without_success_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    main(["collect", "tabletop_pickcube", "--episodes", "3", "--policy", "random", "--out", str(data)])
    assert train(data, tmp_path / "model") == 2
    assert "no frame is labelled success" in capsys.readouterr().err
