"""Writes and reads the files of a checkpoint directory.

    config.json         model type, architecture, cameras, threshold, temperature, metrics
    model.safetensors   weights
    README.md           model card, with its images beside it

The directory is written atomically. The meaning of the config's entries is not known here.
"""

import ctypes
import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from rewardlab.compat.names import todays_checkpoint
from rewardlab.data.atomic import remove_leftovers, sync_directory, temporary_path
from rewardlab.errors import DataError, StorageError
from rewardlab.input_files import read_file
from rewardlab.models.weights import read_tensor_file

FORMAT_VERSION = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
# In the directory of a run: the classifier of a training run; reward models that were trained beside a policy.
BEST_MODEL, TRAINED_BESIDE = "checkpoints/best_model", "reward_models"


@dataclass(frozen=True)
class StoredModel:
    """The weights and the config of a stored model. `config` is None for weights that are stored without one."""

    source: Path
    weights: dict[str, Tensor]
    config: dict[str, Any] | None
    stated: dict[str, Any] = field(default_factory=dict)  # without a config: what the file says of its images


def write_checkpoint(
    path: Path,
    config: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    *,
    card: str | None = None,
    pictures: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a checkpoint directory to `path`; an existing checkpoint is kept until the new one is complete.

    `pictures` are the files, by name, that the model card shows.
    """
    empty_or_checkpoint = path.is_dir() and ((path / CONFIG).is_file() or not any(path.iterdir()))
    if path.exists() and not empty_or_checkpoint:
        raise DataError(f"{path}: exists and is not a checkpoint directory; it is not replaced. Choose another path")
    description = {"format_version": FORMAT_VERSION, "rewardlab_version": version("rewardlab"), **_to_json(config)}
    files = {
        WEIGHTS: save({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}),
        CARD: (card or _minimal_card(path.name, description)).encode(),
        CONFIG: (json.dumps(description, indent=2, allow_nan=False) + "\n").encode(),
        **(pictures or {}),
    }
    try:
        _write_directory(path, files)
    except OSError as error:
        raise StorageError(f"could not write {path}: {error.strerror or error}") from error
    return path


def _write_directory(path: Path, files: Mapping[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, of=path.stem)
    temporary = temporary_path(path)
    try:
        temporary.mkdir()
        for name, content in files.items():
            with (temporary / name).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        sync_directory(temporary)
        _move_into_place(temporary, path)
        sync_directory(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_checkpoint(path: Path) -> StoredModel:
    """Read a checkpoint directory, a .safetensors file, or a .pt file with the dictionary of a training script."""
    path = todays_checkpoint(path)
    if not path.exists() and _backup_path(path).is_dir():  # killed between the renames of `_move_into_place`
        path = _backup_path(path)
    if path.is_dir():
        return _read_directory(path)
    if not path.exists():
        raise DataError(
            f"{path}: no such checkpoint; expected a directory with {CONFIG} and {WEIGHTS}, a .safetensors or a .pt"
        )
    weights, facts = read_tensor_file(path)
    config = facts.get("config")
    if isinstance(config, str):
        config = _parse(config, f"{path} (metadata)")
    beside = path.with_name(CONFIG)
    if config is None and path.suffix == ".safetensors" and beside.is_file():
        config = _parse(_read_text(beside), str(beside))
    if isinstance(config, dict) and "architecture" in config:
        return StoredModel(path, weights, _check_format(config, path))
    return StoredModel(path, weights, None, _stated_images(config, facts))


def find_checkpoint(path: Path) -> Path:
    """Return the checkpoint of a reward model in the directory of a run; another path comes back unchanged."""
    if not path.is_dir() or (path / CONFIG).is_file():
        return path
    if (best := path / BEST_MODEL).is_dir():
        return best
    found = _run_models(path)
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{path}: has several reward models; name one of them: {', '.join(map(str, found))}")
    raise DataError(
        f"{path}: no reward model there: neither {CONFIG}, as in a checkpoint, nor {BEST_MODEL}, nor {TRAINED_BESIDE}, "
        "as in runs that train one"
    )


def _run_models(run: Path) -> list[Path]:
    """Return the reward models that a run has trained beside its policy: the best ones, else the last."""
    for name in ("best", "last"):
        directory = run / TRAINED_BESIDE / name
        if directory.is_dir():
            return sorted(path.parent for path in directory.glob(f"*/{CONFIG}"))
    return []


def _stated_images(*places: Any) -> dict[str, Any]:
    """Return the image size and the cameras that a training script stored beside its weights."""
    found: dict[str, Any] = {}
    for place in places:
        for key in ("image_size", "image_keys"):
            if isinstance(place, Mapping) and isinstance(place.get(key), (list, tuple)):
                found[key] = tuple(place[key])
    return found


def _read_directory(path: Path) -> StoredModel:
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            best = path / BEST_MODEL
            hint = f". Did you mean {best}?" if best.is_dir() else ""
            raise DataError(f"{path}: not a checkpoint: {name} is missing{hint}")
    config = _parse(_read_text(path / CONFIG), str(path / CONFIG))
    if "architecture" not in config:
        raise DataError(f"{path / CONFIG}: not written by rewardlab: 'architecture' is missing")
    return StoredModel(path, read_tensor_file(path / WEIGHTS)[0], _check_format(config, path / CONFIG))


def _check_format(config: dict[str, Any], source: Path) -> dict[str, Any]:
    found = config.get("format_version", FORMAT_VERSION)
    if type(found) is not int or not 1 <= found <= FORMAT_VERSION:
        raise DataError(
            f"{source}: format_version is {found!r}, this rewardlab reads up to {FORMAT_VERSION}: update rewardlab"
        )
    if not isinstance(config["architecture"], dict) or not isinstance(config.get("model_type"), str):
        raise DataError(f"{source}: expected a 'model_type' (a name) and an 'architecture' (a dictionary)")
    return config


def _read_text(path: Path) -> str:
    try:
        return read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({error})") from error


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:  # also of a number with too many digits
        raise DataError(f"{source}: not valid JSON ({error})") from error
    if not isinstance(config, dict):
        raise DataError(f"{source}: expected a JSON object, found a {type(config).__name__}")
    return config


def _to_json(value: Any) -> Any:
    """Return plain JSON values: NumPy and torch numbers become Python numbers, NaN becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if hasattr(value, "tolist"):
        return _to_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _minimal_card(name: str, config: Mapping[str, Any]) -> str:
    text = json.dumps(config, indent=2)
    load = f'from rewardlab.rewards import load_reward_model\n\nmodel = load_reward_model("{name}")'
    return f"# {name}\n\nA reward model of rewardlab.\n\n```python\n{load}\n```\n\n```json\n{text}\n```\n"


def _backup_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")


def _move_into_place(temporary: Path, path: Path) -> None:
    """Move the directory `temporary` to `path`; an existing directory is deleted or moved to `temporary`."""
    if not path.exists():
        temporary.rename(path)
    elif not _exchange(temporary, path):
        # Without a system call that swaps directories: between the renames, readers find the old one at the backup.
        backup = _backup_path(path)
        shutil.rmtree(backup, ignore_errors=True)
        path.rename(backup)
        temporary.rename(path)
        shutil.rmtree(backup, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two directories atomically with Linux's renameat2; return False if the system does not support it."""
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), swap) == 0)
