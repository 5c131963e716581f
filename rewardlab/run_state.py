"""The state of a training run on disk, of a classifier or of a policy: all that it needs to go on, in one directory.

The state is nested dictionaries and lists of tensors and plain values. Its tensors go to model.safetensors, the rest to
config.json, so that nothing has to be unpickled.
"""

import json
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rewardlab.config import ExperimentConfig, text_override
from rewardlab.errors import DataError, StorageError
from rewardlab.input_files import read_file
from rewardlab.limits import excerpt
from rewardlab.models.checkpoint_config import BEST_MODEL, CONFIG, WEIGHTS, itself_or_backup
from rewardlab.models.weights import read_tensor_file
from rewardlab.rewards.checkpoint import write_checkpoint
from rewardlab.run_directories import CHECKPOINTS, checkpoint_places

STEP = "global_step_"  # checkpoints of a policy are named by the iteration
LAST, BEST = "last", BEST_MODEL  # of a classifier: the state of its run, and the model
RESUME = "runner.resume_dir"
EXPECTED = "checkpoints/last of a run that trains a classifier, or checkpoints/global_step_100 of a policy's"
RUN_CONFIG = "run_config"  # fact of a policy's checkpoint: the config of its run
Kind = Literal["policy", "classifier"]


def run_directory(cfg: ExperimentConfig) -> Path:
    """Return the directory of a run, with its logs, its report and, unless they go elsewhere, its checkpoints."""
    return Path(cfg.runner.logger.log_path, cfg.runner.logger.experiment_name)


def checkpoint_directory(cfg: ExperimentConfig) -> Path:
    """Return where the checkpoints of a run are written."""
    return Path(cfg.runner.checkpoint_dir) if cfg.runner.checkpoint_dir else run_directory(cfg) / CHECKPOINTS


def list_checkpoints(directory: Path) -> list[Path]:
    """Return the checkpoints of a policy run in a directory, the newest last."""
    found = [path for path in directory.glob(f"{STEP}*") if path.name.removeprefix(STEP).isdecimal()]
    return sorted(found, key=lambda path: int(path.name.removeprefix(STEP)))


def find_checkpoint(path: Path, *, of: Kind) -> Path:
    """Return the newest whole checkpoint of a run.

    `path` is the run's directory, its checkpoints/, one of its checkpoints, its report, or the `log_path` of one run.
    """
    if of == "classifier" and path.name == BEST and (path.parent / LAST).is_dir():
        path = path.parent
    if (path / CONFIG).exists() or (of == "policy" and path.name.startswith(STEP)):
        return path
    places = checkpoint_places(path)
    damaged: list[str] = []
    for place in places:
        candidates = [itself_or_backup(place / LAST)] if of == "classifier" else list_checkpoints(place)
        for candidate in filter(Path.is_dir, reversed(candidates)):
            if (problem := _damage(candidate)) is None:
                if damaged:
                    warnings.warn(f"{damaged[0]}; taking {candidate}, the newest one that is whole", stacklevel=2)
                return candidate
            damaged.append(f"{candidate} is damaged ({problem})")
    if damaged:
        raise DataError(f"{path}: has no whole checkpoint: {'; '.join(damaged)}")
    raise DataError(f"{path}: no checkpoint of a {of}'s run; {_found_in(path, places)}")


def _damage(checkpoint: Path) -> str | None:
    """Return what is wrong with the files of a checkpoint, without reading its weights; None if they are whole."""
    try:
        json.loads(read_file(checkpoint / CONFIG))
        with safe_open(checkpoint / WEIGHTS, framework="pt"):
            return None
    except (OSError, ValueError, SafetensorError, RecursionError) as error:
        return excerpt(error)


def _found_in(path: Path, places: Sequence[Path]) -> str:
    """Say what there is instead of the checkpoints that were looked for."""
    if not path.exists():
        return "there is no such directory"
    names = [LAST, BEST, *(checkpoint.name for place in places for checkpoint in list_checkpoints(place)[-1:])]
    found = [str(place / name) for place in places for name in dict.fromkeys(names) if (place / name).is_dir()]
    if found:
        return f"found {', '.join(dict.fromkeys(found))}"
    below = (
        sorted(child.name for child in path.iterdir() if not child.name.startswith("."))[:8] if path.is_dir() else []
    )
    return f"found {', '.join(below) if below else 'nothing'}; expected {EXPECTED}"


def with_found_checkpoint(cfg: ExperimentConfig, *, of: Kind) -> ExperimentConfig:
    """Return the config with the checkpoint that `runner.resume_dir` leads to."""
    if cfg.runner.resume_dir is None:
        return cfg
    try:
        found = find_checkpoint(Path(cfg.runner.resume_dir), of=of)
    except DataError as error:
        raise DataError(f"{RESUME}: {error}") from None
    return replace(cfg, runner=replace(cfg.runner, resume_dir=str(found)))


