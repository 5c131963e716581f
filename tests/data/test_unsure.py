"""Frames that nobody could judge: kept in every format, counted, shown, and in nothing that is trained or measured."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rewardlab.cli import main
from rewardlab.data import Episode, EpisodeWriter, convert_episodes, draw_contact_sheet, read_episodes, summarize
from rewardlab.data.contact_sheet import GREEN, GREY, RED
from rewardlab.data.frames import split_by_episode, tabulate
from rewardlab.errors import DataError
from rewardlab.rewards import ResNetRewardModel

SUCCESS = np.array([0, 0, 0, 1, 1], bool)
UNSURE = np.array([0, 1, 1, 0, 0], bool)


def episode(success: np.ndarray = SUCCESS, unsure: np.ndarray | None = UNSURE, seed: int = 0) -> Episode:
    frames = np.random.default_rng(seed).integers(0, 255, (len(success), 8, 8, 3), dtype=np.uint8)
    columns = {"success": success, "observation.images.base_camera": frames}
    return Episode.from_columns(columns if unsure is None else {**columns, "unsure": unsure})


@pytest.mark.parametrize("name", ["safetensors", "pickle", "npy"])
def test_every_format_keeps_it(tmp_path: Path, name: str) -> None:
    EpisodeWriter(tmp_path / "a").write(episode())
    EpisodeWriter(tmp_path / "a").write(episode(unsure=None))
    convert_episodes(tmp_path / "a", tmp_path / "b", name)
    convert_episodes(tmp_path / "b", tmp_path / "c")
    for place in "abc":
        stored = read_episodes(tmp_path / place)
        assert [one.unsure().tolist() for one in stored] == [UNSURE.tolist(), [False] * 5]
        assert [one.labels().tolist() for one in stored] == [SUCCESS.tolist()] * 2
        assert "unsure" not in stored[1].load().columns


def test_readers_that_would_take_it_for_failures_refuse_the_file(tmp_path: Path) -> None:
    found = [EpisodeWriter(tmp_path).write(one) for one in (episode(unsure=None), episode())]
    assert [re.findall(rb'"version":"(\d)"', path.read_bytes()) for path in found] == [[b"1"], [b"3"]]


def test_pictures_of_some_rows_only(tmp_path: Path) -> None:
    columns = {**episode().columns, "frame_rows": np.array([0, 2, 4])}
    columns["observation.images.base_camera"] = columns["observation.images.base_camera"][[0, 2, 4]]
    EpisodeWriter(tmp_path).write(Episode.from_columns(columns))
    table = tabulate(read_episodes(tmp_path))
    assert (table.time.tolist(), table.label.tolist(), table.unsure) == ([0, 4], [False, True], 1)
    (stored,) = read_episodes(tmp_path)
    assert (stored.frame("base_camera", 2) == columns["observation.images.base_camera"][1]).all()


def test_a_frame_is_a_success_or_unsure() -> None:
    with pytest.raises(DataError, match="step 4 is a success in 'success' and open in 'unsure'"):
        episode(unsure=np.array([0, 0, 0, 0, 1], bool))


def test_neither_trained_nor_measured_on(tmp_path: Path) -> None:
    """Episodes of which everything is unsure do not count as failures that could be held out."""
    writer = EpisodeWriter(tmp_path)
    nothing, everything = np.zeros(5, bool), np.ones(5, bool)
    for seed in range(3):
        writer.write(episode(seed=seed))
        writer.write(episode(nothing, None, seed=10 + seed))
    for seed in range(20):
        writer.write(episode(nothing, everything, seed=20 + seed))
    table = tabulate(read_episodes(tmp_path))
    assert (len(table), table.successes, table.unsure) == (24, 6, 106)
    for seed in range(5):
        for side in split_by_episode(table, 0.2, seed):
            assert side.successes >= 2
            assert side.failures >= 1
            assert not any(side.episodes[e].unsure()[t] for e, t in zip(side.episode, side.time, strict=True))


def test_nothing_but_unsure_frames(tmp_path: Path) -> None:
    EpisodeWriter(tmp_path).write(episode(np.zeros(5, bool), np.ones(5, bool)))
    with pytest.raises(DataError, match="none of the 5 frames is labelled: all are unsure"):
        split_by_episode(tabulate(read_episodes(tmp_path)), 0.2, 0)


def test_frames_collected_for_a_model_that_trains_with_the_policy() -> None:
    model = ResNetRewardModel(arch="resnet10", width=8, hidden_dim=8, image_size=(3, 8, 8))
    model.collect_data(episode().steps)
    model.load_expert_data(episode(unsure=None).steps)
    assert len(model._frames) == 3 + 5
    images, labels = model._frames.balanced_batch(64)
    assert len(labels) == 64
    assert len(torch.unique(images["base_camera"].flatten(1), dim=0)) == 5  # each frame once: the second adds two


def test_counted_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    EpisodeWriter(tmp_path / "data").write(episode())
    summary = summarize(tmp_path / "data")
    assert (summary.frames, summary.success_frames, summary.failure_frames, summary.unsure_frames) == (5, 2, 1, 2)
    assert main(["data", "info", str(tmp_path / "data")]) == 0
    assert "success 2   failure 1   unsure 2" in capsys.readouterr().out
    with Image.open(draw_contact_sheet(tmp_path / "data", tmp_path / "sheet.png")) as sheet:
        colours = {pixel for _, pixel in sheet.getcolors(2**24) or ()}
    assert {GREEN, RED, GREY} <= colours


def test_an_episode_without_any_label_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    EpisodeWriter(tmp_path / "data").write(episode(np.zeros(5, bool), np.ones(5, bool)))
    assert main(["data", "info", str(tmp_path / "data")]) == 0
    assert re.search(r"episodes +1   success 0   failure 0   unsure 1\n", capsys.readouterr().out)
    with Image.open(draw_contact_sheet(tmp_path / "data", tmp_path / "sheet.png")) as sheet:
        assert RED not in {pixel for _, pixel in sheet.getcolors(2**24) or ()}
