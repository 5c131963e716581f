"""The console of a run: progress bars and lines beside them.

Output is not the purpose of a run: where nobody reads it any more (`| head -1`), or its disk is full, the run goes on.
"""

from typing import Any

import rich.console
from rich.text import Text

from rewardlab.screen import PatientStream, printable


def make_console(*, stderr: bool = False, **options: Any) -> rich.console.Console:
    """Return a console for the standard output, or the standard error, that never ends a run."""
    return rich.console.Console(file=PatientStream(stderr=stderr), **options)  # type: ignore[arg-type]


def print_line(console: rich.console.Console, words: object, *, title: str = "", style: str = "bold") -> None:
    """Print a line, with a title in a colour before it. What looks like markup in the words is not markup."""
    text = Text(printable(words))
    console.print(Text.assemble((title, style), ": ", text) if title else text, soft_wrap=True)
