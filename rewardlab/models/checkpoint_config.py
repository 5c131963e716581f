"""Where a checkpoint is, and what its config.json says: without torch, so that commands answer mistakes at once."""

import json
from pathlib import Path
from typing import Any

from rewardlab.compat.names import todays_checkpoint
from rewardlab.errors import DataError
from rewardlab.input_files import nearest_path, read_file

FORMAT_VERSION = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
# In the directory of a run: the classifier of a training run; reward models that were trained beside a policy.
BEST_MODEL, TRAINED_BESIDE = "checkpoints/best_model", "reward_models"


def locate_checkpoint(path: Path) -> Path:
    """Return the directory or file of a checkpoint, also if it has an older name; a DataError if nothing is there."""
    path = todays_checkpoint(path)
    if not path.exists() and backup_path(path).is_dir():  # killed between the renames of `write_checkpoint`
        path = backup_path(path)
    if not path.exists():
        raise DataError(
            f"{path}: no such checkpoint{nearest_path(path)}; expected a directory with {CONFIG} and "
            f"{WEIGHTS}, a .safetensors or a .pt"
        )
    for name in (CONFIG, WEIGHTS) if path.is_dir() else ():
        if not (path / name).is_file():
            best = path / BEST_MODEL
            hint = f". Did you mean {best}?" if best.is_dir() else ""
            raise DataError(f"{path}: not a checkpoint: {name} is missing{hint}")
    return path


def find_in_run(path: Path) -> Path:
    """Return the checkpoint of a reward model in the directory of a run; another path comes back unchanged."""
    if not path.is_dir() or (path / CONFIG).is_file():
        return path
    if (best := path / BEST_MODEL).is_dir():
        return best
    found = _trained_beside(path)
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{path}: has several reward models; name one of them: {', '.join(map(str, found))}")
    raise DataError(
        f"{path}: no reward model there: neither {CONFIG}, as in a checkpoint, nor {BEST_MODEL}, nor {TRAINED_BESIDE}, "
        "as in runs that train one"
    )


def _trained_beside(run: Path) -> list[Path]:
    """Return the reward models that a run has trained beside its policy: the best ones, else the last."""
    for name in ("best", "last"):
        directory = run / TRAINED_BESIDE / name
        if directory.is_dir():
            return sorted(path.parent for path in directory.glob(f"*/{CONFIG}"))
    return []


def backup_path(path: Path) -> Path:
    """Return where the checkpoint at `path` is while another one takes its place."""
    return path.with_name(f".{path.name}.previous")


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
    if not isinstance(config["architecture"], dict) or not isinstance(config.get("model_type"), str):
        raise DataError(f"{source}: expected a 'model_type' (a name) and an 'architecture' (a dictionary)")
    return config
