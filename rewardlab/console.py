"""The console of a run: progress bars and lines beside them.

Output is not the purpose of a run: where nobody reads it any more (`| head -1`), or its disk is full, the run goes on.
"""

from typing import TYPE_CHECKING, Any

import rich.console
from rich.text import Text

from rewardlab.screen import PatientStream, printable

if TYPE_CHECKING:
    from rich.progress import Progress


def make_console(*, stderr: bool = False, **options: Any) -> rich.console.Console:
    """Return a console for the standard output, or the standard error, that never ends a run."""
    return rich.console.Console(file=PatientStream(stderr=stderr), **options)  # type: ignore[arg-type]


def print_line(console: rich.console.Console, words: object, *, title: str = "", style: str = "bold") -> None:
    """Print a line, with a title in a colour before it. What looks like markup in the words is not markup."""
    text = Text(printable(words))
    console.print(Text.assemble((title, style), ": ", text) if title else text, soft_wrap=True)


def make_progress(console: rich.console.Console, **options: Any) -> "Progress":
    """Return a progress bar on one line: what is done, how much of it, the time left, and the field `words` of a task.

    On narrow terminals the words are cut off at their end, the rest never.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    class OneLine(TextColumn):
        def render(self, task: Any) -> Text:
            text = super().render(task)
            text.no_wrap, text.overflow = True, "ellipsis"
            return text

    def fixed() -> Column:
        return Column(no_wrap=True)

    return Progress(
        TextColumn("{task.description}", table_column=fixed()),
        BarColumn(bar_width=10, table_column=fixed()),
        MofNCompleteColumn(table_column=fixed()),
        TimeRemainingColumn(table_column=fixed()),
        TextColumn("left", table_column=fixed()),
        OneLine("{task.fields[words]}", table_column=Column()),
        console=console,
        **options,
    )
