"""The crop of a camera is a part of the model: the same everywhere, and nothing outside of it counts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from PIL import Image

from rewardlab.cli import main
from rewardlab.config import load_config
from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.data import Episode, EpisodeWriter, read_episodes
from rewardlab.data.crops import CROPS, draw_crop, read_crops, write_crops
from rewardlab.data.frames import tabulate
from rewardlab.data.stored_frames import validation_logits
from rewardlab.data.transition_file import RecordingWriter
from rewardlab.envs.wrappers import RewardModelWrapper
from rewardlab.errors import ConfigError, DataError
from rewardlab.models.image_preprocessor import ImagePreprocessor
from rewardlab.models.inference import success_probability
from rewardlab.models.onnx_encoder import onnx_installed
from rewardlab.pipelines import train_reward
from rewardlab.pipelines.score import ScoredFile, find_inputs, score_files
from rewardlab.rewards import ResNetRewardModel, RewardManager, load_reward_model

CAMERAS = ("base_camera", "wrist_camera")
SIZE, CROP = 32, (6, 10, 16, 12)
INSIDE = slice(6, 22), slice(10, 22)


def write_marked(directory: Path, *, outside: int = 0, count: int = 6) -> Path:
    """Episodes whose success is a bright square inside of the crop; what is outside depends on the seed `outside`."""
    rng, other = np.random.default_rng(0), np.random.default_rng(outside)
    writer = EpisodeWriter(directory, durable=False)
    for number in range(count):
        labels = (np.arange(8) >= 5) & (number % 2 == 0)
        columns: dict[str, Any] = {"success": labels}
        for camera in CAMERAS:
            frames = rng.integers(0, 60, (8, SIZE, SIZE, 3), dtype=np.uint8)
            frames[labels, 10:16, 12:18, 0] = 240
            if outside:
                noise = other.integers(0, 256, frames.shape, dtype=np.uint8)
                noise[:, *INSIDE] = frames[:, *INSIDE]
                frames = noise
            columns[f"observation.images.{camera}"] = frames
        writer.write(Episode.from_columns(columns, task="marks"))
    return directory


def train(data: Path | list[Path], out: Path, *overrides: str) -> ResNetRewardModel:
    paths = [data] if isinstance(data, Path) else data
    small = ["reward.model.width=8", "reward.model.hidden_dim=8", "runner.max_epochs=2", "actor.global_batch_size=16"]
    where = [f"data.data_path=[{','.join(map(str, paths))}]", f"runner.logger.log_path={out}"]
    checkpoint = train_reward.run(load_config("reward_training", [*small, *where, *overrides]))
    model = load_reward_model(checkpoint)
    assert isinstance(model, ResNetRewardModel)
    return model


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = write_marked(tmp_path_factory.mktemp("marks") / "collected_data")
    write_crops(directory, {"base_camera": CROP})
    return directory


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    train(data, out)
    return out / "checkpoints" / "best_model"


class Replayed(gymnasium.Env[Any, Any]):
    """Shows the frames of an episode one after the other."""

    def __init__(self, episode: Episode) -> None:
        self.frames = {camera: episode.columns[f"observation.images.{camera}"] for camera in CAMERAS}
        picture = spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        self.observation_space = spaces.Dict({"images": spaces.Dict(dict.fromkeys(CAMERAS, picture))})
        self.action_space = spaces.Discrete(2)

    def _observe(self) -> Any:
        return {"images": {camera: frames[self.t] for camera, frames in self.frames.items()}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self._observe(), 0.0, False, self.t == 7, {}


def test_the_checkpoint_has_the_crop_and_a_network_of_its_size(trained: Path) -> None:
    architecture = json.loads((trained / "config.json").read_text())["architecture"]
    assert architecture["crop"] == {"base_camera": list(CROP)}
    assert architecture["image_size"] == [3, 16, 12]
    assert architecture["frame_sizes"] == {camera: [SIZE, SIZE] for camera in CAMERAS}


def test_files_wrapper_and_rl_give_the_same_bits(trained: Path, data: Path) -> None:
    model = load_reward_model(trained)
    assert isinstance(model, ResNetRewardModel)
    stored = read_episodes(data)[0]
    frames = {c: stored.load().columns[f"observation.images.{c}"] for c in CAMERAS}
    expected = model.probabilities({"images": frames})
    assert len(set(expected.tolist())) > 4
    (of_file,) = score_files(model, find_inputs([stored.path], CAMERAS))
    assert isinstance(of_file, ScoredFile)
    assert of_file.probability.equal(expected)
    logits = torch.from_numpy(validation_logits(model.logits, tabulate([stored]), CAMERAS))
    assert success_probability(logits, model.temperature).equal(expected)
    term = RewardModelConfig(checkpoint_path=str(trained))
    manager = RewardManager.from_config(RewardConfig(reward_type="continuous", model=term))
    assert manager.compute_rewards({"images": frames}).equal(expected)
    env = RewardModelWrapper(Replayed(stored.load()), model, reward_type="continuous")
    env.reset()
    assert [env.step(0)[4]["reward_model/prob"] for _ in range(7)] == expected[1:].tolist()
    first = {"images": {c: torch.from_numpy(f).permute(0, 3, 1, 2) for c, f in frames.items()}}
    assert model.probabilities(first).equal(expected)  # in the other layout
    if onnx_installed():
        model.use_backend("onnx")
        torch.testing.assert_close(model.probabilities({"images": frames}), expected, atol=1e-5, rtol=0)


def test_nothing_outside_of_the_crop_changes_a_score(trained: Path, data: Path) -> None:
    model = load_reward_model(trained)
    assert isinstance(model, ResNetRewardModel)
    frames = {c: read_episodes(data)[0].load().columns[f"observation.images.{c}"] for c in CAMERAS}
    before = model.probabilities({"images": frames})
    changed = frames["base_camera"].copy()
    changed[:, :6] = changed[:, 22:] = changed[:, :, :10] = changed[:, :, 22:] = 255
    assert model.probabilities({"images": {**frames, "base_camera": changed}}).equal(before)
    changed[:, 10, 12] = 0  # one pixel inside
    assert not model.probabilities({"images": {**frames, "base_camera": changed}}).equal(before)
    other = frames["wrist_camera"].copy()
    other[:, 0, 0] = 255
    assert not model.probabilities({"images": {**frames, "wrist_camera": other}}).equal(before)  # it has no crop


def test_nothing_outside_of_the_crop_changes_training(tmp_path: Path) -> None:
    """Augmentation shifts what is in the crop, and never brings into it what is beside it."""
    weights = []
    for number, outside in enumerate((0, 1)):
        directory = write_marked(tmp_path / f"data{number}", outside=outside)
        write_crops(directory, dict.fromkeys(CAMERAS, CROP))
        model = train(directory, tmp_path / f"run{number}", f"data.debug_save_dir={tmp_path}/debug{number}")
        weights.append(model.state_dict())
    assert weights[0].keys() == weights[1].keys()
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    seen = [sorted((tmp_path / name).rglob("*.png")) for name in ("debug0", "debug1")]
    assert [path.name for path in seen[0]] == [path.name for path in seen[1]]
    for one, other in zip(*seen, strict=True):
        with Image.open(one) as first, Image.open(other) as second:
            assert first.size == (12, 16)
            np.testing.assert_array_equal(np.asarray(first), np.asarray(second))


def test_co_training_looks_at_the_crop_too(trained: Path, data: Path) -> None:
    updated = []
    for outside in (0, 1):
        model = load_reward_model(trained)
        assert isinstance(model, ResNetRewardModel)
        model.update_per_collect = 2
        for stored in read_episodes(data):
            columns = stored.load().columns
            frames = {c: columns[f"observation.images.{c}"].copy() for c in CAMERAS}
            frames["base_camera"][:, :6] += outside
            images = {c: torch.from_numpy(array) for c, array in frames.items()}
            model.collect_data({"images": images, "success": torch.from_numpy(columns["success"])})
        model.train()
        updated.append(model.state_dict())
    assert all(updated[0][name].equal(updated[1][name]) for name in updated[0])
    fresh = load_reward_model(trained).state_dict()
    assert not all(fresh[name].equal(updated[0][name]) for name in fresh)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("reward.model.crop={wrist_camera: [0.25, 0.5, 0.5, 0.25]}", {"wrist_camera": [8, 16, 16, 8]}),
        ("reward.model.crop={base_camera: [0, 0, 20, 20]}", {"base_camera": [0, 0, 20, 20]}),
        ("reward.model.crop={}", None),
    ],
)
def test_the_key_of_a_config_comes_first(
    data: Path, tmp_path: Path, override: str, expected: dict[str, list[int]] | None
) -> None:
    model = train(data, tmp_path, override, "runner.max_epochs=1")
    assert model.settings().get("crop") == expected


@pytest.mark.parametrize(
    ("crop", "words"),
    [
        ("{base_camera: [20, 0, 16, 8]}", "reaches to row 36 and column 8; expected it inside of the recorded frame"),
        ("{base_camera: [0.5, 0.5, 0.6, 0.5]}", "reaches to row 35 and column 32"),
        ("{base_camera: [0, 0, 4, 30]}", "which is 4x30 pixels; expected at least 8x8"),
        ("{base_camera: [0.5, 0, 16, 8]}", "expected whole pixels, or four fractions from 0 to 1"),
        ("{base_camera: [0, 0, 8]}", r"reward\.model\.crop\.base_camera: found \[0, 0, 8\], expected \[top, left"),
        ("{base_camera: [-1, 0, 8, 8]}", r"expected \[top, left, height, width\]"),
        ("{side: [0, 0, 8, 8]}", "no camera 'side'; the model looks at base_camera, wrist_camera"),
    ],
)
def test_a_crop_that_cannot_be_is_an_error_that_says_why(data: Path, tmp_path: Path, crop: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        train(data, tmp_path, f"reward.model.crop={crop}")


def test_directories_with_other_crops_are_not_mixed(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    assert train([data, other], tmp_path / "same", "runner.max_epochs=1").settings()["crop"]
    write_crops(other, {"base_camera": (0, 0, 16, 16)})
    with pytest.raises(ConfigError, match=r"the crops of .*collected_data\S* are .*other\S* are .*expected the same"):
        train([data, other], tmp_path / "run")
    (other / CROPS).unlink()
    with pytest.raises(ConfigError, match=r"other\S* are none; expected the same"):
        train([data, other], tmp_path / "run")
    (other / CROPS).write_text("{}")
    with pytest.raises(DataError, match=r"crops\.json is damaged"):
        train([other], tmp_path / "run")


def test_the_crop_is_found_from_a_folder_inside(data: Path, tmp_path: Path) -> None:
    paths = [data / "success", data / "failure"]
    assert train(paths, tmp_path, "runner.max_epochs=1").settings()["crop"] == {"base_camera": list(CROP)}


def test_a_run_must_not_look_at_another_part(trained: Path, data: Path, tmp_path: Path) -> None:
    def load(crop: Any) -> Any:
        return load_reward_model(trained, overrides=RewardModelConfig(crop=crop))

    assert load({"base_camera": CROP}).settings()["crop"] == {"base_camera": list(CROP)}
    fractions = (6 / SIZE, 10 / SIZE, 16 / SIZE, 12 / SIZE)
    assert load({"base_camera": fractions}).settings()["crop"] == {"base_camera": list(CROP)}
    with pytest.raises(ConfigError, match=r"crop: the config says .* was trained with"):
        load({"base_camera": (0, 0, 16, 12)})
    whole = tmp_path / "whole" / "checkpoints" / "best_model"
    train(data, tmp_path / "whole", "reward.model.crop={}", "runner.max_epochs=1")
    with pytest.raises(ConfigError, match="was trained with the whole frame"):
        load_reward_model(whole, overrides=RewardModelConfig(crop={"base_camera": CROP}))


def test_frames_are_brought_to_the_recorded_size_before_the_crop() -> None:
    prepare = ImagePreprocessor(("a",), (3, 16, 12), False, {"a": (SIZE, SIZE)}, crop={"a": CROP})
    large = np.random.default_rng(0).integers(0, 256, (2, 2 * SIZE, 2 * SIZE, 3), np.uint8)
    whole = ImagePreprocessor(("a",), (3, SIZE, SIZE), False, {"a": (SIZE, SIZE)})
    expected = whole({"a": large})[:, :, :, *INSIDE]
    assert prepare({"a": large}).equal(expected)
    assert prepare(prepare.cut({"a": large})).equal(expected)
    with pytest.raises(DataError, match="are smaller"):
        prepare({"a": large[:, :20, :20]})


def test_the_command_records_the_crop_and_draws_it(
    make_recording: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recording = make_recording()
    crops = ["--crop", "base_camera=6,10,16,12", "--crop", "wrist_camera=0.25,0.25,0.5,0.5"]
    assert main(["data", "process", str(recording), *crops]) == 0
    out = recording.parent / "collected_data"
    assert json.loads((out / CROPS).read_text()) == {
        "crop": {"base_camera": list(CROP), "wrist_camera": [8, 8, 16, 16]}
    }
    printed = capsys.readouterr().out
    assert f"crop of base_camera: 16x12 pixels from row 6, column 10; look at {out / 'crop_base_camera.png'}" in printed
    stored = next(each for each in read_episodes(out) if each.facts.success)
    with Image.open(out / "crop_base_camera.png") as picture:
        drawn = draw_crop(stored.frame("base_camera", stored.length - 1), CROP)
        np.testing.assert_array_equal(np.asarray(picture), drawn)
    assert stored.facts.cameras == dict.fromkeys(CAMERAS, (SIZE, SIZE))  # frames are kept whole


def test_the_command_takes_the_crops_of_a_config(make_recording: Callable[[], Path], tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("reward: {model: {crop: {base_camera: [6, 10, 16, 12], wrist_camera: [0, 0, 8, 8]}}}")
    recording = make_recording()
    assert main(["data", "process", str(recording), "--config", str(config), "--crop", "wrist_camera=1,1,9,9"]) == 0
    crops = json.loads((recording.parent / "collected_data" / CROPS).read_text())["crop"]
    assert crops == {"base_camera": list(CROP), "wrist_camera": [1, 1, 9, 9]}


@pytest.mark.parametrize(
    ("crop", "words"),
    [
        ("side=0,0,8,8", "--crop: no camera 'side'; the recording has base_camera, wrist_camera"),
        ("base_camera=0,0,40,8", "--crop base_camera: found [0, 0, 40, 8], which reaches to row 40"),
        ("base_camera=0,0,8", "--crop: found 'base_camera=0,0,8', expected CAMERA=TOP,LEFT,HEIGHT,WIDTH"),
        ("0,0,8,8", "expected CAMERA=TOP,LEFT,HEIGHT,WIDTH"),
    ],
)
def test_crops_of_the_command_are_checked(
    make_recording: Callable[[], Path], crop: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = make_recording()
    assert main(["data", "process", str(recording), "--crop", crop]) == 2
    assert words in capsys.readouterr().err
    assert not (recording.parent / "collected_data").exists()


@pytest.fixture
def make_recording(tmp_path: Path, data: Path) -> Callable[[], Path]:
    def make() -> Path:
        writer = RecordingWriter(tmp_path / "logs")
        for stored in read_episodes(data):
            columns = stored.load().columns
            moved = {**columns, "action": np.ones((8, 3), np.float32), "truncated": np.arange(8) == 7}
            writer.write(Episode.from_columns(moved))
        writer.close()
        return writer.path

    return make


def test_the_crop_goes_with_the_episodes(data: Path, tmp_path: Path) -> None:
    """To a copy in another format, and to a directory above them."""
    assert read_crops([data]) == {"base_camera": CROP}
    assert main(["data", "convert", str(data), str(tmp_path / "pickles"), "--format", "pickle"]) == 0
    assert read_crops([tmp_path / "pickles"]) == {"base_camera": CROP}
    shutil.copytree(data, tmp_path / "logs" / "first")
    assert read_crops([tmp_path / "logs"]) == {"base_camera": CROP}
