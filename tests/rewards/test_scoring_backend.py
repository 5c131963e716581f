"""`reward.backend`: ONNX Runtime gives torch's probabilities, follows the weights, and says where it cannot be used."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from reward_toys import make_frames, small_binary, small_resnet
from torch import Tensor

from rewardlab.config import config_from_mapping
from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.errors import ConfigError
from rewardlab.models import onnx_encoder
from rewardlab.models.onnx_encoder import OnnxEncoder
from rewardlab.rewards import RewardManager, SuccessClassifier, load_reward_model
from rewardlab.rewards.env_wrappers import reward_manager
from rewardlab.workers.reward import RewardWorker


def runs_onnx(model: SuccessClassifier) -> bool:
    """Whether the model scores frames with ONNX Runtime."""
    return isinstance(model._inference_network().encoder, OnnxEncoder)


def with_onnx(model: SuccessClassifier) -> SuccessClassifier:
    other = copy.deepcopy(model)
    other.use_backend("onnx")
    return other


@pytest.fixture
def no_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_encoder, "find_spec", lambda name: None)


@pytest.mark.parametrize("build", [small_resnet, small_binary])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "group"},
        {"image_keys": ("a", "b")},
        {"arch": "resnet50"},
        {"image_size": (3, 45, 70), "normalize": False},
    ],
)
def test_onnx_gives_the_probabilities_of_torch(build: Any, settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = build(**settings)
    _, height, width = model.image_size

    def frames(count: int) -> dict[str, Tensor]:
        return {key: torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8) for key in model.image_keys}

    model.network.train()(frames(8))
    model.network.eval()
    onnx, images = with_onnx(model), frames(300)
    assert runs_onnx(onnx)
    assert not runs_onnx(model)
    scores = onnx.probabilities(images)
    assert torch.allclose(scores, model.probabilities(images), rtol=0, atol=1e-5)
    for count in (1, 2, 33):
        part = {key: array[:count] for key, array in images.items()}
        assert torch.equal(onnx.probabilities(part), scores[:count])
        floats = {key: array.permute(0, 3, 1, 2).float() / 255 for key, array in part.items()}
        assert torch.equal(onnx.probabilities(floats), scores[:count])


def test_images_of_another_size_are_resized_alike(model: SuccessClassifier) -> None:
    images = torch.randint(0, 256, (3, 50, 50, 3), dtype=torch.uint8)
    assert torch.allclose(with_onnx(model).probabilities(images), model.probabilities(images), rtol=0, atol=1e-5)


def test_a_frozen_encoder_is_exported_too() -> None:
    model = small_binary()
    model.network.freeze_encoder()
    images, _ = make_frames(4)
    assert torch.allclose(with_onnx(model).probabilities(images), model.probabilities(images), rtol=0, atol=1e-5)


def test_changed_weights_are_exported_again(model: SuccessClassifier) -> None:
    images, labels = make_frames(16)
    onnx = with_onnx(model)
    before = onnx.probabilities(images)
    exported = onnx._inference_network()
    assert onnx._inference_network() is exported  # and not for each frame
    onnx.collect_data({"images": {"base_camera": images}, "success": labels})
    onnx.train()
    after = onnx.probabilities(images)
    assert not torch.equal(after, before)
    model.load_state_dict(onnx.state_dict())
    assert torch.allclose(after, model.probabilities(images), rtol=0, atol=1e-5)


def test_a_model_can_be_copied_and_pickled_and_keeps_its_backend(model: SuccessClassifier) -> None:
    images, _ = make_frames(4)
    onnx = with_onnx(model)
    expected = onnx.probabilities(images)
    for other in (copy.deepcopy(onnx), pickle.loads(pickle.dumps(onnx))):
        assert torch.equal(other.probabilities(images), expected)
        assert runs_onnx(other)


def test_the_key_reaches_every_place_that_scores(model: SuccessClassifier, tmp_path: Path) -> None:
    path = str(model.save(tmp_path / "model"))
    config = RewardConfig(use_reward_model=True, backend="onnx", model=RewardModelConfig(checkpoint_path=path))
    worker = RewardWorker(config)
    worker.init_worker()
    managers = [
        worker.manager,
        RewardManager.from_config(config),
        reward_manager(path, "cpu", {"backend": "onnx"}),
        reward_manager(load_reward_model(path), "cpu", {"backend": "auto"}),
        reward_manager(load_reward_model(path, backend="onnx"), "cpu", {}),
    ]
    for manager in managers:
        assert isinstance(manager.model, SuccessClassifier)
        assert runs_onnx(manager.model)
    assert not runs_onnx(reward_manager(path, "cpu", {}).model)  # type: ignore[arg-type]


def test_not_installed_says_which_extra(model: SuccessClassifier, no_onnx: None) -> None:
    with pytest.raises(ConfigError, match=r"reward\.backend: found onnx.*pip install 'rewardlab\[onnx\]'"):
        RewardManager(model, RewardConfig(backend="onnx"))


def test_auto_takes_torch_where_onnx_cannot_be_used(
    model: SuccessClassifier, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.use_backend("auto")
    assert runs_onnx(model)
    model.precision = "bf16"
    assert not runs_onnx(model)
    model.precision = "fp32"
    request.getfixturevalue("no_onnx")
    assert not runs_onnx(model)


def test_precision_auto_scores_in_fp32_on_a_cpu(model: SuccessClassifier) -> None:
    """Weights packed for fp32 are faster there, whatever the speed of bf16 in training."""
    frames, _ = make_frames(3)
    expected = model.probabilities(frames)
    model.precision = "auto"
    assert torch.equal(model.probabilities(frames), expected)
    model.use_backend("onnx")


def test_onnx_with_bf16_or_on_another_device_is_an_error(model: SuccessClassifier) -> None:
    model.precision = "bf16"
    with pytest.raises(ConfigError, match=r"reward\.backend: found onnx.*is on cpu with precision bf16"):
        model.use_backend("onnx")
    model.precision = "fp32"
    model.use_backend("onnx")
    model.network.to("meta")
    with pytest.raises(ConfigError, match=r"reward\.backend: found onnx.*is on meta with precision fp32: set.*auto"):
        model.probabilities(make_frames(2)[0])
    model.use_backend("auto")


def test_unknown_backends_are_answered_with_choices(model: SuccessClassifier) -> None:
    with pytest.raises(ConfigError, match=r"reward\.backend.*onxx.*onnx"):
        model.use_backend("onxx")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"reward\.backend.*onxx"):
        config_from_mapping({"reward": {"backend": "onxx"}})
