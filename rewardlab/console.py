"""The console of a run: progress bars and lines beside them.

Output is not the purpose of a run: where nobody reads it any more (`| head -1`), or its disk is full, the run goes on.
"""

import sys
from typing import IO, Any

import rich.console
from rich.text import Text

from rewardlab.screen import printable


def make_console(*, stderr: bool = False, **options: Any) -> rich.console.Console:
    """Return a console for the standard output, or the standard error, that never ends a run."""
    return rich.console.Console(file=_PatientStream(stderr), **options)  # type: ignore[arg-type]


def print_line(console: rich.console.Console, words: object, *, title: str = "", style: str = "bold") -> None:
    """Print a line, with a title in a colour before it. What looks like markup in the words is not markup."""
    text = Text(printable(words))
    console.print(Text.assemble((title, style), ": ", text) if title else text, soft_wrap=True)


class _PatientStream:
    """The standard output or error of the moment; what cannot be written to it is dropped."""

    def __init__(self, stderr: bool) -> None:
        self._stderr = stderr

    @property
    def _stream(self) -> IO[str] | None:
        stream = sys.stderr if self._stderr else sys.stdout
        return getattr(stream, "rich_proxied_file", stream)  # while a progress bar is shown, rich takes its place

    def write(self, text: str) -> int:
        try:
            return len(text) if self._stream is None else self._stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            if self._stream is not None:
                self._stream.flush()
        except OSError:
            pass

    def __getattr__(self, name: str) -> Any:  # isatty, fileno, encoding
        return getattr(self._stream, name)
