"""Further views of a run: pictures in TensorBoard, Weights & Biases, metrics.jsonl of collections."""

import importlib.util
import json
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rewardlab.config import load_config
from rewardlab.data.images import write_png
from rewardlab.errors import ConfigError
from rewardlab.reports.collection_log import CollectionLog
from rewardlab.reports.log_pictures import disputed_pictures
from rewardlab.reports.run_log import RunLog
from rewardlab.reports.wandb_log import open_wandb

WANDB = ["runner.logger.wandb_project=mine", "runner.logger.wandb_offline=true"]


def write_disputed(directory: Path) -> None:
    for number in range(10):
        write_png(directory / "false_positive" / f"{number:06d}_0_prob0.9000.png", np.full((8, 8, 3), number, np.uint8))


def test_the_newest_disputed_frames_are_shown_side_by_side(tmp_path: Path) -> None:
    write_disputed(tmp_path / "audit" / "resnet")
    (name, picture), *more = disputed_pictures(tmp_path / "audit").items()
    assert (name, more) == ("audit/resnet/false_positive", [])
    assert picture.shape == (128, 8 * 128, 3)
    assert picture[0, ::128, 0].tolist() == [9, 8, 7, 6, 5, 4, 3, 2]
    with RunLog(tmp_path, total=1, console=Console(quiet=True)) as log:
        log.show_pictures(1, {name: picture})
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Tags()["images"] == [name]


def test_a_collection_logs_what_it_has(tmp_path: Path) -> None:
    with CollectionLog(tmp_path, before=2) as log:
        log.add(8, 0, 0)
        log.add(16, 1, 2)
    with CollectionLog(tmp_path, before=5) as log:
        log.add(16, 1, 0)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["iteration"], row["env_steps"], row["episodes/success"]) for row in rows] == [(5, 16, 1), (6, 16, 1)]


def test_wandb_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("rewardlab.config.run_checks.find_spec", lambda name: None if name == "wandb" else found(name))
    with pytest.raises(ConfigError, match=r"wandb_project: found mine, .*pip install 'rewardlab\[wandb\]'"):
        load_config("tabletop_ppo_mlp", WANDB)
    monkeypatch.setattr("rewardlab.config.run_checks.find_spec", lambda name: SimpleNamespace())
    load_config("tabletop_ppo_mlp", WANDB)
    with pytest.raises(ConfigError, match="a collection writes"):
        load_config("tabletop_pickcube", WANDB)


def test_wandb_writes_its_files_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="pip install 'rewardlab[wandb]'")
    monkeypatch.setenv("HOME", str(tmp_path))
    cfg = load_config("tabletop_ppo_mlp", WANDB)
    with RunLog(tmp_path, total=2, console=Console(quiet=True), wandb=open_wandb(cfg, tmp_path)) as log:
        log.write(1, {"env/return": 0.25}, "")
        log.show_pictures(1, {"audit/claimed": np.zeros((8, 8, 3), np.uint8)})
        log.write(2, {"env/return": 0.5}, "")
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    for words in (b"env/return", b"audit/claimed", b"tabletop/PickCube"):  # the last is of the config
        end = time.monotonic() + 60  # wandb's own process writes it
        while words not in file.read_bytes():
            assert time.monotonic() < end, words
            time.sleep(0.05)
    assert list((tmp_path / "wandb").glob("offline-run-*/files/media/images/audit/claimed*.png"))
