"""Text on the screen. Names come from files of others: they are shown, and never reach the terminal as its codes."""

import sys
from typing import IO, Any, ClassVar

MAX_ERROR = 4_000  # characters of an error on the screen; a damaged file can put any amount of text into one


def printable(text: object) -> str:
    r"""Return text with what a terminal would obey, hide or reorder written out, such as \x1b; lines stay lines."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


class OutputLost(Exception):
    """The standard output is gone or full: a command that does nothing but print can end."""


def say(text: object = "", *, end: str = "\n") -> None:
    """Print to the standard output."""
    PrintableStream().write(printable(text) + end)


def say_error(text: object) -> None:
    """Print to the standard error; of a text that is too long, the beginning and the end."""
    words = printable(text)
    if len(words) > MAX_ERROR:
        words = f"{words[: MAX_ERROR // 2]} ... {words[-MAX_ERROR // 2 :]}"
    stream = PatientStream(stderr=True)
    stream.write(f"{words}\n")
    stream.flush()


class PatientStream:
    """The standard output or error of the moment, for those whose work goes on if it is gone or full."""

    lost: ClassVar[OSError | None] = None  # why something could not be written to the standard output

    def __init__(self, *, stderr: bool = False) -> None:
        self._stderr = stderr

    @property
    def _stream(self) -> IO[str] | None:
        stream = sys.stderr if self._stderr else sys.stdout
        return getattr(stream, "rich_proxied_file", stream)  # while a progress bar is shown, rich takes its place

    def write(self, text: str) -> int:
        self._try("write", text)
        return len(text)

    def flush(self) -> None:
        self._try("flush")

    def _try(self, method: str, *args: str) -> None:
        try:
            if self._stream is not None:
                getattr(self._stream, method)(*args)
        except (OSError, ValueError) as error:  # ValueError: somebody closed it
            if not self._stderr and isinstance(error, OSError):
                PatientStream.lost = error

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:  # fileno, encoding
        return getattr(self._stream, name)


class PrintableStream:
    """The standard output for formats that programs read: what is printable on a terminal, else the very text."""

    def write(self, text: str) -> int:
        stream = PatientStream()
        stream.write(printable(text) if stream.isatty() else text)
        stream.flush()
        if PatientStream.lost is not None:
            raise OutputLost
        return len(text)
