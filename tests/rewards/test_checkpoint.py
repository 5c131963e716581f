"""Checkpoints explain themselves, survive a kill, and refuse what is not one."""

import json
import os
import time
import warnings
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from reward_toys import make_batch, save_again_and_again, small_binary, small_resnet
from safetensors.torch import load_file, save_file

from rewardlab.compat import CompatibilityNote
from rewardlab.config import config_from_mapping
from rewardlab.config.schema import RewardModelConfig
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_sizes import FrameSize
from rewardlab.rewards import (
    BinaryRewardClassifier,
    SuccessClassifier,
    create_reward_model,
    load_reward_model,
    load_success_classifier,
)
from rewardlab.rewards import checkpoint as files


def test_round_trip_is_exact(model: SuccessClassifier, tmp_path: Path) -> None:
    model.threshold, model.temperature, model.class_prior = 0.83, 1.7, 0.25
    model.metrics = {"precision": torch.tensor(0.5), "auc": float("nan"), "curve": [1, 2]}
    path = model.save(tmp_path / "runs" / "best_model", card="# My card\n")
    loaded = load_reward_model(path)
    assert type(loaded) is type(model)
    assert torch.equal(loaded.probabilities(make_batch(9)), model.probabilities(make_batch(9)))
    assert (loaded.threshold, loaded.temperature, loaded.class_prior) == (0.83, 1.7, 0.25)
    assert loaded.metrics == {"precision": 0.5, "auc": None, "curve": [1, 2]}
    assert (path / "README.md").read_text() == "# My card\n"
    assert sorted(entry.name for entry in path.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_config_json_says_what_the_model_is(tmp_path: Path) -> None:
    config = json.loads((small_binary(image_keys=["a", "b"]).save(tmp_path / "m") / "config.json").read_text())
    assert config["format_version"] == 1
    assert config["model_type"] == "binary_classifier"
    described = config["architecture"]
    assert (described["image_keys"], described["image_size"]) == (["a", "b"], [3, 32, 32])
    assert (described["normalize"], described["hidden_dim"]) == (True, 16)
    assert {"threshold", "temperature", "class_prior", "metrics"} <= config.keys()


def test_scores_do_not_depend_on_who_loads(model: SuccessClassifier, tmp_path: Path) -> None:
    """A bare .safetensors, one next to a config.json, and a .pt with a description hold the same model."""
    path = model.save(tmp_path / "m")
    expected = model.probabilities(make_batch(4))
    torch.save(
        {"epoch": 1, "model_state_dict": model.network.state_dict(), "config": model.describe()}, tmp_path / "m.pt"
    )
    save_file(
        load_file(path / "model.safetensors"), tmp_path / "b.safetensors", {"config": json.dumps(model.describe())}
    )
    for file in (path / "model.safetensors", tmp_path / "m.pt", tmp_path / "b.safetensors"):
        assert torch.equal(load_reward_model(file).probabilities(make_batch(4)), expected)


def test_a_training_dictionary_as_a_checkpoint(model: SuccessClassifier, tmp_path: Path) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    content = {
        "epoch": 3,
        "model_state_dict": model.network.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "train_loss": 0.1,
        "train_acc": 0.9,
    }
    torch.save(content, tmp_path / "reward_model.pt")
    given = RewardModelConfig(image_size=(3, 32, 32), hidden_dim=16)
    with pytest.warns(UserWarning, match=r"has no config; assumed: threshold 0\.5"):
        loaded = load_reward_model(tmp_path / "reward_model.pt", overrides=given)
    assert type(loaded) is type(model)
    assert torch.equal(loaded.probabilities(make_batch(4)), model.probabilities(make_batch(4)))
    assert loaded.threshold == 0.5
    assert "threshold 0.5" in loaded.notes[0]
    with pytest.raises(ConfigError, match=r"hidden_dim: the config says 32, .* trained with 16"), pytest.warns():
        load_reward_model(tmp_path / "reward_model.pt", overrides={"hidden_dim": 32, "image_size": (3, 32, 32)})


def test_undescribed_weights_that_need_more(tmp_path: Path) -> None:
    two = small_binary(image_keys=["a", "b"], image_size=(3, 64, 64))
    save_file(two.network.state_dict(), tmp_path / "two.safetensors")
    size = {"image_size": (3, 60, 50)}
    with pytest.raises(ConfigError, match="are for 2 cameras"):
        load_reward_model(tmp_path / "two.safetensors", overrides=size)
    with pytest.warns(UserWarning, match="has no config; assumed: threshold 0.5"):
        loaded = load_reward_model(tmp_path / "two.safetensors", overrides={"image_keys": ("a", "b"), **size})
    assert loaded.image_size == (3, 60, 50)
    with pytest.raises(ConfigError, match=r"image_size: found \[3, 128, 128\], but .* trained at about 64x64"):
        load_reward_model(
            tmp_path / "two.safetensors", overrides={"image_keys": ("a", "b"), "image_size": (3, 128, 128)}
        )


@pytest.mark.parametrize("build", [small_resnet, small_binary])
def test_the_image_size_of_undescribed_weights_is_not_guessed(build: Any, tmp_path: Path) -> None:
    """A network that averages over positions runs at any size: it was taken to be of 128x128, and scored nonsense."""
    model = build(image_size=(3, 64, 64))
    torch.save({"state_dict": model.network.state_dict()}, tmp_path / "bare.pt")
    with pytest.raises(ConfigError, match=r"reward\.model\.image_size: not given, and .*bare\.pt does not say.*Set it"):
        load_reward_model(tmp_path / "bare.pt")
    said = {"image_size": [3, 64, 64]}
    for name, content in {"beside": said, "config": {"config": said}}.items():
        torch.save({"state_dict": model.network.state_dict(), **content}, tmp_path / f"{name}.pt")
        with pytest.warns(UserWarning, match="has no config"):
            assert load_reward_model(tmp_path / f"{name}.pt").image_size == (3, 64, 64)


def test_the_size_of_recorded_frames_is_stored_beside_that_of_the_network(tmp_path: Path) -> None:
    model = small_resnet()
    model.set_frame_sizes({"base_camera": (96, 128)})
    stored = json.loads((model.save(tmp_path / "m") / "config.json").read_text())["architecture"]
    assert (stored["image_size"], stored["frame_sizes"]) == ([3, 32, 32], {"base_camera": [96, 128]})
    loaded = load_success_classifier(tmp_path / "m")
    assert loaded.frame_sizes == {"base_camera": FrameSize(96, 128)}
    frames = torch.randint(0, 256, (2, 96, 128, 3), dtype=torch.uint8)
    assert torch.equal(loaded.probabilities(frames), model.probabilities(frames))
    allowed = load_success_classifier(tmp_path / "m", overrides={"resize": "allow"})
    assert allowed.probabilities(frames[:, :64, :64]).shape == (2,)


@pytest.mark.parametrize(
    "sizes", [5, [1], {"base_camera": 7}, {"base_camera": [10**9, 10**9]}, {"base_camera": ["8", 8]}, {"x": [8, 8]}]
)
def test_a_recorded_size_that_cannot_be_is_refused(sizes: object, tmp_path: Path) -> None:
    path = small_resnet().save(tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    config["architecture"]["frame_sizes"] = sizes
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises((ConfigError, DataError), match=r"frame_sizes|cannot be built"):
        load_success_classifier(path)


def test_a_checkpoint_without_the_recorded_size_goes_by_that_of_its_network(tmp_path: Path) -> None:
    path = small_resnet().save(tmp_path / "older")
    config = json.loads((path / "config.json").read_text())
    del config["architecture"]["frame_sizes"]
    (path / "config.json").write_text(json.dumps(config))
    older = load_success_classifier(path)
    assert older.frame_sizes == {"base_camera": FrameSize(32, 32, recorded=False)}
    older.probabilities(torch.zeros(1, 64, 64, 3, dtype=torch.uint8))
    with pytest.raises(DataError, match=r"are 16x16; the checkpoint does not say .* works at 32x32\. They are smaller"):
        older.probabilities(torch.zeros(1, 16, 16, 3, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"hidden_dim": 32}, r"hidden_dim: the config says 32, .* trained with 16"),
        ({"image_size": (3, 64, 64)}, r"image_size: the config says \[3, 64, 64\], .* trained with \[3, 32, 32\]"),
        ({"image_keys": ("wrist",)}, r"image_keys: the config says \['wrist'\], .*'base_camera'"),
        ({"normalize": False}, "normalize: the config says False"),
        ({"arch": "resnet18"}, "resnet18.*resnet10"),
        ({"model_type": "binary_classifier"}, "model_type: .*binary_classifier.*resnet_reward"),
        ({"num_spatial_blocks": 8}, "unknown key of reward model 'resnet_reward' 'num_spatial_blocks'"),
    ],
)
def test_a_config_that_disagrees_is_an_error_with_both_values(
    overrides: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = small_resnet().save(tmp_path / "m")
    with pytest.raises(ConfigError, match=message):
        load_reward_model(path, overrides=RewardModelConfig(**overrides))  # type: ignore[arg-type]


def test_a_config_that_agrees_or_changes_no_score_is_fine(tmp_path: Path) -> None:
    path = small_resnet().save(tmp_path / "m")
    same = RewardModelConfig(
        model_type="resnet", hidden_dim=16, image_size=(3, 32, 32), dropout=0.0, checkpoint_path="x"
    )
    assert load_reward_model(path, overrides=same).settings()["dropout"] == 0.0
    model = create_reward_model({"checkpoint_path": path, "learning_rate": 0.5})
    assert isinstance(model, SuccessClassifier)
    assert model.learning_rate == 0.5


@pytest.mark.parametrize("trained_with", [True, False])
def test_use_pretrain_is_inferred_from_the_kernel(trained_with: bool, tmp_path: Path) -> None:
    model = small_binary(image_size=(3, 64, 64), use_pretrain=trained_with)
    assert model.network.head.pooling.kernel.shape[1:3] == ((2, 2) if trained_with else (1, 1))  # type: ignore[union-attr]
    torch.save({"epoch": 0, "model_state_dict": model.network.state_dict()}, tmp_path / "m.pt")
    given = RewardModelConfig(use_pretrain=not trained_with, image_size=(3, 64, 64), freeze_encoder=True)
    for path in (model.save(tmp_path / "m"), tmp_path / "m.pt"):
        with warnings.catch_warnings(record=True, action="always") as caught:
            loaded = load_reward_model(path, overrides=given)
        said = f"trained with {str(trained_with).lower()}, as the kernel"
        assert any(said in str(warning.message) for warning in caught)
        assert isinstance(loaded, BinaryRewardClassifier)
        assert loaded.use_pretrain is trained_with
        assert torch.equal(loaded.probabilities(make_batch(3, 64)), model.probabilities(make_batch(3, 64)))


def test_the_encoder_of_the_checkpoint_takes_precedence(tmp_path: Path) -> None:
    """A config for RL may name the encoder's file too; it may be gone."""
    path = small_binary().save(tmp_path / "m")
    given = RewardModelConfig(pretrained_encoder_path="/nowhere.pt", use_pretrain=True, freeze_encoder=True)
    assert load_reward_model(path, overrides=given).network.frozen


def test_no_path_is_an_error_never_random_weights() -> None:
    with pytest.raises(ConfigError, match="checkpoint_path: found null"):
        load_reward_model(None)


class TestBadFiles:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return small_resnet().save(tmp_path / "m")

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
    def test_missing_or_truncated(self, path: Path, name: str) -> None:
        whole = (path / name).read_bytes()
        (path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match=name):
            load_reward_model(path)
        (path / name).unlink()
        with pytest.raises(DataError, match=f"{name} is missing"):
            load_reward_model(path)

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(
            DataError, match=r"nothing: no such checkpoint; expected a run, a directory with config\.json"
        ):
            load_reward_model(tmp_path / "nothing")

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("format_version", 99, "format_version is 99"),
            ("architecture", [], "'architecture'"),
            ("model_type", "teapot", "Choices"),
            ("threshold", 1.5, "threshold is 1.5"),
            ("temperature", "hot", "temperature"),
            ("architecture", {"hidden_dim": "many"}, "cannot be built"),
            ("architecture", {"hiden_dim": 3}, "hidden_dim"),
            ("architecture", {"arch": "resnet10", "width": 16}, r"conv1.weight is \[8, 3, 7, 7\], expected \[16"),
        ],
    )
    def test_a_config_that_lies(self, path: Path, key: str, value: object, message: str) -> None:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, key: value}))
        with pytest.raises((DataError, ConfigError), match=message):
            load_reward_model(path)

    def test_foreign_weights(self, tmp_path: Path) -> None:
        save_file({"backbone.conv.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
        with pytest.raises(DataError, match=r"not the weights of a success classifier.*backbone"):
            load_reward_model(tmp_path / "other.safetensors")

    def test_hostile(self, tmp_path: Path) -> None:
        class Attack:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return os.mkdir, (str(tmp_path / "attacked"),)

        torch.save({"epoch": 0, "model_state_dict": {"encoder.conv1.weight": Attack()}}, tmp_path / "m.pt")
        with pytest.raises(DataError, match=r"m\.pt was refused: loading it would use .*mkdir"):
            load_reward_model(tmp_path / "m.pt")
        assert not (tmp_path / "attacked").exists()

    def test_other_things_are_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("work of years")
        for path in (tmp_path, tmp_path / "thesis.txt"):
            with pytest.raises(DataError, match="not replaced"):
                small_resnet().save(path)
        assert (tmp_path / "thesis.txt").read_text() == "work of years"


class TestKill:
    @pytest.mark.parametrize("exchange", [True, False])
    def test_replacing_keeps_one_whole(self, tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """A failure at any point leaves the old or the new checkpoint to be read, never a half one, and no litter."""
        if not exchange:
            monkeypatch.setattr(files, "_exchange", lambda one, other: False)
        path = tmp_path / "m"
        for threshold in (0.1, 0.2):
            model = small_resnet()
            model.threshold = threshold
            model.save(path)
            assert load_reward_model(path).threshold == threshold
        assert [entry.name for entry in tmp_path.iterdir()] == ["m"]

    def test_between_the_renames(self, tmp_path: Path) -> None:
        small_resnet().save(tmp_path / "m").rename(tmp_path / ".m.previous")
        assert load_reward_model(tmp_path / "m").threshold == 0.5
        assert files.write_checkpoint(tmp_path / "m", small_resnet().describe(), small_resnet().network.state_dict())
        assert load_reward_model(tmp_path / "m")

    def test_while_writing(self, tmp_path: Path, fork_server: ForkServerContext) -> None:
        """kill -9 again and again, at any moment of a loop that does nothing but save."""
        path = tmp_path / "m"
        for delay in (0.0, 0.011, 0.023, 0.031):
            saved = fork_server.Event()
            process = fork_server.Process(target=save_again_and_again, args=(path, saved))
            process.start()
            saved.wait(60)
            time.sleep(delay)
            process.kill()
            process.join()
            assert load_reward_model(path).network is not None
        small_resnet().save(path)
        assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("name", ["best_model.pt", "reward_model_best.pt"])
def test_an_older_file_name_means_the_directory_beside_it(name: str, tmp_path: Path) -> None:
    model = small_resnet()
    there = model.save(tmp_path / "best_model")
    with pytest.warns(CompatibilityNote, match=rf"{name} is not there; the checkpoint is now .*best_model$"):
        loaded = load_success_classifier(tmp_path / name)
    assert torch.equal(loaded.probabilities(make_batch(3)), model.probabilities(make_batch(3)))
    block = {"use_reward_model": True, "model": {"checkpoint_path": str(tmp_path / name)}}
    with pytest.warns(CompatibilityNote, match="is now"):
        config_from_mapping({"reward": block})  # checks that the files are there
    stored = {"state_dict": model.network.state_dict(), "config": json.loads((there / "config.json").read_text())}
    torch.save(stored, tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_success_classifier(tmp_path / name)  # a file of that name is what it says
    with pytest.raises(DataError, match="no such checkpoint"):
        load_success_classifier(tmp_path / "elsewhere" / name)
