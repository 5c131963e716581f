"""Opens HDF5 files of others: what is in them is read, and no other file that they may refer to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.data.episodes import Array
from rewardlab.data.packages import need
from rewardlab.errors import DataError
from rewardlab.input_files import check_is_file, open_file
from rewardlab.limits import check_bytes, excerpt, listed
from rewardlab.registry import nearest_name

SUFFIXES = (".hdf5", ".h5")
_MAGIC = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: Path) -> bool:
    """Return whether a file begins as an HDF5 file does."""
    try:
        with open_file(path) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (DataError, OSError):
        return False


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Yield an open h5py.File; whatever is wrong with it, then and inside, becomes a DataError with its name."""
    h5py = need("h5py", "importing HDF5 files")
    try:
        check_is_file(path)
        with h5py.File(path, "r") as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except DataError as error:
        if str(path) in str(error):
            raise
        raise DataError(f"{path}: {error}") from error
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:  # h5py's errors are these
        words = "is cut short" if "truncated" in str(error) else "is damaged or no HDF5 file"
        raise DataError(f"{path} {words} ({excerpt(error)})") from error


def child(group: Any, name: str, why: str = "") -> Any:
    """Return what is under a name in a group; a DataError says what is there instead, with the nearest name."""
    import h5py

    if name not in group:
        near = nearest_name(name, group)
        hint = f" Did you mean '{near}'?" if near else ""
        raise DataError(f"no '{name}' in {group.name}.{hint} It has {listed(group) or 'nothing'}{why}")
    if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
        raise DataError(f"'{name}' in {group.name} is a link to another file: refused")
    found = group[name]
    if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
        raise DataError(f"'{found.name}' has its numbers in another file: refused")
    return found


def subgroup(group: Any, name: str, why: str = "") -> Any:
    """Return a group in a group."""
    import h5py

    found = child(group, name, why)
    if not isinstance(found, h5py.Group):
        raise DataError(f"'{found.name}' is a dataset; expected a group")
    return found


def numbers(group: Any, name: str, path: Path) -> Array:
    """Return a dataset of numbers as a whole."""
    dataset = child(group, name)
    dtype = getattr(dataset, "dtype", None)
    if dtype is None or dtype.kind not in "biuf" or dataset.ndim == 0:
        raise DataError(f"'{dataset.name}' is {dtype or 'a group'}; expected numbers, one row a step")
    check_bytes(dataset.nbytes, path.stat().st_size, f"{path}: {dataset.name}")
    return np.asarray(dataset[()])
