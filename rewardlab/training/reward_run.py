"""A complete training run of a success classifier: data, training, calibration, checkpoint and report."""

import copy
import dataclasses
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from rewardlab.config import ExperimentConfig, to_yaml
from rewardlab.console import print_line
from rewardlab.data import StoredEpisode, convert_episodes, read_episodes
from rewardlab.data.atomic import replace_file
from rewardlab.data.crops import read_crops
from rewardlab.data.directory_lock import run_lock
from rewardlab.data.frames import FrameTable
from rewardlab.data.imports.journal import read_grouping
from rewardlab.data.stored_frames import validation_logits
from rewardlab.data.used_episodes import split_frames
from rewardlab.errors import ConfigError, DataError, StorageError
from rewardlab.figures.trust import TrustFigures
from rewardlab.frame_crops import Crop, crop_box
from rewardlab.models.weights import check_weights
from rewardlab.reports.classifier_report import write_report
from rewardlab.reports.history import forget_after
from rewardlab.reports.log_pictures import plot_picture
from rewardlab.reports.model_card import model_card
from rewardlab.reports.plots import reliability_plot, roc_plot, score_plot
from rewardlab.reports.run_log import RunLog, plot_scalars
from rewardlab.reports.wandb_log import open_wandb
from rewardlab.rewards import SuccessClassifier, create_reward_model, load_success_classifier
from rewardlab.run_directories import set_aside
from rewardlab.run_state import (
    BEST,
    LAST,
    after_making_room,
    checkpoint_directory,
    load_state,
    other_place,
    resume_command,
    run_directory,
    save_state,
    with_found_checkpoint,
)
from rewardlab.stopping import StopRequest
from rewardlab.training.best_model_file import BestModelFile
from rewardlab.training.debug_frames import save_training_frames
from rewardlab.training.fit import Fit, validation_figures
from rewardlab.training.processes import Processes


def train_reward_model(
    cfg: ExperimentConfig, processes: Processes, console: Console, stop: StopRequest | None = None
) -> Path:
    """Train on `cfg.data.data_path`, called by every process of the run; returns the checkpoint of the best model.

    A `stop` request ends training after the step that goes on.
    """
    cfg = with_found_checkpoint(cfg, of="classifier")
    out, checkpoints = run_directory(cfg), checkpoint_directory(cfg)
    with _locked_by_leader(processes, out, checkpoints):
        _make_way(cfg, out, checkpoints, processes, console)
        try:
            return _train_in(cfg, out, checkpoints, processes, console, stop or StopRequest())
        except StorageError as error:
            last = checkpoints / LAST
            raise after_making_room(error, last if last.exists() else None) from error


@contextmanager
def _locked_by_leader(processes: Processes, *directories: Path) -> Iterator[None]:
    """Hold the lock of a run that several processes make together; if it is taken, all of them raise."""
    with ExitStack() as stack:
        problem = None
        if processes.leads:
            try:
                stack.enter_context(run_lock(*directories))
            except DataError as error:
                problem = str(error)
        problem = processes.from_leader(problem)
        if problem is not None:
            raise DataError(problem)
        yield


def _train_in(
    cfg: ExperimentConfig, out: Path, checkpoints: Path, processes: Processes, console: Console, stop: StopRequest
) -> Path:
    best, file = checkpoints / BEST, BestModelFile(cfg.runner.best_model_file)
    quiet = Console(quiet=True) if not processes.leads else console
    train, validation = _frames(cfg, out, processes)
    print_line(quiet, f"training on {train.describe()}\nvalidating on {validation.describe()}")
    for grouping in read_grouping(cfg.data.paths):
        print_line(quiet, f"the split is by episode. {grouping}")
    if train.unsure:
        print_line(quiet, f"left out {train.unsure:,} frames that are neither success nor failure (unsure)")
    fit, validated = _prepare(cfg, _model(cfg, train).to(processes.device), train, validation, processes, stop)
    if processes.leads:
        replace_file(out / "config.yaml", to_yaml(cfg).encode())
        forget_after(out, fit.progress.step)
    full = False
    with stop.deferred("this step"):
        try:
            _train(fit, validated, checkpoints, quiet, out, file)
        except StorageError:
            full = True
            raise
        finally:  # also after a NaN loss or a signal: the best model so far gets its threshold and metrics
            if processes.leads and fit.progress.best is not None and not full:
                _conclude(cfg, fit, validation, best, out, quiet)
                file.write(best, fit)
    if fit.interrupted:
        print_line(quiet, f"stopped: {stop.words}, after step {fit.progress.step}")
        by_torchrun = 1 if cfg.cluster.backend == "ray" else processes.size
        print_line(quiet, f"continue: {resume_command(out, checkpoints / LAST, by_torchrun)}")
    return best