def resume_override(checkpoint: Path) -> str:
    """Return the override that continues a run, quoted where Hydra would read a path as something else."""
    plain = re.fullmatch(r"[\w./-]+", str(checkpoint)) is not None
    return f"{RESUME}={checkpoint}" if plain else text_override(RESUME, str(checkpoint))


def resume_command(out: Path, checkpoint: Path | None = None, processes: int = 1) -> str:
    """Return the command that continues the run in the directory `out`, or begins it anew without a checkpoint.

    It is torchrun's for a run of several processes on this machine.
    """
    command = (
        ["rewardlab"] if processes == 1 else ["torchrun", "--nproc-per-node", str(processes), "-m", "rewardlab.cli"]
    )
    resume = [] if checkpoint is None else [resume_override(checkpoint)]
    return shlex.join([*command, "run", str(out / "config.yaml"), *resume])


def other_place(cfg: ExperimentConfig, checkpoint: Path | None) -> str:
    """Return advice for a run whose directory belongs to another one, which `checkpoint` would continue."""
    key = "runner.checkpoint_dir" if cfg.runner.checkpoint_dir else "runner.logger.log_path or experiment_name"
    resume = f", or continue that run with {resume_override(checkpoint)}" if checkpoint is not None else ""
    return f"Choose another {key}{resume}"


def after_making_room(error: StorageError, checkpoint: Path | None) -> StorageError:
    """Return the error of a run that could not write, with what to do next."""
    advice = f"continue with {resume_override(checkpoint)}" if checkpoint is not None else "start again"
    return StorageError(f"{error}. After making room, {advice}")


def save_state(path: Path, state: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
    """Write the directory, whole or not at all. `facts` are plain values that describe it."""
    tensors: dict[str, Tensor] = {}
    structure = _take_tensors(state, "state", tensors)
    card = f"# {path.name}\n\nThe state of a training run. To continue it: `{resume_override(path)}`.\n"
    return write_checkpoint(path, {**facts, "state": structure}, tensors, card=card)


def load_facts(path: Path) -> dict[str, Any]:
    """Read only the facts that `save_state` was given."""
    try:
        facts = json.loads(read_file(path / CONFIG))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path / CONFIG}: cannot be read ({error})") from error
    return facts if isinstance(facts, dict) else {}


def load_state(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the state and the facts that `save_state` was given."""
    if not (path / CONFIG).exists():
        raise DataError(f"{path}: not a checkpoint of a run: it has no {CONFIG}{_checkpoints_below(path)}")
    try:
        facts = json.loads(read_file(path / CONFIG))
        tensors = read_tensor_file(path / WEIGHTS)[0]
        if not isinstance(facts, dict):
            raise TypeError(f"{CONFIG} holds a {type(facts).__name__}")
        if "state" not in facts and "progress" in facts:
            return _earlier_classifier_run(facts.pop("progress"), tensors), facts
        if "state" not in facts:
            raise DataError(f"{path}: holds a trained model, not the state of a run{_checkpoints_below(path.parent)}")
        state = _put_tensors(facts.pop("state"), tensors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: the state of a run, but damaged ({error!r})") from error
    if not isinstance(state, dict):
        raise DataError(f"{path}: the state of a run, but damaged (its state is a {type(state).__name__})")
    return state, facts


def _checkpoints_below(path: Path) -> str:
    """Return advice: the newest checkpoint of a run below a directory, else what they are called."""
    places = (path / CHECKPOINTS, path)
    found = [place / LAST for place in places if (place / LAST).is_dir()]
    found += [checkpoint for place in places for checkpoint in list_checkpoints(place)[-1:]]
    return f". Did you mean {found[-1]}?" if found else f"; expected {EXPECTED}"


def _take_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of a nested value to `tensors`; what is left can be written as JSON."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().clone()
        return {"tensor": name}
    if isinstance(value, TensorDictBase):
        value = {"batch_size": list(value.batch_size), "columns": dict(value.items())}
        return {"batch": _take_tensors(value, name, tensors)}
    if isinstance(value, Mapping):  # as pairs: JSON would turn the integer keys of optimizers into strings
        return {"pairs": [[key, _take_tensors(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_take_tensors(item, f"{name}/{number}", tensors) for number, item in enumerate(value)]
    return value


def _put_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `_take_tensors`."""
    if isinstance(value, list):
        return [_put_tensors(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "batch" in value:
        batch = _put_tensors(value["batch"], tensors)
        return TensorDict(batch["columns"], batch_size=batch["batch_size"])
    return {key: _put_tensors(item, tensors) for key, item in value["pairs"]}


def _earlier_classifier_run(progress: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """checkpoints/last of 0.1.0, where `network.<name>` and `optimizer.<parameter>/<name>` were names of tensors."""
    state: dict[str, Any] = {"network": {}, "optimizer": {}, "progress": progress}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parameter, _, field = rest.rpartition("/")
        place = state["network"] if part == "network" else state["optimizer"].setdefault(parameter, {})
        place[field] = tensor
    return state
