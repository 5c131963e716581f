"""Scoring files: the same frame has the same probability everywhere, and one bad file stops nothing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.data import Problem, read_episodes
from rewardlab.data.frames import tabulate
from rewardlab.data.stored_frames import validation_logits
from rewardlab.errors import ConfigError, DataError
from rewardlab.models.inference import success_probability
from rewardlab.pipelines import score
from rewardlab.pipelines.score import ScoredFile, find_inputs, score_files
from rewardlab.rewards import ResNetRewardModel, RewardManager

ONE = ("base_camera",)


@pytest.fixture(scope="module")
def model() -> ResNetRewardModel:
    return small_model(ONE)


def small_model(cameras: tuple[str, ...]) -> ResNetRewardModel:
    torch.manual_seed(0)
    built = ResNetRewardModel(arch="resnet10", width=8, hidden_dim=16, image_size=(3, 32, 32), image_keys=cameras)
    frames = torch.randint(0, 255, (16, 32, 32, 3), dtype=torch.uint8)
    built.network.train()(dict.fromkeys(cameras, frames))  # running statistics as after training
    built.network.eval()
    built.temperature, built.threshold = 0.1, 0.09
    return built


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory, write_toy_episodes: Callable[..., Path]) -> Path:
    return write_toy_episodes(tmp_path_factory.mktemp("toy"), count=3, length=20)


def scored(model: ResNetRewardModel, *paths: Path, **options: object) -> list[ScoredFile]:
    results = list(score_files(model, find_inputs(paths, model.image_keys), **options))  # type: ignore[arg-type]
    assert all(isinstance(result, ScoredFile) for result in results)
    return results  # type: ignore[return-value]


@pytest.mark.parametrize("at_once", [1, 7, 256])
def test_files_validation_and_rl_give_the_same_bits(
    model: ResNetRewardModel, episodes: Path, tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score, "BATCH_BYTES", at_once * 32 * 32 * 3)
    found = torch.cat([result.probability for result in scored(model, episodes)])
    stored = read_episodes(episodes)
    logits = validation_logits(model.logits, tabulate(stored), ONE)
    assert found.equal(success_probability(torch.from_numpy(logits), model.temperature))
    checkpoint = RewardModelConfig(checkpoint_path=str(model.save(tmp_path / "model")))
    manager = RewardManager.from_config(RewardConfig(reward_type="continuous", model=checkpoint))
    rewards = [manager.compute_rewards(episode.load().steps) for episode in stored]
    assert found.equal(torch.cat(rewards))
    assert found.std() > 0.02  # or equality would mean little


def test_a_frame_as_a_picture_scores_as_in_its_episode(
    model: ResNetRewardModel, episodes: Path, tmp_path: Path
) -> None:
    stored = read_episodes(episodes)[0]
    for t in range(20):
        Image.fromarray(stored.frame("base_camera", t)).save(tmp_path / f"{t:02d}.png")
    pictures = scored(model, tmp_path)
    assert [result.path.name for result in pictures] == [f"{t:02d}.png" for t in range(20)]
    assert torch.cat([result.probability for result in pictures]).equal(scored(model, stored.path)[0].probability)
    assert pictures[0].label is None


@pytest.mark.parametrize("format", ["pickle", "npy"])
def test_every_format_gives_the_same_scores(
    model: ResNetRewardModel, episodes: Path, tmp_path: Path, write_toy_episodes: Callable[..., Path], format: str
) -> None:
    other = write_toy_episodes(tmp_path, format, count=3, length=20)
    by_bytes = [sorted(result.probability.numpy().tobytes() for result in scored(model, d)) for d in (episodes, other)]
    assert by_bytes[0] == by_bytes[1]


def test_the_verdict_is_above_the_stored_threshold_or_the_given_one(model: ResNetRewardModel, episodes: Path) -> None:
    for threshold in (None, 0.07, 0.99):
        for result in scored(model, episodes, threshold=threshold):
            assert result.success.equal(result.probability > (threshold or 0.09))
            assert result.label is not None


def test_pictures_of_any_size_kind_and_colour_are_taken(model: ResNetRewardModel, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(tmp_path / "large.jpg")
    Image.fromarray(rng.integers(0, 255, (32, 32, 4), dtype=np.uint8)).save(tmp_path / "transparent.PNG")
    Image.fromarray(rng.integers(0, 255, (32, 32), dtype=np.uint8)).save(tmp_path / "grey.png")
    assert [result.path.name for result in scored(model, tmp_path)] == ["grey.png", "large.jpg", "transparent.PNG"]


def test_bad_files_are_named_and_the_others_scored(
    model: ResNetRewardModel, tmp_path: Path, write_toy_episodes: Callable[..., Path]
) -> None:
    data = write_toy_episodes(tmp_path / "data", count=4)
    broken = next(data.rglob("episode_000001.*"))
    broken.write_bytes(broken.read_bytes()[:-1000])
    flipped = next(data.rglob("episode_000002.*"))
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    good, deep, cut = tmp_path / "good.png", tmp_path / "deep.png", tmp_path / "cut.png"
    Image.new("RGB", (32, 32)).save(good)
    Image.fromarray(np.zeros((32, 32), np.uint16)).save(deep)
    cut.write_bytes(good.read_bytes()[:40])
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    paths = [good, tmp_path / "no.png", deep, cut, good, data, tmp_path / "empty", tmp_path / "notes.txt"]
    results = list(score_files(model, find_inputs(paths, ONE)))
    problems = {p.path.name: p.problem for p in results if isinstance(p, Problem)}
    assert {name: text for name, text in problems.items() if name not in text} == {}
    assert set(problems) == {"no.png", "deep.png", "cut.png", broken.name, flipped.name, "empty", "notes.txt"}
    assert "does not exist" in problems["no.png"]
    assert "8 bits" in problems["deep.png"]
    assert "neither episodes nor pictures" in problems["empty"]
    assert "checksum" in problems[flipped.name]
    assert len([result for result in results if isinstance(result, ScoredFile)]) == 4


def test_a_model_with_several_cameras_needs_a_picture_of_each(
    tmp_path: Path, write_toy_episodes: Callable[..., Path]
) -> None:
    cameras = ("base_camera", "wrist_camera")
    model = small_model(cameras)
    stored = read_episodes(write_toy_episodes(tmp_path / "data", count=1, cameras=cameras))[0]
    for camera in cameras:
        (tmp_path / camera).mkdir()
        for t in range(stored.length):
            Image.fromarray(stored.frame(camera, t)).save(tmp_path / camera / f"{t}.png")
    folders = {camera: tmp_path / camera for camera in reversed(cameras)}
    pictures = list(score_files(model, find_inputs([], cameras, folders)))
    assert torch.cat([p.probability for p in pictures if isinstance(p, ScoredFile)]).equal(
        scored(model, stored.path)[0].probability
    )
    with pytest.raises(ConfigError, match=r"looks at 2 cameras.*--camera base_camera=.*--camera wrist_camera="):
        find_inputs([tmp_path / "wrist_camera" / "0.png"], cameras)
    with pytest.raises(ConfigError, match="Did you mean 'wrist_camera'"):
        find_inputs([], cameras, {"wrist_camra": tmp_path})
    with pytest.raises(ConfigError, match="also looks at 'wrist_camera'"):
        find_inputs([], cameras, {"base_camera": tmp_path / "base_camera"})
    with pytest.raises(DataError, match="different numbers of pictures"):
        find_inputs([], cameras, {**folders, "base_camera": tmp_path / "base_camera" / "0.png"})


def test_progress_counts_files_and_the_strip_is_spread_over_time(model: ResNetRewardModel, episodes: Path) -> None:
    done: list[float] = []
    results = scored(model, episodes, strip=5, progress=done.append)
    assert done == sorted(done)
    assert done[-1] == 3
    stored = read_episodes(episodes)[0]
    assert [t for t, _ in results[0].strip] == [2, 6, 10, 14, 18]
    for t, frame in results[0].strip:
        np.testing.assert_array_equal(frame, stored.frame("base_camera", t))


def test_broken_weights_are_said_to_be(model: ResNetRewardModel, episodes: Path) -> None:
    broken = small_model(ONE)
    broken.load_state_dict({**broken.state_dict(), "head.out.bias": torch.tensor([float("nan")])})
    with pytest.raises(ConfigError, match="gives NaN"):
        scored(broken, episodes)
