"""The training loop: the same batches and the same weights, resumed or not, on one process or two."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rewardlab.config import config_from_mapping
from rewardlab.data import Episode, EpisodeWriter, read_episodes
from rewardlab.data.frames import FrameTable, tabulate
from rewardlab.data.stored_frames import batches_in_order, validation_logits
from rewardlab.errors import DataError
from rewardlab.rewards import ResNetRewardModel
from rewardlab.rewards.checkpoint import write_checkpoint
from rewardlab.run_state import load_state, save_state
from rewardlab.training.augment import augment
from rewardlab.training.fit import Fit, validation_figures
from rewardlab.training.loader import FrameLoader
from rewardlab.training.processes import Processes

SIDE = 32


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> FrameTable:
    """Episodes whose frames are red where they are a success and blue where they are not."""
    directory = tmp_path_factory.mktemp("frames")
    writer, rng = EpisodeWriter(directory), np.random.default_rng(0)
    for k in range(6):
        success = np.arange(10) >= (6 if k % 2 else 10)
        frames = rng.integers(0, 60, (10, SIDE, SIDE, 3), np.uint8)
        frames[success, ..., 0] += 150
        frames[~success, ..., 2] += 150
        writer.write(Episode.from_columns({"observation.images.base_camera": frames, "success": success}))
    return tabulate(read_episodes(directory))


def make_fit(table: FrameTable, *overrides: str) -> tuple[ResNetRewardModel, Fit]:
    torch.manual_seed(0)
    model = ResNetRewardModel("resnet10", hidden_dim=8, image_size=(3, SIDE, SIDE), width=4, dropout=0.3)
    chosen = ["runner.max_epochs=4", "actor.global_batch_size=16", "actor.micro_batch_size=8", "actor.optim.lr=3e-3"]
    cfg = config_from_mapping({}, [*chosen, *overrides], check_files=False)

    def validate(weights: dict[str, torch.Tensor]) -> dict[str, float]:
        model.network.load_state_dict(weights)
        return validation_figures(validation_logits(model.logits, table, model.image_keys), table)

    return model, Fit(model.network, table, cfg, validate)


def make_loader(
    table: FrameTable, rank: int = 0, size: int = 1, *, balanced: bool = True, ratio: float | None = None
) -> FrameLoader:
    data = {"balanced": balanced, "fail_success_ratio": ratio}
    mapping = {"actor": {"global_batch_size": 20}, "data": data, "seed": 0}
    return FrameLoader(table, ["base_camera"], config_from_mapping(mapping, check_files=False), Processes(rank, size))


def test_it_learns_and_says_which_epoch_was_best(table: FrameTable) -> None:
    _, fit = make_fit(table, "runner.max_epochs=12")
    better = list(fit.epochs())
    losses = [value for _, value in fit.progress.curves["train/loss"]]
    assert np.mean(losses[-4:]) < 0.5 * np.mean(losses[:4])
    assert fit.progress.curves["valid/accuracy"][-1][1] > 0.95
    assert better[fit.progress.best_epoch - 1]
    assert not any(better[fit.progress.best_epoch :])


def test_every_epoch_has_another_order_and_balanced_classes(table: FrameTable) -> None:
    loader = make_loader(table)
    epochs = [np.concatenate([batch.rows for batch in loader.epoch(n)]) for n in (0, 1, 0)]
    assert np.array_equal(epochs[0], epochs[2])
    assert not np.array_equal(epochs[0], epochs[1])
    assert table.label[epochs[0]].mean() == 0.5
    assert set(epochs[0][table.label[epochs[0]]]) == set(np.flatnonzero(table.label))  # every success is seen


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("ratio", [3.0, 1.0, 0.5])
def test_there_are_as_many_failures_per_success_as_the_config_says(
    table: FrameTable, ratio: float, balanced: bool
) -> None:
    """Batches were half successes whatever the ratio, because `balanced` is the default."""
    loader = make_loader(table, balanced=balanced, ratio=ratio)
    labels = np.concatenate([table.label[batch.rows] for batch in loader.epoch(0)])
    assert (~labels).sum() / labels.sum() == pytest.approx(ratio, rel=0.05)


def test_two_processes_share_each_global_batch(table: FrameTable) -> None:
    def rows(rank: int, size: int) -> list[list[int]]:
        loader = make_loader(table, rank, size, balanced=False)
        return [batch.rows.tolist() for batch in loader.epoch(0)]

    assert rows(0, 1) == [one + other for one, other in zip(rows(0, 2), rows(1, 2), strict=True)]


def test_validation_reads_every_frame_once_in_order(table: FrameTable) -> None:
    batches = list(batches_in_order(table, ["base_camera"], 7))
    assert np.concatenate([batch.rows for batch in batches]).tolist() == list(range(len(table)))


def test_a_damaged_file_stops_the_reader_with_its_name(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path)
    frames = np.zeros((4, 8, 8, 3), np.uint8)
    path = writer.write(Episode.from_columns({"observation.images.base_camera": frames, "success": np.ones(4, bool)}))
    broken = tabulate(read_episodes(tmp_path))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=path.name):
        list(batches_in_order(broken, ["base_camera"], 4))


def test_augmentation_moves_pixels_and_keeps_the_range() -> None:
    images = torch.randint(0, 256, (4, 32, 32, 3), dtype=torch.uint8)
    changed = augment(images, torch.Generator().manual_seed(0))
    assert changed.shape == (4, 3, 32, 32)
    assert float(changed.min()) >= 0
    assert float(changed.max()) <= 1
    assert torch.equal(changed, augment(images, torch.Generator().manual_seed(0)))
    assert not torch.equal(changed, augment(images, torch.Generator().manual_seed(1)))


def test_a_resumed_run_ends_with_the_weights_of_an_unbroken_one(table: FrameTable, tmp_path: Path) -> None:
    _, unbroken = make_fit(table)
    list(unbroken.epochs())
    model, first = make_fit(table)
    for _ in first.epochs():
        save_state(tmp_path / "last", first.state_dict(), model.describe())
        if first.progress.epoch == 2:
            break  # killed here
    _, second = make_fit(table)
    second.load_state_dict(load_state(tmp_path / "last")[0])
    assert second.progress.epoch == 2
    list(second.epochs())
    for name, tensor in unbroken.weights().items():
        assert torch.equal(tensor, second.weights()[name]), name
    assert second.progress == unbroken.progress


def test_a_run_saved_by_version_0_1_0_resumes_to_the_same_weights(table: FrameTable, tmp_path: Path) -> None:
    _, unbroken = make_fit(table)
    model, first = make_fit(table)
    for _ in first.epochs():
        if first.progress.epoch == 2:
            break
    state = first.state_dict()
    # The form of that version: the kind of state is in the name of a tensor, the progress beside the description.
    tensors = {f"network.{name}": tensor for name, tensor in state["network"].items()}
    for parameter, values in state["optimizer"].items():
        tensors |= {f"optimizer.{parameter}/{name}": value for name, value in values.items()}
    write_checkpoint(tmp_path / "last", {**model.describe(), "progress": state["progress"]}, tensors)
    _, second = make_fit(table)
    found, facts = load_state(tmp_path / "last")
    assert facts["model_type"] == model.model_type
    second.load_state_dict(found)
    list(second.epochs())
    list(unbroken.epochs())
    assert all(torch.equal(tensor, second.weights()[name]) for name, tensor in unbroken.weights().items())
    assert second.progress == unbroken.progress


def test_reading_batches_leaves_the_global_random_state_alone(table: FrameTable) -> None:
    before = torch.get_rng_state()
    list(make_loader(table).epoch(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_frames_of_different_sizes_are_named(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path)
    for side in (8, 9):
        frames = {"observation.images.base_camera": np.zeros((2, side, side, 3), np.uint8), "success": np.ones(2, bool)}
        writer.write(Episode.from_columns(frames))
    with pytest.raises(DataError, match=r"base_camera is \(8, 8, 3\) in .*000000.* and \(9, 9, 3\) in .*000001"):
        list(batches_in_order(tabulate(read_episodes(tmp_path)), ["base_camera"], 4))


def test_micro_batches_give_the_gradient_of_the_whole_batch(table: FrameTable) -> None:
    def weights(micro: int) -> dict[str, torch.Tensor]:
        _, fit = make_fit(table, f"actor.micro_batch_size={micro}", "data.augment=false", "runner.max_steps=1")
        for module in fit.network.modules():  # batch norm and dropout depend on what goes through together
            if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.Dropout)):
                module.train = lambda mode=True, module=module: module  # type: ignore[method-assign]
                module.training = False
        list(fit.epochs())
        return fit.weights()

    whole, parts = weights(16), weights(4)
    assert all(torch.allclose(whole[name], parts[name], atol=1e-5) for name in whole)


def test_training_stops_when_the_monitored_figure_does(table: FrameTable) -> None:
    _, fit = make_fit(table, "runner.max_epochs=50", "runner.early_stop.patience=2", "actor.optim.lr=1e-12")
    list(fit.epochs())
    assert fit.progress.epoch < 50
    assert fit.progress.stopped == "val_loss did not improve in 2 validations"


def test_a_loss_that_is_no_number_names_its_batch_and_leaves_the_weights(table: FrameTable) -> None:
    _, fit = make_fit(table)
    with torch.no_grad():
        fit.network.head.out.bias.fill_(float("nan"))  # type: ignore[union-attr, operator]
    before = fit.weights()["encoder.conv1.weight"].clone()
    with pytest.raises(DataError, match=r"loss became nan in epoch 0, step 0; its batch begins with episode_"):
        list(fit.epochs())
    assert torch.equal(fit.weights()["encoder.conv1.weight"], before)


TWO_PROCESSES = """
import json, sys, torch
from rewardlab.config import config_from_mapping
from rewardlab.data import read_episodes
from rewardlab.data.frames import tabulate
from rewardlab.rewards import ResNetRewardModel
from rewardlab.training.fit import Fit
from rewardlab.training.processes import joined

