"""`rewardlab.load`: one frame or many, in every form in which scripts have them, get the scores of everywhere else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import rewardlab
from rewardlab.rewards import ResNetRewardModel, SuccessClassifier

Frame = np.ndarray[Any, Any]


def frames(count: int, height: int = 32, width: int = 40) -> Frame:
    return np.random.default_rng(0).integers(0, 255, (count, height, width, 3), dtype=np.uint8)


def save(directory: Path, **settings: Any) -> SuccessClassifier:
    torch.manual_seed(0)
    model = ResNetRewardModel(arch="resnet10", width=4, hidden_dim=8, image_size=(3, 24, 24), **settings)
    model.set_frame_sizes(dict.fromkeys(model.image_keys, (32, 40)))
    model.temperature = 0.05  # an untrained network hardly tells frames apart
    model.threshold = float(model.probabilities(at_all(model, frames(8))).median())
    model.save(directory)
    return model


def at_all(model: SuccessClassifier, pictures: Frame) -> Mapping[str, Frame]:
    return dict.fromkeys(model.image_keys, pictures)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "classifier"
    save(directory / "checkpoints" / "best_model", crop={"base_camera": (0, 8, 32, 24)})
    return directory


@pytest.fixture(scope="module")
def model(run: Path) -> rewardlab.SuccessModel:
    return rewardlab.load(run)


def test_frames_have_the_scores_that_files_and_rl_give_them(model: rewardlab.SuccessModel) -> None:
    pictures = frames(8)
    expected = model.classifier.probabilities(pictures).numpy()

    assert model.probability(pictures).tolist() == expected.tolist()  # type: ignore[union-attr]
    assert [model.probability(picture) for picture in pictures] == expected.tolist()
    assert model.verdict(pictures).tolist() == [p > np.float32(model.threshold) for p in expected]  # type: ignore[union-attr]
    assert {model.verdict(picture) for picture in pictures} == {True, False}


def test_every_form_of_a_frame_has_one_score(model: rewardlab.SuccessModel) -> None:
    picture = frames(1)[0]
    expected = model.probability(picture)
    floats = torch.from_numpy(picture).float() / 255
    forms = [picture[:], torch.from_numpy(picture), floats, floats.permute(2, 0, 1), Image.fromarray(picture)]
    assert [model.probability(form) for form in forms] == [expected] * len(forms)
    assert model.probability({"base_camera": picture, "another": picture[:3]}) == expected
    assert model.probability([picture, picture]).tolist() == [expected] * 2  # type: ignore[union-attr]
    assert isinstance(expected, float)


def test_bgr_is_for_frames_of_opencv(model: rewardlab.SuccessModel) -> None:
    picture = frames(1)[0]
    assert model.probability(picture[..., ::-1], bgr=True) == model.probability(picture)
    chw = torch.from_numpy(picture[..., ::-1].copy()).permute(2, 0, 1)
    assert model.probability(chw, bgr=True) == model.probability(picture)
    assert model.probability(picture, bgr=True) != model.probability(picture)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (frames(1)[0][..., 0], r"found uint8 \[32, 40\], expected a frame \[height, width, 3\].*A grey picture"),
        (np.zeros((32, 40, 4), np.uint8), r"found uint8 \[32, 40, 4\].*transparency"),
        (np.zeros((2, 2, 32, 40, 3), np.uint8), r"found uint8 \[2, 2, 32, 40, 3\], expected a frame"),
        (np.zeros((32, 40, 3), np.int64), "dtype int64; expected uint8"),
        (frames(1)[0].astype(float), r"values from 0 to 254; expected \[0, 1\]"),
        (frames(1, 20, 25)[0], "are 20x25; the model was trained on frames recorded at 32x40"),
        ([frames(1)[0], frames(1, 20)[0]], r"several kinds \(uint8 \[32, 40, 3\], uint8 \[20, 40, 3\]\)"),
        ([], "found an empty list"),
        ("frame.png", "found a str, expected .*PIL.Image.open"),
        ({"wrist": frames(1)[0]}, "no frame of camera 'base_camera'; found: wrist; the model looks at base_camera"),
    ],
)
def test_an_error_says_what_was_found(model: rewardlab.SuccessModel, given: Any, message: str) -> None:
    with pytest.raises(rewardlab.DataError, match=message):
        model.probability(given)


def test_what_a_model_is(model: rewardlab.SuccessModel, run: Path) -> None:
    assert model.path == run / "checkpoints" / "best_model"
    assert (model.cameras, model.image_size) == (("base_camera",), (24, 24))
    assert (model.frame_sizes, model.crop) == ({"base_camera": (32, 40)}, {"base_camera": (0, 8, 32, 24)})
    assert model.figures is None
    assert model.card.startswith("# best_model")
    assert "base_camera 32x40" in repr(model)


def test_settings_of_reward_model_are_taken(run: Path) -> None:
    assert 0 < float(rewardlab.load(run, resize="allow").probability(frames(1, 20, 25)[0])) < 1
    with pytest.raises(rewardlab.ConfigError, match="Did you mean 'resize'"):
        rewardlab.load(run, resise="allow")


def test_several_cameras_need_a_frame_of_each(tmp_path: Path) -> None:
    saved = save(tmp_path / "both", image_keys=("front", "wrist"))
    model, (front, wrist) = rewardlab.load(tmp_path / "both"), frames(2)
    (expected,) = saved.probabilities({"front": front[None], "wrist": wrist[None]}).tolist()

    assert model.probability({"wrist": wrist, "front": front}) == expected
    with pytest.raises(
        rewardlab.DataError, match="2 cameras; expected a dictionary with a frame of each: front, wrist"
    ):
        model.probability(front)
    with pytest.raises(rewardlab.DataError, match="one frame of each camera, or a batch of each"):
        model.probability({"front": front, "wrist": wrist[None]})


def test_models_trained_beside_a_policy_are_found_in_its_run(tmp_path: Path) -> None:
    save(tmp_path / "run/reward_models/best/resnet_reward")
    assert rewardlab.load(tmp_path / "run").path.name == "resnet_reward"
    save(tmp_path / "run/reward_models/best/another")
    with pytest.raises(rewardlab.DataError, match=r"several reward models.*best/another, .*best/resnet_reward"):
        rewardlab.load(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(rewardlab.DataError, match=r"config\.json is missing, and no best_model or reward_models"):
        rewardlab.load(tmp_path / "empty")