def _make_way(cfg: ExperimentConfig, out: Path, checkpoints: Path, processes: Processes, console: Console) -> None:
    """Raise if the directory has a run that could be continued; what is left of one that could not is set aside."""
    best, last = checkpoints / BEST, checkpoints / LAST
    if cfg.runner.resume_dir is not None:
        return
    file = cfg.runner.best_model_file
    if file is not None and Path(file).exists():
        raise DataError(f"{file} exists already, and is not replaced. Choose another runner.best_model_file")
    if last.is_dir() or (best.exists() and load_success_classifier(best).metrics):
        advice = other_place(cfg, last if last.is_dir() else None)
        raise DataError(f"{best if best.exists() else last} exists already, and is not replaced. {advice}")
    place = set_aside(out, [best]) if processes.leads else None
    if place is not None:
        print_line(console, f"an earlier run here ended before its first checkpoint; what it left is now in {place}")


def _frames(cfg: ExperimentConfig, out: Path, processes: Processes) -> tuple[FrameTable, FrameTable]:
    episodes = _random_access(read_episodes(*cfg.data.paths), cfg.data.paths, out, processes)
    return split_frames(episodes, cfg.data, cfg.seed)


def _random_access(
    episodes: list[StoredEpisode], source: tuple[str, ...], out: Path, processes: Processes
) -> list[StoredEpisode]:
    """Convert episodes to the default format, once: only there can single frames be read."""
    if all(episode.format.name == "safetensors" for episode in episodes):
        return episodes
    cache = out / "episodes"
    if processes.leads and not cache.exists():
        convert_episodes(source, cache)
    processes.from_leader(None)
    return read_episodes(cache)


def _model(cfg: ExperimentConfig, train: FrameTable) -> SuccessClassifier:
    torch.manual_seed(cfg.seed)
    wanted, stored = cfg.reward.models[0], train.episodes[0].facts.cameras
    cameras = tuple(stored) if wanted.image_keys is None else wanted.image_keys
    for camera in cameras:
        if camera not in stored:
            has = f"has {', '.join(stored) or 'none'}"
            raise ConfigError(f"reward.model.image_keys: no camera '{camera}': {train.episodes[0].path} {has}")
    if not cameras:
        raise ConfigError(f"reward.model.image_keys: found no camera; the episodes have {', '.join(stored) or 'none'}")
    crops = _crops(cfg, cameras, stored)
    wanted = dataclasses.replace(
        wanted,
        model_type=wanted.model_type or "resnet_reward",
        image_keys=cameras,
        image_size=wanted.image_size or (3, *(crops[cameras[0]][2:] if cameras[0] in crops else stored[cameras[0]])),
        crop={**crops},
    )
    model = create_reward_model(wanted)
    if not isinstance(model, SuccessClassifier):
        raise ConfigError(f"reward.model.model_type: '{wanted.model_type}' is not trained on labelled frames")
    model.set_frame_sizes({camera: stored[camera] for camera in cameras if camera in stored})
    return model


def _crops(cfg: ExperimentConfig, cameras: Sequence[str], sizes: Mapping[str, tuple[int, int]]) -> dict[str, Crop]:
    """Return what the model looks at of each camera, in pixels: as the config says, else as the data were processed."""
    given = cfg.reward.models[0].crop
    for camera in given or {}:
        if camera not in cameras:
            raise ConfigError(f"reward.model.crop: no camera '{camera}'; the model looks at {', '.join(cameras)}")
    crops = read_crops(cfg.data.paths) if given is None else given
    key = "the crop of data.data_path" if given is None else "reward.model.crop"
    used = {camera: crop for camera, crop in crops.items() if camera in cameras}
    return {camera: crop_box(crop, *sizes[camera], f"{key}: {camera}") for camera, crop in used.items()}


def _prepare(
    cfg: ExperimentConfig,
    model: SuccessClassifier,
    train: FrameTable,
    validation: FrameTable,
    processes: Processes,
    stop: StopRequest,
) -> tuple[Fit, SuccessClassifier]:
    """Return the training loop, and an unsharded copy of the model that holds the weights last validated."""
    validated = copy.deepcopy(model)  # before it is sharded; everything but the weights is stored as trained

    def validate(weights: dict[str, torch.Tensor]) -> dict[str, float]:
        validated.network.load_state_dict(weights)
        return validation_figures(validation_logits(validated.logits, validation, model.image_keys), validation)

    fit = Fit(model.network, train, cfg, validate, processes, stop)
    if cfg.runner.resume_dir is not None:
        _resume(Path(cfg.runner.resume_dir), fit)
    if cfg.data.debug_save_dir is not None and processes.leads:
        save_training_frames(Path(cfg.data.debug_save_dir), fit)
    return fit, validated


