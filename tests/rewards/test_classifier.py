"""Success classifiers as reward models: scoring, fitting, and what they leave alone."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reward_toys import make_batch, make_frames, small_binary, small_resnet

from rewardlab.errors import ConfigError, DataError
from rewardlab.models.resnet import ResNet
from rewardlab.rewards import BaseRewardModel, SuccessClassifier, create_reward_model, register_reward_model
from rewardlab.rewards.base import REWARD_MODELS


def test_every_form_of_observation_gives_the_same_bits(model: SuccessClassifier) -> None:
    images, _ = make_frames(6)
    expected = model.probabilities(images)
    forms: list[Any] = [
        images.numpy(),
        images.permute(0, 3, 1, 2).float() / 255,
        {"base_camera": images},
        {"images": {"base_camera": images}, "state": torch.zeros(6)},
        {"observation": {"images": {"base_camera": images}}},
        make_batch(6),
        [{"obs": {"images": {"base_camera": image}}} for image in images],
        [image.numpy() for image in images],
    ]
    for form in forms:
        assert torch.equal(model.probabilities(form), expected)
    assert torch.equal(model.probabilities(images.reshape(2, 3, 32, 32, 3)), expected.reshape(2, 3))


def test_the_frame_after_the_action_is_the_one_judged(model: SuccessClassifier) -> None:
    before, after = make_frames(4)[0], make_frames(8)[0][:4]
    transition = {"obs": {"base_camera": before}, "next_obs": {"base_camera": after}, "action": torch.zeros(4)}
    assert torch.equal(model.probabilities(transition), model.probabilities(after))


def test_a_score_does_not_depend_on_the_batch(model: SuccessClassifier) -> None:
    images, _ = make_frames(300)
    scores = model.probabilities(images)
    assert torch.equal(scores[255:258], model.probabilities(images[255:258]))
    assert not scores.is_inference()  # a learner may multiply it into a loss


def test_temperature_is_applied(model: SuccessClassifier) -> None:
    images, _ = make_frames(4)
    logits = model.logits(images)
    model.temperature = 2.0
    assert torch.allclose(model.probabilities(images), torch.sigmoid(logits / 2))
    assert torch.allclose(model(images), logits, atol=1e-4)


def test_changed_weights_are_noticed(model: SuccessClassifier) -> None:
    images, _ = make_frames(4)
    before = model.probabilities(images)
    with torch.no_grad():
        model.network.head.out.bias += 1  # type: ignore[union-attr,operator]
    after = model.probabilities(images)
    assert (after > before).all()
    other = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert torch.equal(other.probabilities(images), after)
    other.load_state_dict({name: torch.zeros_like(value) for name, value in model.network.state_dict().items()})
    assert torch.equal(other.probabilities(images), torch.full((4,), 0.5))


def test_estimate_changes_neither_its_input_nor_the_model(model: SuccessClassifier) -> None:
    batch = make_batch(5)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    before = batch.clone()
    estimated = model.estimate(batch)
    assert (batch == before).all()
    assert batch.keys() == before.keys()
    assert torch.equal(estimated["env_reward"], before["reward"])
    assert torch.equal(estimated["reward"], model.probabilities(batch))
    assert torch.equal(model.estimate(estimated)["env_reward"], before["reward"])
    rollout = make_batch(6).reshape(2, 3)
    assert torch.equal(model.estimate(rollout)["reward"], model.probabilities(make_batch(6)).reshape(2, 3))
    estimated["env_reward"] += 1
    assert torch.equal(batch["reward"], before["reward"])
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_estimate_of_a_list_is_a_list(model: SuccessClassifier) -> None:
    images, _ = make_frames(3)
    items = [{"obs": {"base_camera": image}, "reward": torch.tensor([7.0]), "done": False} for image in images]
    estimated = model.estimate(items)
    expected = model.probabilities(images)
    assert [item["reward"].tolist() for item in estimated] == [[float(p)] for p in expected]
    assert all(item["env_reward"] == 7.0 and item["done"] is False for item in estimated)
    assert all(item["reward"] == 7.0 and "env_reward" not in item for item in items)


@pytest.mark.parametrize("build", [small_resnet, small_binary])
def test_it_learns_red_from_blue(build: Any) -> None:
    torch.manual_seed(0)
    model = build(learning_rate=3e-3, update_per_collect=25)
    batch = make_batch(64)
    model.collect_data(batch)
    model.train()
    verdict = model.probabilities(make_batch(40)) > model.threshold
    assert (verdict == make_batch(40)["success"]).float().mean() >= 0.95
    assert not model.network.training


def test_data_is_copied_kept_and_cleared() -> None:
    model = small_resnet(clear_buffer_per_iters=3, update_per_collect=1)
    images, labels = make_frames(8)
    model.load_expert_data({"images": images, "success": labels})
    model.collect_data([{"obs": {"base_camera": image}, "success": False} for image in images])
    images.zero_()
    assert len(model._frames) == 16
    for iteration, left in ((1, 16), (2, 16), (3, 8), (6, 8)):
        model.clear_data(iteration)
        assert len(model._frames) == left
    kept, _ = model._frames.balanced_batch(4)
    assert kept["base_camera"].any()
    model.train()


def test_one_class_only_is_an_error() -> None:
    model = small_resnet()
    with pytest.raises(DataError, match="0 frames of success and 0 of failure"):
        model.train()
    batch = make_batch(8)
    model.collect_data(batch[batch["success"]])
    with pytest.raises(DataError, match="4 frames of success and 0 of failure"):
        model.train()
    with pytest.raises(DataError, match="expected 'success'"):
        model.collect_data(batch.exclude("success"))


def test_nan_loss_stops_and_keeps_the_weights() -> None:
    model = small_resnet(update_per_collect=3)
    model.collect_data(make_batch(8))
    with torch.no_grad():
        model.network.head.out.bias.fill_(float("nan"))  # type: ignore[union-attr,operator]
    before = model.network.head.hidden.weight.clone()  # type: ignore[union-attr,operator]
    with pytest.raises(DataError, match="loss is nan at update 0"):
        model.train()
    assert torch.equal(model.network.head.hidden.weight, before)  # type: ignore[union-attr]


def test_losses_are_logged() -> None:
    class Log:
        rows: list[tuple[str, int]] = []  # noqa: RUF012

        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            self.rows.append((tag, global_step))

    settings = {"type": "resnet", "arch": "resnet10", "image_size": [3, 32, 32], "width": 8, "update_per_collect": 2}
    model = create_reward_model(settings, "cpu", Log())
    model.collect_data(make_batch(8))
    model.train()
    assert Log.rows == [("reward_model/loss", 0), ("reward_model/loss", 1)]


def test_state_dict_is_complete(model: SuccessClassifier) -> None:
    model.temperature, model.threshold = 1.5, 0.8
    other = small_resnet() if model.model_type == "resnet_reward" else small_binary()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.probabilities(make_batch(5)), model.probabilities(make_batch(5)))
    assert other.threshold == 0.8
    assert any("running_mean" in name for name in model.state_dict())
    with pytest.raises(DataError, match=r"head\.hidden\.weight is \[16, .*expected \[24, "):
        small_resnet(hidden_dim=24).load_state_dict(small_resnet().state_dict())


def test_bad_observations_say_what_was_found(model: SuccessClassifier) -> None:
    with pytest.raises(DataError, match="'base_camera'; found: wrist"):
        model.probabilities({"images": {"wrist": make_frames(2)[0]}})
    with pytest.raises(DataError, match=r"base_camera \[32, 32, 3\]"):
        model.probabilities(make_frames(1)[0][0])
    with pytest.raises(DataError, match="NoneType"):
        model.probabilities(None)
    with pytest.raises(DataError, match=r"0 to 255; expected \[0, 1\]"):
        model.probabilities(np.linspace(0, 255, 2 * 32 * 32 * 3).reshape(2, 32, 32, 3))


class TestPretrainedEncoder:
    @pytest.fixture(params=["batch", "group"])
    def encoder(self, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ResNet, Path]:
        encoder = ResNet("resnet10", width=8, norm=request.param)
        torch.save(encoder.state_dict(), tmp_path / "resnet10_pretrained.pt")
        return encoder, tmp_path / "resnet10_pretrained.pt"

    def test_is_loaded_and_frozen(self, encoder: tuple[ResNet, Path]) -> None:
        original, path = encoder
        settings = {"image_size": [3, 32, 32], "width": 8, "pretrained_encoder_path": str(path)}
        model = create_reward_model({"type": "binary_classifier", "update_per_collect": 2, **settings})
        assert isinstance(model, SuccessClassifier)
        model.collect_data(make_batch(8))
        model.train()
        state = model.network.encoder.state_dict()
        assert all(torch.equal(state[name], value) for name, value in original.state_dict().items())

    def test_a_constructor_reads_no_file_and_random_weights_are_not_used(self) -> None:
        model = small_binary(pretrained_encoder_path="/nowhere/resnet10.pt")
        assert model.network.frozen
        with pytest.raises(ConfigError, match="have not been read"):
            model.probabilities(make_frames(1)[0])
        with pytest.raises(DataError, match=r"/nowhere/resnet10\.pt: no such file"):
            model.load_pretrained_encoder()

    def test_frozen_if_and_only_if_pretrained_by_default(self) -> None:
        assert not small_binary().network.frozen
        with pytest.warns(UserWarning, match="keeps the encoder at random weights: set"):
            assert small_binary(freeze_encoder=True).network.frozen
        assert not small_binary(pretrained_encoder_path="x.pt", freeze_encoder=False).network.frozen
        with pytest.raises(ConfigError, match="use_pretrain: found false, but pretrained_encoder_path"):
            small_binary(pretrained_encoder_path="x.pt", use_pretrain=False)


class TestRegistry:
    def test_unknown_names_are_answered_with_choices(self) -> None:
        with pytest.raises(ConfigError, match="Did you mean 'resnet_reward'"):
            create_reward_model({"model_type": "resnet_rewrad"})
        with pytest.raises(ConfigError, match=r"key of reward model 'resnet'.*Did you mean 'hidden_dim'"):
            create_reward_model({"type": "resnet", "hiden_dim": 3})
        with pytest.raises(ConfigError, match=r"model_type: missing.*binary_classifier"):
            create_reward_model({"hidden_dim": 3})

    def test_a_users_model_is_one_class_and_one_decorator(self) -> None:
        class Constant(BaseRewardModel):
            def __init__(self, value: float = 1.0) -> None:
                self.network = torch.nn.BatchNorm1d(2)
                self.value = value

            def estimate(self, data: Any) -> Any:
                return data

            def train(self) -> None: ...
            def collect_data(self, data: Any) -> None: ...
            def clear_data(self, iter: int) -> None: ...

        class WrittenForDing(Constant):
            def __init__(self, config: Any, device: str, tb_logger: Any) -> None:
                super().__init__(config["value"])
                self.arguments = (device, tb_logger)

        register_reward_model("constant")(Constant)
        register_reward_model("written_for_ding")(WrittenForDing)
        try:
            model = create_reward_model({"type": "constant", "value": 3.0})
            assert isinstance(model, Constant)
            assert model.value == 3.0
            assert "network.running_mean" in model.state_dict()
            with pytest.raises(ConfigError, match="expert data"):
                model.load_expert_data([])
            built = create_reward_model({"type": "written_for_ding", "value": 2.0}, "cpu", None)
            assert isinstance(built, WrittenForDing)
            assert (built.value, built.arguments) == (2.0, ("cpu", None))
        finally:
            for name in ("constant", "written_for_ding"):
                del REWARD_MODELS._entries[name]

    def test_the_interface_is_abstract(self) -> None:
        with pytest.raises(TypeError, match="clear_data, collect_data, estimate, train"):
            BaseRewardModel()  # type: ignore[abstract]
