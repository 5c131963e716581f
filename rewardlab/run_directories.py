"""Finds the checkpoints of a run, from its directory or from whatever else the run printed."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import yaml

from rewardlab.errors import DataError
from rewardlab.input_files import read_file
from rewardlab.limits import listed

CONFIG_FILE, REPORT, CHECKPOINTS = "config.yaml", "report.html", "checkpoints"
WRITTEN = ("metrics.jsonl", REPORT, "events.out.tfevents.*", "audit", "reward_models")  # by a run, besides checkpoints


def find_run(path: Path) -> Path:
    """Return the directory of a run, of which checkpoints/ or a file is given, or the only run below a `log_path`."""
    if path.name == CHECKPOINTS or (path.name in (CONFIG_FILE, REPORT) and path.is_file()):
        return path.parent
    if not path.is_dir() or _is_run(path):
        return path
    runs = sorted(child for child in path.iterdir() if child.is_dir() and _is_run(child))
    if len(runs) > 1:
        raise DataError(f"{path}: has {len(runs)} runs, expected one of them: {listed(run.name for run in runs)}")
    return runs[0] if runs else path


def checkpoint_places(path: Path) -> list[Path]:
    """Return where the checkpoints of a run may be, the likeliest first; `path` as for `find_run`, or one of them."""
    run = find_run(path)
    elsewhere = _configured_place(run / CONFIG_FILE)
    return [*([elsewhere] if elsewhere is not None else []), run / CHECKPOINTS, run]


def set_aside(run: Path, checkpoints: Iterable[Path] = ()) -> Path | None:
    """Move what an earlier run has left, which cannot be continued, to earlier_1 (or 2, ...) inside its directory.

    `checkpoints` are moved too. Return the new place, or None if nothing was left.
    """
    left = [path for name in WRITTEN for path in sorted(run.glob(name))]
    left += [path for path in checkpoints if path.exists()]
    if not left:
        return None
    numbered = (run / f"earlier_{number}" for number in itertools.count(1))
    place = next(path for path in numbered if not path.exists())
    place.mkdir(parents=True)
    for path in left:
        path.rename(place / path.name)
    return place


def _is_run(path: Path) -> bool:
    return (path / CHECKPOINTS).is_dir() or (path / CONFIG_FILE).is_file()


def _configured_place(config: Path) -> Path | None:
    """Return runner.checkpoint_dir of a run, if it is set; a config that cannot be read is left to others."""
    try:
        found = yaml.safe_load(read_file(config))
        place = found["runner"]["checkpoint_dir"]
    except (OSError, DataError, ValueError, yaml.YAMLError, RecursionError, TypeError, LookupError):
        return None
    return Path(place) if isinstance(place, str) else None
