"""Where a checkpoint is, and what its config.json says: without torch, so that commands answer mistakes at once."""

import json
from pathlib import Path
from typing import Any

from rewardlab.compat.names import todays_checkpoint
from rewardlab.errors import DataError
from rewardlab.input_files import nearest_path, read_file
from rewardlab.run_directories import CONFIG_FILE, REPORT, checkpoint_places, find_run

FORMAT_VERSION = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
# In a run: the best classifier of one that trains it, among its checkpoints; reward models trained beside a policy.
BEST_MODEL, TRAINED_BESIDE = "best_model", "reward_models"


def locate_checkpoint(path: Path) -> Path:
    """Return a checkpoint's directory or file; for a run, its checkpoints/ or its report, the best one.

    A DataError if nothing is there. A checkpoint may have an older name.
    """
    path = itself_or_backup(todays_checkpoint(path))
    if not path.exists():
        raise DataError(
            f"{path}: no such checkpoint{nearest_path(path)}; expected a run, a directory with {CONFIG} and "
            f"{WEIGHTS}, a .safetensors or a .pt"
        )
    is_report = path.name in (REPORT, CONFIG_FILE)
    if not is_report and (path.is_file() or (path / CONFIG).is_file() or (path / WEIGHTS).is_file()):
        found = path
    else:
        found = _find_in_run(path)
    for name in (CONFIG, WEIGHTS) if found.is_dir() else ():
        if not (found / name).is_file():
            elsewhere = f", and no {BEST_MODEL} or {TRAINED_BESIDE}, as in runs that train one" if found == path else ""
            raise DataError(f"{found}: not a checkpoint: {name} is missing{elsewhere}")
    return found


def _find_in_run(path: Path) -> Path:
    """Return the best model of a run that trains a classifier, or the one that was trained beside a policy."""
    for place in checkpoint_places(path):
        if (best := itself_or_backup(place / BEST_MODEL)).is_dir():
            return best
    found = _trained_beside(find_run(path))
    if len(found) > 1:
        raise DataError(f"{path}: has several reward models; name one of them: {', '.join(map(str, found))}")
    return found[0] if found else path


def _trained_beside(run: Path) -> list[Path]:
    """Return the reward models that a run has trained beside its policy: the best ones, else the last."""
    for name in ("best", "last"):
        directory = run / TRAINED_BESIDE / name
        if directory.is_dir():
            return sorted(path.parent for path in directory.glob(f"[!.]*/{CONFIG}"))  # not those half written
    return []


def backup_path(path: Path) -> Path:
    """Return where the checkpoint at `path` is while another one takes its place."""
    return path.with_name(f".{path.name}.previous")


def itself_or_backup(path: Path) -> Path:
    """Return a path, or its backup's if a kill between the renames of `write_checkpoint` left only that."""
    if path.exists():  # also "." and "/", which have no name
        return path
    backup = backup_path(path)
    return backup if backup.is_dir() else path


def read_config(source: Path) -> dict[str, Any]:
    """Read a config.json."""
    try:
        text = read_file(source).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: cannot be read as text ({error})") from error
    return parse_config(text, source)


def parse_config(text: str, source: object) -> dict[str, Any]:
    """Parse the text of a config.json; `source` is what errors call it."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:  # also of a number with too many digits
        raise DataError(f"{source}: not valid JSON ({error})") from error
    if not isinstance(config, dict):
        raise DataError(f"{source}: expected a JSON object, found a {type(config).__name__}")
    return config


def check_format(config: dict[str, Any], source: Path) -> dict[str, Any]:
    """Return the config of a model if this version can read it."""
    if "architecture" not in config:
        raise DataError(f"{source}: not written by rewardlab: 'architecture' is missing")
    found = config.get("format_version", FORMAT_VERSION)
    if type(found) is not int or not 1 <= found <= FORMAT_VERSION:
        raise DataError(
            f"{source}: format_version is {found!r}, this rewardlab reads up to {FORMAT_VERSION}: update rewardlab"
        )
    if "state" in config and config.get("model_type") != "policy":
        raise DataError(
            f"{source.parent}: the state of a training run, which continues it; its model is {BEST_MODEL} beside it"
        )
    if not isinstance(config["architecture"], dict) or not isinstance(config.get("model_type"), str):
        raise DataError(f"{source}: expected a 'model_type' (a name) and an 'architecture' (a dictionary)")
    return config
