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

from rewardlab.data.atomic import remove_leftovers, sync_directory, temporary_path
from rewardlab.errors import DataError, StorageError
from rewardlab.models.checkpoint_config import (
    CARD,
    CONFIG,
    FORMAT_VERSION,
    WEIGHTS,
    backup_path,
    check_format,
    locate_checkpoint,
    parse_config,
    read_config,
)
from rewardlab.models.weights import read_tensor_file


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
    path = locate_checkpoint(path)
    if path.is_dir():
        return _read_directory(path)
    weights, facts = read_tensor_file(path)
    config = facts.get("config")
    if isinstance(config, str):
        config = parse_config(config, f"{path} (metadata)")
    beside = path.with_name(CONFIG)
    if config is None and path.suffix == ".safetensors" and beside.is_file():
        config = read_config(beside)
    if isinstance(config, dict) and "architecture" in config:
        return StoredModel(path, weights, check_format(config, path))
    return StoredModel(path, weights, None, _stated_images(config, facts))


def _stated_images(*places: Any) -> dict[str, Any]:
    """Return the image size and the cameras that a training script stored beside its weights."""
    found: dict[str, Any] = {}
    for place in places:
        for key in ("image_size", "image_keys"):
            if isinstance(place, Mapping) and isinstance(place.get(key), (list, tuple)):
                found[key] = tuple(place[key])
    return found


def _read_directory(path: Path) -> StoredModel:
    config = check_format(read_config(path / CONFIG), path / CONFIG)
    return StoredModel(path, read_tensor_file(path / WEIGHTS)[0], config)


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


def _move_into_place(temporary: Path, path: Path) -> None:
    """Move the directory `temporary` to `path`; an existing directory is deleted or moved to `temporary`."""
    if not path.exists():
        temporary.rename(path)
    elif not _exchange(temporary, path):
        # Without a system call that swaps directories: between the renames, readers find the old one at the backup.
        backup = backup_path(path)
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
