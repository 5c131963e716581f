"""What goes wrong while a classifier is trained, and what is left afterwards."""

import errno
import json
import os
import shutil
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import numpy as np
import pytest
from cli_process import run_cli

from rewardlab.cli import main
from rewardlab.data import Episode, EpisodeWriter
from rewardlab.errors import DataError
from rewardlab.rewards import load_reward_model
from rewardlab.rewards.checkpoint import read_checkpoint

pytestmark = pytest.mark.usefixtures("without_drawing")

SIDE = 32
SMALL = ["reward.model.width=4", "reward.model.hidden_dim=8", "actor.optim.lr=0.003", "actor.global_batch_size=16"]


def write_episodes(place: Path, count: int, success: str = "half", alike: bool = False) -> Path:
    """Episodes of ten frames, red where they are a success and blue where they are not."""
    writer, rng = EpisodeWriter(place), np.random.default_rng(0)
    for _ in range(count):
        label = {"half": np.arange(10) >= 5, "all": np.ones(10, bool), "none": np.zeros(10, bool)}[success]
        frames = rng.integers(0, 60, (10, SIDE, SIDE, 3), np.uint8)
        if alike:
            frames[:] = 127
        else:
            frames[label, ..., 0] += 150
            frames[~label, ..., 2] += 150
        writer.write(Episode.from_columns({"observation.images.base_camera": frames, "success": label}))
    return place


def command(data: Path, out: Path, *overrides: str) -> list[str]:
    return ["train-reward", "--data", str(data), *SMALL, f"runner.logger.log_path={out}", *overrides]


@pytest.mark.parametrize(
    ("count", "success", "words"),
    [
        (6, "all", "no frame is labelled failure"),
        (6, "none", "no frame is labelled success"),
        (1, "half", "only 1 of 1"),
    ],
)
def test_data_that_cannot_teach_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, success: str, words: str
) -> None:
    data = write_episodes(tmp_path / "data", count, success)
    assert main(command(data, tmp_path / "run")) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_frames_that_are_all_alike_give_a_model_that_warns(tmp_path: Path) -> None:
    data = write_episodes(tmp_path / "data", 6, alike=True)
    assert main(command(data, tmp_path / "run", "runner.max_epochs=1", "data.augment=false")) == 0
    metrics = load_reward_model(tmp_path / "run" / "checkpoints" / "best_model").metrics
    assert metrics["estimates"]["roc_auc"]["value"] == 0.5
    assert any("separates too poorly" in text for text in metrics["warnings"])


def test_a_loss_that_is_no_number_keeps_the_best_model_and_names_the_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = write_episodes(tmp_path / "data", 6), tmp_path / "run"
    assert main(command(data, run, "runner.max_epochs=1")) == 0
    before = read_checkpoint(run / "checkpoints" / "best_model").weights
    last = run / "checkpoints" / "last"
    assert main(command(data, run, f"runner.resume_dir={last}", "runner.max_epochs=9", "actor.optim.lr=1e30")) == 2
    error = capsys.readouterr().err
    assert "the loss became" in error
    assert "its batch begins with episode_" in error
    after = read_checkpoint(run / "checkpoints" / "best_model").weights
    assert all(bool((after[name] == before[name]).all()) for name in before)


def test_a_run_killed_at_any_moment_goes_on_to_the_weights_of_an_unbroken_one(
    tmp_path: Path, fork_server: ForkServerContext
) -> None:
    data, epochs = write_episodes(tmp_path / "data", 6), ["runner.max_epochs=30", "runner.save_interval=1"]
    assert main(command(data, tmp_path / "unbroken", *epochs)) == 0
    run, kills = tmp_path / "killed", 0
    last = run / "checkpoints" / "last"
    moments = np.random.default_rng(0).uniform(0.0, 0.4, 50)
    for moment in moments:
        resume = [f"runner.resume_dir={last}"] if last.exists() else []
        seen = _mark(last)
        process = fork_server.Process(target=run_cli, args=(command(data, run, *epochs, *resume),))
        process.start()
        while process.is_alive() and _mark(last) == seen:
            time.sleep(0.01)
        time.sleep(moment)
        if process.is_alive() and kills < 4:
            process.kill()
            kills += 1
            process.join()
            _loads_or_is_absent(run / "checkpoints" / "best_model")
            continue
        process.join()
        assert process.exitcode == 0
        break
    assert kills >= 1
    expected = read_checkpoint(tmp_path / "unbroken" / "checkpoints" / "best_model").weights
    found = read_checkpoint(run / "checkpoints" / "best_model").weights
    assert all(bool((found[name] == expected[name]).all()) for name in expected)


def test_of_two_runs_into_one_place_one_is_told_so(tmp_path: Path, fork_server: ForkServerContext) -> None:
    data, run = write_episodes(tmp_path / "data", 6), tmp_path / "run"
    processes = [fork_server.Process(target=run_cli, args=(command(data, run, "runner.max_epochs=3"),)) for _ in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(process.exitcode or 0 for process in processes) == [0, 2]
    assert load_reward_model(run / "checkpoints" / "best_model").metrics


def test_a_run_that_was_stopped_before_its_state_was_saved_begins_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = write_episodes(tmp_path / "data", 6), tmp_path / "run"
    assert main(command(data, run, "runner.max_epochs=1")) == 0
    best = run / "checkpoints" / "best_model"
    shutil.rmtree(run / "checkpoints" / "last")
    assert main(command(data, run, "runner.max_epochs=1")) == 2  # a finished model is never replaced
    error = capsys.readouterr().err
    assert "best_model exists already" in error
    assert "resume_dir" not in error  # there is nothing to resume from
    load_reward_model(best).save(best)
    config = json.loads((best / "config.json").read_text())
    (best / "config.json").write_text(json.dumps({**config, "metrics": {}}))
    assert main(command(data, run, "runner.max_epochs=1")) == 0
    assert load_reward_model(best).metrics


def test_a_full_disk_keeps_the_model_and_the_state_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run, sync = write_episodes(tmp_path / "data", 6), tmp_path / "run", os.fsync
    last = run / "checkpoints" / "last"

    def full(descriptor: int) -> None:
        if last.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert main(command(data, run, "runner.max_epochs=3", "runner.save_interval=1")) == 1
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert f"could not write {run}/checkpoints/" in error
    assert error.endswith(f"No space left on device. After making room, continue with runner.resume_dir={last}")
    load_reward_model(run / "checkpoints" / "best_model")
    monkeypatch.undo()
    assert main(command(data, run, "runner.max_epochs=3", f"runner.resume_dir={last}")) == 0


def _mark(checkpoint: Path) -> int | None:
    try:
        return (checkpoint / "config.json").stat().st_mtime_ns
    except OSError:
        return None


def _loads_or_is_absent(checkpoint: Path) -> None:
    if checkpoint.exists():
        try:
            load_reward_model(checkpoint)
        except DataError as error:  # pragma: no cover
            pytest.fail(f"a killed writer left a broken checkpoint: {error}")
