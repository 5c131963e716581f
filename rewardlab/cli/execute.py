"""Runs a command: its errors and warnings become lines, and signals end it in order."""

import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rewardlab.compat import CompatibilityNote
from rewardlab.errors import ConfigError, DataError, RewardlabError, StoppedByAlarm, StorageError, user_traceback
from rewardlab.screen import OutputLost, PatientStream, say_error
from rewardlab.stopping import SIGNALS, Interrupted, StopRequest, is_taken

# Exit statuses, see docs/runs.md. A signal's is 128 + its number: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP.
OK, FAILED, WRONG, ALARM = 0, 1, 2, 3  # WRONG: what the user gave is
WRONG_NAMES = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def execute(command: Callable[[], int | None]) -> int:
    """Call a command and return its exit status."""
    _prepare_streams()
    left: SystemExit | None = None  # how argparse ends a command, after its help or an error
    status = OK
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            warnings.simplefilter("always", CompatibilityNote)
            status = _run(command)
    except SystemExit as error:
        left = error
    lost = _flush_output()
    if lost is not None and not isinstance(lost, BrokenPipeError):  # else the reader, such as `head`, has seen enough
        say_error(f"error: the output could not be written ({lost.strerror})")
        return status or FAILED
    if left is not None:
        raise left
    return status


def _run(command: Callable[[], int | None]) -> int:
    asked = StopRequest()
    try:
        with _signals_raised(asked):
            return command() or OK
    except StoppedByAlarm as alarm:
        say_error(alarm)
        return ALARM
    except RewardlabError as error:
        say_error(f"error: {error}")
        return _status(error)
    except KeyboardInterrupt:  # Ray makes one of every signal
        say_error("\ninterrupted")
        return 128 + (asked.number or signal.SIGINT)
    except SystemExit as error:
        if (users := user_traceback(error)) is None:  # argparse
            raise
        say_error(users)
        return FAILED
    except OutputLost:  # `execute` says why
        return OK
    except Exception as error:
        if (users := user_traceback(error)) is not None:
            say_error(users)
            return FAILED
        words = _in_words(error)
        if words is None:  # a mistake of rewardlab's: its traceback belongs into a report
            raise
        say_error(f"error: {words}")
        return WRONG if isinstance(error, (*WRONG_NAMES, ValueError)) else FAILED


def _status(error: BaseException | None) -> int:
    """Return the status for an error: of a file that could not be written, the place may be wrong, or the disk full."""
    if isinstance(error, StorageError):
        return WRONG if _status(error.__cause__) == WRONG else FAILED
    return WRONG if isinstance(error, (ConfigError, DataError, *WRONG_NAMES)) else FAILED


@contextmanager
def _signals_raised(asked: StopRequest) -> Iterator[None]:
    """Raise Interrupted at the first signal that asks the command to end, so that files are finished; a second one ends
    it at once.
    """

    def stop(number: int, _: object) -> None:
        if not asked.requested:
            asked.request(number)
            raise Interrupted(number)
        asked.repeat(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS if is_taken(number)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_words(error: Exception) -> str | None:
    """Return what an error of Python's or torch's means to a user; None for those that no input should cause."""
    reason = str(error).strip().partition("\n")[0]
    if isinstance(error, MemoryError) or re.search(r"can't allocate memory|not enough memory|bad_alloc", str(error)):
        reason = re.sub(r"^.*DefaultCPUAllocator: ", "", reason)
        return (
            f"not enough memory ({reason or 'the process has no more'}). Lower what asks for it, such as "
            "env.train.num_envs, env.train.image_size, algorithm.<name>.replay_size or actor.global_batch_size"
        )
    if isinstance(error, ImportError) and error.name == "cv2":
        return (
            f"OpenCV cannot be imported ({reason}). opencv-python, which simulators bring, and opencv-python-headless "
            "share their files, and the last one installed or removed wins. To mend it: "
            f"{sys.executable} -m pip install --force-reinstall --no-deps opencv-python-headless"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror
    if "embedded null" in reason:
        return "the name of a file has a NUL character; expected a name without"
    return None


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    kind = "note" if issubclass(category, CompatibilityNote) else "warning"
    words = re.sub(r"\x1b\[[0-9;]*m", "", str(message))  # Gymnasium's are yellow
    say_error(f"{kind}: {words}")


def _prepare_streams() -> None:
    """Make the standard streams usable: closed ones (`>&-`) lead nowhere, and ASCII terminals get escapes."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # A file opened later would get the free number, and what libraries print would be written into it.
            if not _is_open(number):
                os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(os.devnull, "r+" if number else "r"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _flush_output() -> OSError | None:
    """Write what is left of the output, and return why that fails, or why something before it failed."""
    PatientStream().flush()
    lost, PatientStream.lost = PatientStream.lost, None
    if lost is not None:  # Python would try again at its end, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return lost