def _resume(checkpoint: Path, fit: Fit) -> None:
    state, _ = load_state(checkpoint)
    if "network" not in state:
        raise DataError(
            f"runner.resume_dir: {checkpoint} is not a run that trains a classifier; expected the directory "
            "checkpoints/last of one"
        )
    check_weights(fit.network.state_dict(), state["network"], checkpoint)
    fit.load_state_dict(state)


def _train(
    fit: Fit, validated: SuccessClassifier, checkpoints: Path, console: Console, out: Path, file: BestModelFile
) -> None:
    leads, progress = fit.processes.leads, fit.progress
    wandb = open_wandb(fit.cfg, out) if leads else None
    with RunLog(
        out if leads else None, total=fit.total_steps, completed=progress.step, console=console, wandb=wandb
    ) as log:

        def log_step(loss: float) -> None:
            best = "-" if progress.best is None else f"{progress.best:.4f}"
            frames = f"{log.speed * fit.loader.global_batch_size:,.0f}"
            log.plot(progress.step, {"train/loss": loss})
            log.show(progress.step, f"loss {loss:.4f}  best {best}  {frames} frames/s")

        def save() -> None:
            state = fit.state_dict()
            if leads:
                log.flush()
                save_state(checkpoints / LAST, state, validated.describe())

        recorded = progress.step
        for better in fit.epochs(log_step):
            log.plot(progress.step, progress.latest("valid/"))
            log.record(progress.step, progress.row(after=recorded))
            recorded = progress.step
            if better and leads:
                validated.save(checkpoints / BEST)
            if better:
                file.keep_optimizer(fit)
            if progress.epoch % fit.cfg.runner.save_interval == 0 or fit.finished:
                save()
        if fit.interrupted:
            save()


def _conclude(cfg: ExperimentConfig, fit: Fit, validation: FrameTable, best: Path, out: Path, console: Console) -> None:
    """Choose temperature and threshold, compute metrics, and store them with the best weights and a report."""
    model = load_success_classifier(best, device=fit.device)
    scores, figures = model.calibrate(validation, cfg.threshold.target_fpr, cfg.seed)
    model.record_episodes(fit.loader.table, validation, cfg.data, cfg.seed)
    facts = _facts(cfg, model, fit, validation)
    pictures = {
        "roc.png": roc_plot(scores, figures),
        "reliability.png": reliability_plot(scores, figures),
        "scores.png": score_plot(scores, figures),
    }
    captions = {"ROC": "roc.png", "Reliability": "reliability.png", "Scores of both classes": "scores.png"}
    card = model_card(
        title=best.name, path=str(best), cameras=model.image_keys, figures=figures, facts=facts, plots=captions
    )
    model.save(best, card=card, pictures=pictures)
    report = write_report(
        out / "report.html",
        title=f"{model.model_type} on {facts['task']}",
        figures=figures,
        scores=scores,
        images=lambda episode, time: _seen(model, validation.episodes[episode].frame(model.image_keys[0], time)),
        curves=fit.progress.curves,
        facts=facts,
    )
    plots = {f"best_model/{Path(name).stem}": plot_picture(png) for name, png in pictures.items()}
    scalars = {f"best_model/{name}": value for name, value in figures.scalars().items()}
    plot_scalars(out, fit.progress.step, scalars, plots)
    _summarize(console, figures, best, report)


def _seen(model: SuccessClassifier, frame: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(model.seen(frame[None])[0])


def _facts(cfg: ExperimentConfig, model: SuccessClassifier, fit: Fit, validation: FrameTable) -> dict[str, str]:
    train = fit.loader.table
    return {
        "task": ", ".join(model.tasks or ()),
        "training data": train.describe(),
        "held-out data": validation.describe(),
        "data directory": ", ".join(cfg.data.paths),
        "cameras": ", ".join(model.image_keys),
        "frames": ", ".join(f"{camera} {size.height}x{size.width}" for camera, size in model.frame_sizes.items()),
        **_describe_crops(model),
        "image size of the network": "x".join(map(str, model.image_size[1:])),
        "epochs": f"{fit.progress.epoch}, best after {fit.progress.best_epoch}"
        + (f"; stopped because {fit.progress.stopped}" if fit.progress.stopped else ""),
        "seed": str(cfg.seed),
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}",
        "command": " ".join(Path(word).name if word == sys.argv[0] else word for word in sys.argv),
    }


def _describe_crops(model: SuccessClassifier) -> dict[str, str]:
    prepare = model.network.preprocess
    crops = [(camera, *prepare.box(camera)) for camera in prepare.crop]
    words = (f"{camera} {height}x{width} from row {top}, column {left}" for camera, top, left, height, width in crops)
    return {"crops": ", ".join(words)} if crops else {}


def _summarize(console: Console, figures: TrustFigures, best: Path, report: Path) -> None:
    print_line(console, figures.sentence())
    for warning in figures.warnings:
        print_line(console, warning, title="warning", style="yellow")
    print_line(console, f"checkpoint: {best}\nreport: {report}")
