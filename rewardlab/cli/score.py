"""`rewardlab score`: what a trained classifier says about pictures, videos and episodes."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rewardlab.cli.command import Commands, add_command, add_trust_option, device_name, path_name, positive
from rewardlab.screen import PrintableStream, say_error

if TYPE_CHECKING:
    from rewardlab.config.schema import RewardModelConfig
    from rewardlab.pipelines.score import ScoredFile

STRIP = 10  # frames in the film strip of a plot


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab score runs/reward_model/checkpoints/best_model data/pickcube --plot plots"
    command = add_command(
        commands, "score", "score pictures, videos and episodes with a trained model", example, _score
    )
    command.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        nargs="?",
        type=path_name,
        help="the run of a classifier, its checkpoint, a .safetensors or a .pt",
    )
    command.add_argument(
        "paths", nargs="*", type=path_name, metavar="PATH", help="pictures, videos, episodes, or directories of them"
    )
    command.add_argument("--model", metavar="CHECKPOINT", type=path_name, help="the same, by its name")
    command.add_argument("--threshold", type=_probability, help="success is p > threshold (default: the model's own)")
    command.add_argument(
        "--device", type=device_name, default="auto", help="auto, cpu, cuda, ... (default: %(default)s)"
    )
    command.add_argument(
        "--backend",
        choices=("torch", "onnx", "auto"),
        default="torch",
        help="library that computes the scores; auto: ONNX Runtime if it is installed (default: %(default)s)",
    )
    add_trust_option(command)
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of reward.model, such as image_size=[3,128,128] for weights that do not say it, or resize=allow",
    )
    command.add_argument("--every", type=positive, default=1, metavar="N", help="score every N-th frame of a video")
    command.add_argument(
        "--frames", action="store_true", help="in the table, a line for each frame of an episode or a video"
    )
    command.add_argument("--format", choices=("table", "json", "csv"), default="table", help="(default: %(default)s)")
    command.add_argument("--out", metavar="FILE", type=path_name, help="write there (default: print)")
    command.add_argument(
        "--plot",
        metavar="PATH",
        type=path_name,
        help="draw each episode and video over time: a .png, or a directory of them",
    )
    command.add_argument(
        "--camera",
        action="append",
        default=[],
        type=_camera,
        metavar="NAME=PATH",
        help="pictures of one camera, for a model that looks at several; once for each of them",
    )


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number between 0 and 1")
    return value


def _camera(text: str) -> tuple[str, str]:
    name, equals, place = text.partition("=")
    if not (name and equals and place):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=PATH such as wrist_camera=frame.png")
    return name, path_name(place)


def _score(arguments: argparse.Namespace) -> int:
    settings = _check_arguments(arguments)
    from rewardlab.cli.score_rows import write_csv, write_json, write_table
    from rewardlab.data import Problem
    from rewardlab.devices import find_device
    from rewardlab.pipelines.score import find_inputs, score_files
    from rewardlab.pipelines.trusted_modules import import_trusted
    from rewardlab.rewards import load_success_classifier

    import_trusted(arguments.trust_modules)
    # ONNX Runtime computes on the CPU, whatever else the machine has.
    device = "cpu" if (arguments.backend, arguments.device) == ("onnx", "auto") else arguments.device
    model = load_success_classifier(
        arguments.checkpoint,
        overrides=settings,
        device=find_device(device, "--device"),
        backend=arguments.backend,
    )
    inputs = find_inputs(arguments.paths, model.image_keys, dict(arguments.camera))
    plots = _plot_files(arguments.plot, [episode.path for episode in inputs.episodes] + inputs.videos)
    cut = arguments.threshold or model.threshold
    words = f"threshold {cut:.4g}" + ("" if arguments.threshold else " of the checkpoint")
    table = partial(write_table, every_frame=arguments.frames, threshold=words)
    writers: dict[str, Callable[..., None]] = {
        "table": table,
        "json": write_json,
        "csv": partial(write_csv, videos=bool(inputs.videos)),
    }
    failed = False

    def readable(results: "Iterator[ScoredFile | Problem]") -> "Iterator[ScoredFile]":
        nonlocal failed
        for result in results:
            if isinstance(result, Problem):
                failed = True
                say_error(f"error: {result.sentence}")
                continue
            yield result
            if result.path in plots:
                _draw(result, plots[result.path], cut)

    with _progress(len(inputs)) as progress, _output(arguments.out) as out:
        strip = STRIP if plots else 0
        writers[arguments.format](
            out,
            readable(score_files(model, inputs, threshold=cut, strip=strip, every=arguments.every, progress=progress)),
        )
    for kind, place in (("scores", arguments.out), ("plots", arguments.plot)):
        if place:
            say_error(f"{kind}: {place}")
    return 1 if failed else 0


def _check_arguments(arguments: argparse.Namespace) -> "RewardModelConfig | None":
    """Find mistakes before torch is imported, which takes seconds; return the settings of the model."""
    from rewardlab.errors import ConfigError
    from rewardlab.models.checkpoint_config import locate_checkpoint

    if arguments.model is not None:  # then every word without an option is something to score
        arguments.paths = [path for path in (arguments.checkpoint, *arguments.paths) if path is not None]
        arguments.checkpoint = arguments.model
    if arguments.checkpoint is None:
        raise ConfigError("no model: name the run of a classifier or a checkpoint, then what to score")
    if not (arguments.paths or arguments.camera):
        raise ConfigError("nothing to score: name pictures, episodes or directories behind the checkpoint")
    locate_checkpoint(Path(arguments.checkpoint))
    return _model_settings(arguments.set)


def _model_settings(given: Sequence[str]) -> "RewardModelConfig | None":
    """Check KEY=VALUE of reward.model as in a config."""
    from rewardlab.config import config_from_mapping

    keys = [f"reward.model.{text}" for text in given]
    return config_from_mapping({}, keys, check_files=False).reward.models[0] if given else None


def _plot_files(place: str | None, paths: Sequence[Path]) -> dict[Path, Path]:
    """Where the plot of each episode and video goes."""
    from rewardlab.errors import ConfigError

    if place is None:
        return {}
    if not paths:
        raise ConfigError("--plot draws episodes and videos over time, and there is none among the paths")
    if Path(place).suffix == ".png":
        if len(paths) > 1:
            raise ConfigError(f"--plot: {place} is one picture, but there are {len(paths)} episodes: name a directory")
        return {paths[0]: Path(place)}
    # The folders stay: formats number successes and failures on their own.
    root = os.path.commonpath([path.parent.absolute() for path in paths])
    names = [path.absolute().relative_to(root) for path in paths]
    pictures = [name.with_suffix(".png") for name in names]
    if len(set(pictures)) < len(pictures):  # one episode in two formats
        pictures = [name.with_name(f"{name.name}.png") for name in names]
    return {path: Path(place, picture) for path, picture in zip(paths, pictures, strict=True)}


def _draw(scored: "ScoredFile", target: Path, threshold: float) -> None:
    import numpy as np

    from rewardlab.data.atomic import replace_file
    from rewardlab.reports.timeline import timeline_plot

    title = f"{scored.path.parent.name}/{scored.path.stem}"
    label = np.zeros(len(scored.time), bool) if scored.label is None else scored.label
    shown = (title, scored.time, scored.probability.numpy(), label, threshold, scored.strip)
    replace_file(target, timeline_plot(*shown, labelled=scored.labelled))


@contextmanager
def _output(place: str | None) -> Iterator[IO[str] | PrintableStream]:
    """The file, which appears when it is complete; or the standard output."""
    from rewardlab.data.atomic import replacing

    if place is None:
        yield PrintableStream()
        return
    with replacing(Path(place)) as temporary, temporary.open("x", encoding="utf-8", newline="") as file:
        yield file


@contextmanager
def _progress(files: int) -> Iterator[Callable[[float], None]]:
    from rewardlab.console import make_console, make_progress

    with make_progress(
        make_console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        redirect_stdout=sys.stdout.isatty(),  # rows go above the bar, but those for a file or a pipe to there
    ) as progress:
        bar = progress.add_task("scoring files", total=files, words="")
        yield lambda done: progress.update(bar, completed=done)
