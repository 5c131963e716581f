"""Training frames to look at: what the network sees, under names that lead back to the data."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rewardlab.config import config_from_mapping
from rewardlab.data import read_episodes
from rewardlab.data.frames import tabulate
from rewardlab.rewards import ResNetRewardModel
from rewardlab.training.debug_frames import save_training_frames
from rewardlab.training.fit import Fit

CAMERAS = ("base_camera", "wrist_camera")


@pytest.fixture
def make_fit(tmp_path: Path, write_toy_episodes: Callable[..., Path]) -> Callable[..., Fit]:
    table = tabulate(read_episodes(write_toy_episodes(tmp_path / "data", cameras=CAMERAS)))

    def make(*, size: int = 32, augment: bool = True, cameras: tuple[str, ...] = CAMERAS[:1]) -> Fit:
        model = ResNetRewardModel(arch="resnet10", width=8, image_size=(3, size, size), image_keys=cameras)
        mapping = {"actor": {"global_batch_size": 16}, "data": {"augment": augment}}
        return Fit(model.network, table, config_from_mapping(mapping, check_files=False), lambda weights: {})

    return make


def test_without_augmentation_they_are_the_frames_of_the_data(make_fit: Callable[..., Fit], tmp_path: Path) -> None:
    assert save_training_frames(tmp_path / "debug", make_fit(augment=False, cameras=CAMERAS)) > 20
    episodes = {f"{e.path.parent.name}_{e.path.stem}": e for e in read_episodes(tmp_path / "data")}
    files = list((tmp_path / "debug").rglob("*.png"))
    for file in files:
        episode, _, rest = file.stem.partition("_frame")
        time, _, camera = rest.partition("_")
        with Image.open(file) as picture:
            np.testing.assert_array_equal(np.asarray(picture), episodes[episode].frame(camera, int(time)))
        assert (file.parent.name == "success") == episodes[episode].labels()[int(time)]
    assert {file.parent.name for file in files} == {"success", "failure"}
    assert {file.stem.partition("_frame")[2].partition("_")[2] for file in files} == set(CAMERAS)


def test_augmented_and_resized_as_for_the_network(make_fit: Callable[..., Fit], tmp_path: Path) -> None:
    save_training_frames(tmp_path / "debug", make_fit(size=24))
    for file in (tmp_path / "debug").rglob("*.png"):
        with Image.open(file) as picture:
            assert picture.size == (24, 24)


def test_the_number_is_limited_and_an_earlier_dump_kept(make_fit: Callable[..., Fit], tmp_path: Path) -> None:
    debug = tmp_path / "debug"
    assert save_training_frames(debug, make_fit(), limit=5) == 5
    before = {path: path.read_bytes() for path in debug.rglob("*.png")}
    assert len(before) == 5
    with pytest.warns(UserWarning, match="has pictures of an earlier run"):
        assert save_training_frames(debug, make_fit(augment=False)) == 0
    assert {path: path.read_bytes() for path in debug.rglob("*.png")} == before
