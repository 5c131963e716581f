"""The packages of `rewardlab[import]`, imported where they are needed."""

import importlib
from typing import Any

from rewardlab.errors import ConfigError

INSTALL = "pip install 'rewardlab[import]'"
_NAMES = {"av": "PyAV", "pyarrow": "pyarrow", "h5py": "h5py"}


def need(module: str, what: str) -> Any:
    """Return a module of an optional package; `what`, for the error, is what needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = _NAMES[module.partition(".")[0]]
        raise ConfigError(f"{what} needs {name}, which is not installed ({error}): {INSTALL}") from error
