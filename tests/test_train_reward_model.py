"""`python -m rewardlab.train_reward_model`: its arguments, its files, and the training code of everything else."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rewardlab.config import config_from_mapping
from rewardlab.data import read_episodes
from rewardlab.data.frames import split_by_episode, tabulate
from rewardlab.models.resnet import ResNet
from rewardlab.rewards import BinaryRewardClassifier, RewardManager, load_reward_model
from rewardlab.train_reward_model import _parser, main


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory: pytest.TempPathFactory, write_toy_episodes: Callable[..., Path]) -> Path:
    return write_toy_episodes(tmp_path_factory.mktemp("reward_data"), "npy", count=8)


def train(data: Path, output: Path, *more: str) -> int:
    folders = ["--positive-dir", str(data / "positive"), "--negative-dir", str(data / "negative")]
    sizes = ["--image-size", "3", "32", "32", "--hidden-dim", "16", "--num-spatial-blocks", "4", "--epochs", "2"]
    return main([*folders, "--output-checkpoint", str(output), *sizes, "--lr", "1e-3", *more])


@pytest.fixture(scope="module")
def trained(trajectories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("run") / "made" / "reward_model.pt"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        vis = str(output.parent / "vis")
        assert train(trajectories, output, "--visualize-positive", "--vis-output-dir", vis) == 0
    (output.parent / "said.txt").write_text(said.getvalue())
    return output


def test_defaults_of_the_arguments() -> None:
    required = ["--positive-dir", "p", "--negative-dir", "n", "--output-checkpoint", "o.pt"]
    found = vars(_parser().parse_args(required))
    assert {key: value for key, value in found.items() if key not in ("handler",)} == {
        "positive_dir": "p",
        "negative_dir": "n",
        "output_checkpoint": "o.pt",
        "pretrained_encoder_path": None,
        "backbone": "resnet10",
        "image_key": "base_camera",
        "image_size": [3, 64, 64],
        "batch_size": 32,
        "epochs": 100,
        "lr": 1e-4,
        "hidden_dim": 256,
        "num_spatial_blocks": 8,
        "visualize_positive": False,
        "vis_output_dir": "positive_samples_vis",
    }
    for missing in ("--positive-dir", "--negative-dir", "--output-checkpoint"):
        at = required.index(missing)
        with pytest.raises(SystemExit):
            _parser().parse_args(required[:at] + required[at + 2 :])


def test_the_file_has_its_layout_and_explains_itself(trained: Path) -> None:
    content = torch.load(trained, weights_only=True)
    assert set(content) == {
        "epoch",
        "model_state_dict",
        "optimizer_state_dict",
        "train_loss",
        "train_acc",
        "config",
    }
    model = load_reward_model(trained)
    assert isinstance(model, BinaryRewardClassifier)
    assert (model.hidden_dim, model.num_spatial_blocks, model.image_size) == (16, 4, (3, 32, 32))
    best = load_reward_model(trained.parent / "reward_model_report" / "checkpoints" / "best_model")
    assert (model.threshold, model.temperature) == (best.threshold, best.temperature)
    assert model.metrics["target_fpr"] == 0.01
    frames = np.zeros((2, 32, 32, 3), np.uint8)
    assert model.probabilities(frames).equal(best.probabilities(frames))
    assert (trained.parent / "reward_model_report" / "report.html").is_file()


def test_the_optimizer_goes_on_where_the_best_epoch_ended(trained: Path) -> None:
    content = torch.load(trained, weights_only=True)
    network = load_reward_model(trained).network
    optimizer = torch.optim.Adam(network.parameters())
    optimizer.load_state_dict(content["optimizer_state_dict"])
    steps = {int(state["step"]) for state in optimizer.state.values()}
    training_frames = 72 - 2 * 9  # one trajectory of each kind is held out
    assert steps == {content["epoch"] * -(-training_frames // 32)}
    assert content["epoch"] in (1, 2)
    assert optimizer.param_groups[0]["lr"] == 1e-3


def test_train_loss_and_accuracy_are_those_of_the_best_weights_on_the_training_frames(trained: Path) -> None:
    content = torch.load(trained, weights_only=True)
    model = load_reward_model(trained)
    episodes = read_episodes(trained.parent / "reward_model_report" / "episodes")
    train_frames, _ = split_by_episode(tabulate(episodes), val_fraction=0.2, seed=0)
    pictures = [
        episodes[e].frame("base_camera", t) for e, t in zip(train_frames.episode, train_frames.time, strict=True)
    ]
    logits = model.logits(np.stack(pictures)).numpy().astype(np.float64)
    label = train_frames.label
    loss = np.log1p(np.exp(np.where(label, -logits, logits))).mean()
    assert content["train_loss"] == pytest.approx(loss, rel=1e-5)
    assert content["train_acc"] == ((logits > 0) == label).mean()


def test_stage_3_loads_it(trained: Path) -> None:
    block = {
        "use_reward_model": True,
        "collect_data": False,
        "reward_model": {
            "checkpoint_path": str(trained),
            "image_keys": ["base_camera"],
            "image_size": [3, 32, 32],
            "hidden_dim": 16,
            "num_spatial_blocks": 4,
            "use_pretrain": True,
            "freeze_encoder": True,
            "reward_type": "binary",
        },
    }
    with pytest.warns(UserWarning, match="reward_model is now"):
        manager = RewardManager.from_config(config_from_mapping({"reward": block}).reward)
    rewards = manager.compute_rewards(np.zeros((3, 32, 32, 3), np.uint8))
    assert set(rewards.tolist()) <= {0.0, 1.0}


def test_counts_and_pictures_of_the_positive_samples(trained: Path, trajectories: Path) -> None:
    text, vis = (trained.parent / "said.txt").read_text(), trained.parent / "vis"
    assert f"{trajectories / 'positive'}: 4 trajectories, 36 frames (label=1: 12, label=0: 24)" in text
    assert f"{trajectories / 'negative'}: 4 trajectories, 36 frames (label=1: 0, label=0: 36)" in text
    assert "without --pretrained-encoder-path" in text
    wanted = {f"positive_{number:06d}_frame{t:03d}.png" for number in range(4) for t in (6, 7, 8)}
    assert {path.name for path in vis.iterdir()} == wanted
    stored = next(e for e in read_episodes(trajectories / "positive") if e.path.stem == "000001")
    with Image.open(vis / "positive_000001_frame007.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), stored.frame("base_camera", 7))


def test_a_pretrained_encoder_stays_as_it_is_and_the_head_learns(trajectories: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    encoder = ResNet("resnet10").state_dict()
    torch.save(encoder, tmp_path / "resnet10_pretrained.pt")
    pretrained = ["--pretrained-encoder-path", str(tmp_path / "resnet10_pretrained.pt")]
    assert train(trajectories, tmp_path / "m.pt", *pretrained, "--backbone", "resnet10") == 0
    content = torch.load(tmp_path / "m.pt", weights_only=True)
    for name, value in encoder.items():
        assert content["model_state_dict"][f"encoder.{name}"].equal(value), name
    heads = [name for name in content["model_state_dict"] if name.startswith("head.")]
    assert len(content["optimizer_state_dict"]["state"]) == len(heads)
    (tmp_path / "resnet10_pretrained.pt").unlink()
    load_reward_model(tmp_path / "m.pt")  # the file has all it needs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--output-checkpoint", "{trained}"], "exists already: choose another --output-checkpoint"),
        (["--output-checkpoint", "model"], "expected a file ending in .pt"),
        (["--negative-dir", "gone"], "there is no file or directory gone"),
        (["--image-size", "1", "64", "64"], "expected [3, height, width]"),
        (["--lr", "0"], "expected a number above 0"),
        (
            ["--visualize-positive", "--vis-output-dir", "/dev/null/vis"],
            "--vis-output-dir: cannot write to /dev/null/vis",
        ),
        (["--backbone", "resnet11"], "resnet10"),
        (["--image-key", "wrist"], "no camera 'wrist'"),
        (["--pretrained-encoder-path", "gone.pt"], "there is no file or directory gone.pt"),
    ],
)
def test_mistakes_are_answered_in_words(
    trained: Path,
    trajectories: Path,
    tmp_path: Path,
    change: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = trained.read_bytes()
    assert train(trajectories, tmp_path / "m.pt", *(text.format(trained=trained) for text in change)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "m.pt").exists()
    assert trained.read_bytes() == before