with joined() as processes:
    torch.manual_seed(0)
    table = tabulate(read_episodes(sys.argv[1]))
    model = ResNetRewardModel("resnet10", hidden_dim=8, image_size=(3, 32, 32), width=4, dropout=0.0)
    actor = dict(global_batch_size=16, micro_batch_size=8, optim=dict(lr=1e-3))
    runner = dict(max_epochs=99, max_steps=20)
    cfg = config_from_mapping(dict(runner=runner, actor=actor, data=dict(augment=False)), check_files=False)
    fit = Fit(model.network, table, cfg, lambda weights: {"val_loss": float(len(weights))}, processes)
    list(fit.epochs())
    if processes.leads:
        print(json.dumps([value for _, value in fit.progress.curves["train/loss"]]))
"""


def test_two_processes_have_the_loss_curve_of_one(
    table: FrameTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TWO_PROCESSES)
    data = str(table.episodes[0].path.parent.parent)

    def curve(out: str) -> np.ndarray:
        return np.array(json.loads(out.strip().splitlines()[-1]))

    monkeypatch.setattr(sys, "argv", [str(script), data])
    runpy.run_path(str(script))
    one = curve(capsys.readouterr().out)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    started = subprocess.run([*launcher, str(script), data], capture_output=True, text=True, timeout=300)
    assert started.returncode == 0, started.stderr[-3000:]
    two = curve(started.stdout)
    assert len(one) == len(two) == 20
    assert np.abs(two / one - 1).max() < 0.02
