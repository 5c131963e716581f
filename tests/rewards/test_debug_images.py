"""Debug images: the documented names, a cap, and no harm to scoring."""

import errno
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from reward_toys import make_frames, small_resnet

from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.data import atomic
from rewardlab.rewards import DebugImageWriter, RewardManager


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []


def test_names_folders_and_pixels(tmp_path: Path) -> None:
    images, _ = make_frames(3)
    writer = DebugImageWriter(tmp_path)
    writer.add(images, torch.tensor([0.91234, 0.5, 0.1]), threshold=0.5)
    writer.flush()
    assert names(tmp_path / "resnet_success") == ["000000_prob0.9123.png"]
    assert names(tmp_path / "resnet_fail") == ["000001_prob0.5000.png", "000002_prob0.1000.png"]
    written = np.asarray(Image.open(tmp_path / "resnet_fail" / "000002_prob0.1000.png"))
    assert np.array_equal(written, images[2].numpy())


def test_floats_channels_first_show_the_same(tmp_path: Path) -> None:
    images, _ = make_frames(1)
    writer = DebugImageWriter(tmp_path)
    writer.add(images.permute(0, 3, 1, 2).float() / 255, torch.tensor([0.9]), threshold=0.5)
    writer.flush()
    written = np.asarray(Image.open(tmp_path / "resnet_success" / "000000_prob0.9000.png"))
    assert np.array_equal(written, images[0].numpy())


def test_the_cap_holds_per_folder_and_over_runs(tmp_path: Path) -> None:
    images, _ = make_frames(10)
    for _ in range(2):
        writer = DebugImageWriter(tmp_path, limit=4)
        writer.add(images, torch.tensor([0.1] * 8 + [0.9] * 2), threshold=0.5)
        writer.flush()
    assert len(names(tmp_path / "resnet_fail")) == 4
    assert names(tmp_path / "resnet_success") == [f"{n:06d}_prob0.9000.png" for n in (4, 5, 6, 7)]


def test_a_disk_that_fails_warns_once_and_scoring_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    writer = DebugImageWriter(tmp_path / "file" / "inside")
    images, _ = make_frames(2)

    def write() -> None:
        for _ in range(3):
            writer.add(images, torch.tensor([0.1, 0.9]), threshold=0.5)
            writer.flush()

    with pytest.warns(UserWarning, match="no more debug images .* are written") as caught:
        write()
    assert len(caught) == 1


def test_a_full_queue_drops_frames_instead_of_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, saved = threading.Event(), []
    monkeypatch.setattr(Image.Image, "save", lambda *_: saved.append(disk.wait(60)))
    writer = DebugImageWriter(tmp_path, backlog=2)
    writer.add(make_frames(50)[0], torch.full((50,), 0.9), threshold=0.5)
    assert saved == []
    disk.set()
    writer.flush()
    assert 2 <= len(saved) <= 3  # those in the queue, and the one that was being written


@pytest.mark.parametrize("by", ["config", "environment"])
def test_the_manager_writes_them(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(small_resnet().save(tmp_path / "m"))
    if by == "environment":
        monkeypatch.setenv("DEBUG_IMAGE_SAVE_DIR", str(tmp_path / "debug"))
    directory = str(tmp_path / "debug") if by == "config" else None
    config = RewardConfig(model=RewardModelConfig(checkpoint_path=path, debug_save_dir=directory))
    manager = RewardManager.from_config(config)
    manager.compute_rewards(make_frames(6)[0])
    manager.debug_images["resnet_reward"].flush()
    written = names(tmp_path / "debug" / "resnet_success") + names(tmp_path / "debug" / "resnet_fail")
    assert sorted(name[:6] for name in written) == [f"{n:06d}" for n in range(6)]


def test_ids_follow_the_positions_of_the_frames(tmp_path: Path) -> None:
    writer = DebugImageWriter(tmp_path)
    writer.first_id = 100
    writer.add(make_frames(2)[0], torch.tensor([0.9, 0.9]), threshold=0.5, position=8)
    writer.flush()
    assert names(tmp_path / "resnet_success") == ["000108_prob0.9000.png", "000109_prob0.9000.png"]
    assert DebugImageWriter(tmp_path).next_id() == 110


def test_writers_leave_no_threads(tmp_path: Path) -> None:
    before = threading.active_count()
    writers = [DebugImageWriter(tmp_path / str(number)) for number in range(50)]
    for writer in writers:
        writer.add(make_frames(1)[0], torch.tensor([0.9]), threshold=0.5)
    for writer in writers:
        writer.flush()
    assert threading.active_count() == before
    assert len(list(tmp_path.rglob("*.png"))) == 50


def test_pictures_appear_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = DebugImageWriter(tmp_path)
    monkeypatch.setattr(atomic.Path, "replace", full)

    def write() -> None:
        writer.add(make_frames(1)[0], torch.tensor([0.9]), threshold=0.5)
        writer.flush()

    with pytest.warns(UserWarning, match="are written: could not write .*: No space left on device"):
        write()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
