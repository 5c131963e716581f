"""The errors that are shown to users: one sentence that says what is wrong and what to do next."""

import re
import sysconfig
import traceback
from pathlib import Path


class RewardlabError(Exception):
    """An error that the user can fix. The command line prints its text without a traceback."""


class ConfigError(RewardlabError):
    """A key, a value or a name in a configuration is wrong."""


class DataError(RewardlabError):
    """A file, an array or an episode is not as expected."""


class StorageError(DataError):
    """A file could not be written: the disk is full, or the place is read-only."""


class ProcessDied(RewardlabError):
    """A process that did part of the work ended, and was or can be replaced: what it was doing must be done again."""


class ProcessLost(RewardlabError):
    """A process that did part of the work ended, and another one would end as well."""


class StoppedByAlarm(RewardlabError):
    """The audit of a learned reward ended a run, as `reward.audit.on_alarm=stop` says; its state is written."""

    def __init__(self, message: str, checkpoint: Path) -> None:
        super().__init__(message)
        self.checkpoint = checkpoint


def user_traceback(error: BaseException) -> str | None:
    """Return the traceback of an error in the user's own code, cut to the user's frames; None if it has none.

    The user's are all frames below the first of rewardlab that are in no file of rewardlab, of Python, or of a library
    that rewardlab builds on: their environment, reward model or callback.
    """
    if isinstance(worker := getattr(error, "traceback_str", None), str):  # the traceback of another process
        frames = re.findall(r'^ +File "[^"\n]+", line \d+, in .*\n(?: {4,}.*\n)*', worker, re.MULTILINE)
        kept = "".join(frame for frame in frames if is_users_file(frame.split('"')[1]))
        last = worker.strip().rpartition("\n")[2]
        return f"Traceback (most recent call last):\n{kept}{last}" if kept else None
    found = traceback.TracebackException.from_exception(error)
    parts: list[traceback.TracebackException] = [found]
    cut = False
    while parts:
        part = parts.pop()
        files = [str(Path(frame.filename).absolute()) for frame in part.stack]
        begin = next((i for i, file in enumerate(files) if file.startswith(str(_PACKAGE))), 0)
        users = [frame for frame, file in zip(part.stack[begin:], files[begin:], strict=True) if is_users_file(file)]
        part.stack = traceback.StackSummary.from_list(users)
        cut |= bool(users)
        parts += [other for other in (part.__cause__, part.__context__) if other is not None]
    return "".join(found.format()).rstrip() if cut else None


_PACKAGE = Path(__file__).parent
_PYTHON = tuple(Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "platstdlib"))
_LIBRARIES = {
    *("antlr4", "av", "cv2", "gymnasium", "h5py", "hydra", "jinja2", "matplotlib", "numpy"),
    *("omegaconf", "onnx", "onnxruntime", "PIL", "pyarrow", "pydantic", "pydantic_core", "ray", "rich"),
    *("safetensors", "tensorboard", "tensordict", "torch", "wandb", "yaml"),
}


def is_users_file(name: str) -> bool:
    """Return whether a file of a traceback is neither rewardlab's, nor Python's, nor of a library it builds on."""
    if name.startswith("<") or "/<" in name:  # <frozen importlib._bootstrap> and the like
        return False
    file = Path(name).absolute()
    if file.is_relative_to(_PACKAGE):
        return False
    for place in ("site-packages", "dist-packages"):
        if place in file.parts:
            return file.parts[file.parts.index(place) + 1] not in _LIBRARIES
    return not any(file.resolve().is_relative_to(directory) for directory in _PYTHON)
