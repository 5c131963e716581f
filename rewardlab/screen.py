"""Text on the screen. Names come from files of others: they are shown, and never reach the terminal as its codes."""

import sys
from typing import IO

MAX_ERROR = 4_000  # characters of an error on the screen; a damaged file can put any amount of text into one


def printable(text: object) -> str:
    r"""Return text with what a terminal would obey, hide or reorder written out, such as \x1b; lines stay lines."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def say(text: object = "", *, end: str = "\n") -> None:
    """Print to the standard output."""
    _write(sys.stdout, printable(text) + end)


def say_error(text: object) -> None:
    """Print to the standard error; of a text that is too long, the beginning and the end."""
    words = printable(text)
    if len(words) > MAX_ERROR:
        words = f"{words[: MAX_ERROR // 2]} ... {words[-MAX_ERROR // 2 :]}"
    _write(sys.stderr, f"{words}\n")


def _write(stream: IO[str] | None, text: str) -> None:
    if stream is not None:  # it is None if the descriptor is closed
        stream.write(text)
        stream.flush()


class PrintableStream:
    """Writes to a terminal what is printable, and to a file or a pipe the very text: for formats that programs read."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(printable(text) if self._stream.isatty() else text)
