"""Compares classifiers on the same episodes, or runs of policies by what they logged."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from rewardlab.config import ExperimentConfig, load_config
from rewardlab.data import StoredEpisode, convert_episodes, read_episodes
from rewardlab.data.frames import tabulate
from rewardlab.data.stored_frames import validation_logits
from rewardlab.devices import find_device
from rewardlab.errors import ConfigError, DataError
from rewardlab.figures.calibration import probabilities
from rewardlab.figures.comparison import compare_models
from rewardlab.figures.metrics import FrameScores
from rewardlab.limits import listed
from rewardlab.models.checkpoint_config import CONFIG
from rewardlab.reports.compare_report import NamedModel, Run, model_table, run_table, write_models, write_runs
from rewardlab.reports.history import HISTORY, read_history
from rewardlab.reports.policy_report import describe_reward
from rewardlab.rewards import SuccessClassifier, load_success_classifier
from rewardlab.run_directories import CHECKPOINTS, CONFIG_FILE, REPORT, checkpoint_places, find_run
from rewardlab.run_state import BEST, LAST, STEP, list_checkpoints, load_facts

Kind = Literal["policy", "classifier"]
KINDS = {"policy": "the run of a policy", "classifier": "a classifier"}
USUAL_ENDS = (CHECKPOINTS, BEST, REPORT)
WEIGHTS = (".safetensors", ".pt", ".pth")


class Compared(NamedTuple):
    """The page, a short table for the terminal, and what to know about it."""

    page: Path
    lines: list[str]
    notes: list[str]


def compare(paths: Sequence[Path], *, data: Sequence[str], out: Path, device: str = "auto") -> Compared:
    """Write compare.html and its plots into `out`. The first of `paths` is what the others are compared with."""
    kinds = [_kind(path) for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        if kind != kinds[0]:
            raise ConfigError(f"{paths[0]} is {KINDS[kinds[0]]}, but {path} {KINDS[kind]}: expected all of one kind")
    names = dict(zip(_short_names(paths), paths, strict=True))
    if kinds[0] == "policy":
        if data:
            raise ConfigError("--data: found the runs of policies, which are compared by what they logged; remove it")
        return _compare_runs(names, out)
    if not data:
        raise ConfigError("--data: not given, but required to compare classifiers: a directory of labelled episodes")
    with tempfile.TemporaryDirectory() as cache:
        return _compare_classifiers(names, _random_access(data, Path(cache)), out, find_device(device, "--device"))


def _kind(path: Path) -> Kind:
    if path.suffix in WEIGHTS and path.is_file():
        return "classifier"
    if not path.exists():
        raise DataError(f"{path}: there is no such run or checkpoint")
    if (path / CONFIG).is_file():
        return "policy" if load_facts(path).get("model_type") == "policy" else "classifier"
    places = checkpoint_places(path)
    if any((place / name).is_dir() for place in places for name in (BEST, LAST)):
        return "classifier"
    if any(list_checkpoints(place) for place in places) or (find_run(path) / HISTORY).is_file():
        return "policy"
    found = listed(sorted(child.name for child in path.iterdir())) if path.is_dir() else "a file"
    raise DataError(f"{path}: expected the directory of a run or a checkpoint, found {found or 'nothing'}")


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Return the parts of the paths that differ."""
    runs = [path.absolute() for path in paths]
    if len(set(runs)) < len(runs):
        twice = next(path for path, run in zip(paths, runs, strict=True) if runs.count(run) > 1)
        raise ConfigError(f"{twice}: given twice; expected different runs")
    shortened = [_without_usual_end(run) for run in runs]
    if len(set(shortened)) == len(shortened):
        runs = shortened
    top = Path(os.path.commonpath(runs))
    names = [run.relative_to(top).as_posix() if run != top else run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _without_usual_end(path: Path) -> Path:
    while (path.name in USUAL_ENDS or path.name.startswith(STEP)) and path.parent != path:
        path = path.parent
    return path


def _random_access(data: Sequence[str], cache: Path) -> list[StoredEpisode]:
    """Return the episodes in the default format, in which single frames can be read, and as training saw them."""
    episodes = read_episodes(*data)
    if all(episode.format.name == "safetensors" for episode in episodes):
        return episodes
    convert_episodes(list(data), cache / "episodes")
    return read_episodes(cache / "episodes")


def _compare_classifiers(
    paths: dict[str, Path], episodes: list[StoredEpisode], out: Path, device: torch.device
) -> Compared:
    models = {name: load_success_classifier(path, device=device) for name, path in paths.items()}
    kept, notes = _leave_out_trained(models, episodes)
    table = tabulate(kept)
    if (missing := table.missing_label()) is not None:
        raise DataError(f"no frame of the {len(kept)} episodes that are left is labelled {missing}; expected both")
    named = []
    for name, model in models.items():
        logits = validation_logits(model.logits, table, model.image_keys)
        scores = FrameScores(table.episode, table.time, table.label, logits, table.episode_names())
        probability = probabilities(scores.logit, model.temperature)
        named.append(NamedModel(name, scores, probability, model.threshold, probability > model.threshold))
    compared = compare_models([(model.scores, model.verdict) for model in named])
    first = next(iter(models.values()))

    def picture(episode: int, time: int) -> npt.NDArray[np.uint8]:
        return table.episodes[episode].frame(first.image_keys[0], time)

    facts = {
        "frames": table.describe(),
        **{name: f"{path}, threshold {models[name].threshold:.4g}" for name, path in paths.items()},
    }
    page = write_models(out, named, compared, notes=notes, picture=picture, facts=facts)
    return Compared(page, model_table(named, compared), [f"compared on {table.describe()}", *notes])


def _leave_out_trained(
    models: dict[str, SuccessClassifier], episodes: list[StoredEpisode]
) -> tuple[list[StoredEpisode], list[str]]:
    """Return the episodes that no model was trained on, and what to know about the others."""
    identities = {episode.path: episode.identity for episode in episodes}
    trained: dict[frozenset[Path], list[str]] = {}  # the models that were trained on the same of these episodes
    chosen: dict[frozenset[Path], list[str]] = {}  # likewise, for their thresholds
    notes = []
    for name, model in models.items():
        used = model.used_episodes
        if used is None:
            notes.append(f"{name} does not say on which episodes it was trained: these may be among them")
            continue
        for groups, recorded in ((trained, used.train), (chosen, used.validation)):
            found = frozenset(path for path, identity in identities.items() if identity in recorded.values())
            groups.setdefault(found, []).append(name)
    left_out = {path for found in trained for path in found}
    for found, names in trained.items():
        if found:
            first = listed(sorted(path.name for path in found), most=3)
            notes.append(f"left out {len(found)} of {len(episodes)} episodes that trained {_and(names)}: {first}")
    for found, names in chosen.items():
        if count := len(found - left_out):
            whom = "it" if len(names) == 1 else "them"
            notes.append(
                f"{count} episodes served to choose the threshold of {_and(names)}, which favours {whom} a little"
            )
    kept = [episode for episode in episodes if episode.path not in left_out]
    if not kept:
        raise DataError(
            f"all {len(episodes)} episodes were used to train one of {', '.join(models)}; collect some that none has "
            "seen: rewardlab collect ... --seed with another number"
        )
    return kept, notes


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _compare_runs(paths: dict[str, Path], out: Path) -> Compared:
    runs = [_read_run(name, path) for name, path in paths.items()]
    tasks = {run.facts.get("task", "") for run in runs} - {""}
    notes = [f"the runs are on different tasks: {listed(sorted(tasks))}"] if len(tasks) > 1 else []
    return Compared(write_runs(out, runs, notes=notes), run_table(runs), notes)


def _read_run(name: str, path: Path) -> Run:
    """Read the history of a run; its directory or one of its checkpoints is given."""
    directory = path.parent.parent if (path / CONFIG).is_file() else find_run(path)
    file = directory / HISTORY
    if not file.is_file():
        raise DataError(f"{path}: there is no {file}, in which a run logs its figures")
    history = read_history(file)
    if not history:
        raise DataError(f"{file}: has no row yet: the run has not finished an iteration")
    config = directory / CONFIG_FILE
    return Run(name, history, _facts_of(load_config(str(config), check_files=False)) if config.is_file() else {})


def _facts_of(cfg: ExperimentConfig) -> dict[str, str]:
    """Return what tells runs apart most often."""
    return {
        "task": cfg.env.train.task,
        "algorithm": cfg.algorithm.name,
        "seed": str(cfg.seed),
        "environments": str(cfg.env.train.num_envs),
        "reward": describe_reward(cfg),
    }
