"""The file formats of episodes, chosen by name when writing and recognised when reading."""

from pathlib import Path

from rewardlab.data.formats.format import EpisodeFormat, FrameRows
from rewardlab.data.formats.npy_file import NpyFormat
from rewardlab.data.formats.pickle_file import PickleFormat
from rewardlab.data.formats.safetensors_file import SafetensorsFormat
from rewardlab.errors import DataError
from rewardlab.registry import Registry

FORMATS: Registry[EpisodeFormat] = Registry("episode format")
for _format in (SafetensorsFormat(), PickleFormat(), NpyFormat()):
    FORMATS.register(_format.name)(_format)
_BY_SUFFIX = {FORMATS[name].suffix: FORMATS[name] for name in FORMATS}
SUFFIXES = tuple(_BY_SUFFIX)


def is_episode_name(path: Path) -> bool:
    """Whether a file of this name could be an episode: a known suffix, and not hidden (half-written files are)."""
    return path.suffix in _BY_SUFFIX and not path.name.startswith(".")


def format_of(path: Path) -> EpisodeFormat:
    """The format by suffix; reading the file then checks that its content is that."""
    if path.suffix not in _BY_SUFFIX:
        raise DataError(f"{path} is not an episode: expected a file ending in {', '.join(SUFFIXES)}")
    return _BY_SUFFIX[path.suffix]


__all__ = ["FORMATS", "SUFFIXES", "EpisodeFormat", "FrameRows", "format_of", "is_episode_name"]
