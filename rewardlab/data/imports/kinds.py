"""The kinds of recordings that can be imported, recognised by their content."""

from collections import Counter
from dataclasses import fields
from pathlib import Path

from rewardlab.data.imports.files import find_files
from rewardlab.data.imports.hdf5 import Hdf5Source
from rewardlab.data.imports.lerobot import LeRobotSource
from rewardlab.data.imports.pickles import Pickles
from rewardlab.data.imports.pictures import Pictures
from rewardlab.data.imports.source import ImportOptions, Source
from rewardlab.data.imports.videos import Videos
from rewardlab.data.reader import episode_paths
from rewardlab.errors import ConfigError, DataError

# Tried in this order: a data set may have pictures, videos and other files beside what marks it.
KINDS: tuple[type[Source], ...] = (LeRobotSource, Hdf5Source, Pickles, Pictures, Videos)
FLAGS = {"unsure_seconds": "--unsure-seconds", "cameras": "--camera"}


def open_source(path: Path, options: ImportOptions) -> Source:
    """Return the recording at `path`, of the first kind that recognises it."""
    if not path.exists():
        raise DataError(f"{path} does not exist; expected a recording: a directory or a file")
    kind = next((kind for kind in KINDS if kind.recognises(path)), None)
    if kind is None:
        raise DataError(_unknown(path))
    _check_options(kind, options)
    return kind(path, options)


def _check_options(kind: type[Source], options: ImportOptions) -> None:
    """Refuse options that would have no effect."""
    for option in fields(options):
        value = getattr(options, option.name)
        if value != option.default and option.name not in {*kind.reads, "task", "size"}:
            flag = FLAGS.get(option.name, f"--{option.name}")
            known = ", ".join(FLAGS.get(name, f"--{name}") for name in sorted({*kind.reads, "task", "size"}))
            raise ConfigError(f"{flag} has no meaning for {kind.kind}; it takes {known}")


def _unknown(path: Path) -> str:
    looked = "\n".join(f"  {kind.kind}: {kind.looks_for}" for kind in KINDS)
    found = find_files(path).files
    suffixes = Counter(file.suffix.lower() or "without a suffix" for file in found)
    words = ", ".join(f"{count:,} {suffix}" for suffix, count in suffixes.most_common(5)) or "no files"
    own = len(episode_paths(path)) if path.is_dir() else 0
    if own and own == sum(file.suffix == ".safetensors" for file in found):
        return f"{path} holds episodes already: rewardlab train-reward --data {path}"
    return f"{path}: not a recording that can be imported. Looked for\n{looked}\nfound {words}"
