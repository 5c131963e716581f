"""`rewardlab data import`: from recordings of other programs to episodes that a classifier is trained on."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rewardlab.cli.command import path_name, positive
from rewardlab.screen import say, say_error

if TYPE_CHECKING:
    from rewardlab.data.imports.picture_size import PictureSize
    from rewardlab.data.imports.run_import import Imported

IMPORT_SUMMARY = "turn pictures, videos or recordings of other programs into labelled episodes"
IMPORT_EXAMPLE = "rewardlab data import my_video.mp4 data/mine --labels labels.csv"
NEXT = "rewardlab train-reward --data {}"
MOST_REASONS = 20  # that are printed


def add_import(command: argparse.ArgumentParser) -> None:
    """Give a parser the arguments of this command."""
    add = command.add_argument
    add("source", metavar="SOURCE", type=path_name, help="a directory or a file; what it is shows in its content")
    add("out", metavar="OUT", type=path_name, help="directory for the episodes; named again, the import continues")
    add("--success", nargs="+", default=[], metavar="NAME", help="folders or files that show success in every picture")
    add("--failure", nargs="+", default=[], metavar="NAME", help="folders or files that show none")
    add("--labels", metavar="FILE", type=path_name, help="CSV or JSON with ranges of time: video,start,end,label")
    add(
        "--rest",
        choices=("failure", "unsure", "success"),
        help="what is outside of all ranges (default: failure, or unsure if the file has ranges of failures)",
    )
    add("--every", type=positive, default=1, metavar="N", help="keep every N-th picture (default: %(default)s)")
    add(
        "--size",
        type=_size,
        default="reduced",
        metavar="HxW",
        help="size of the pictures: 128x171, or original (default: shorter sides are reduced to about 128)",
    )
    add(
        "--align",
        choices=("same", "next", "auto"),
        default="auto",
        help="which frame the label of a step judges: that before it, or that after it (default: %(default)s)",
    )
    add(
        "--unsure-seconds",
        type=_seconds,
        metavar="S",
        help="frames that close to a change of the label are unsure (default: as the kind of recording needs)",
    )
    add("--camera", action="append", default=[], metavar="NAME", help="cameras to take; of one without, its name")
    add("--task", help="name of the task")


def import_data(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from rewardlab.data.imports.run_import import import_recording
    from rewardlab.data.imports.source import ImportOptions

    options = ImportOptions(
        success=tuple(arguments.success),
        failure=tuple(arguments.failure),
        labels=Path(arguments.labels) if arguments.labels else None,
        rest=arguments.rest,
        every=arguments.every,
        align=arguments.align,
        unsure_seconds=arguments.unsure_seconds,
        cameras=tuple(arguments.camera),
        task=arguments.task,
        size=arguments.size,
    )
    try:
        with _progress() as progress:
            result = import_recording(arguments.source, arguments.out, options, progress=progress)
    except KeyboardInterrupt:
        say_error("\nstopped; the same command continues where it was")
        raise
    _print(result)


def _size(text: str) -> "PictureSize":
    from rewardlab.data.imports.picture_size import PictureSize

    if text in ("reduced", "original"):
        return PictureSize(original=text == "original")
    if match := re.fullmatch(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", text):
        return PictureSize(wanted=(int(match[1]), int(match[2])))
    raise argparse.ArgumentTypeError(f"found {text!r}, expected height x width such as 128x171, or original")


def _seconds(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,5}(\.[0-9]+)?", text):
        return float(text)
    raise argparse.ArgumentTypeError(f"found {text!r}, expected seconds such as 0.4")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    from rewardlab.console import make_console, make_progress

    with make_progress(make_console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("importing episodes", total=0, words="")
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def _print(result: "Imported") -> None:
    found = result.summary
    say(f"{result.source}: {result.kind}")
    for remark in filter(None, [result.grouping, *result.remarks]):
        say(f"  {remark}")
    kinds = f"   with success {found.success_episodes:,}   without {found.failure_episodes:,}"
    kinds += f"   unsure {found.unsure_episodes:,}" if found.unsure_episodes else ""
    say(f"  {'episodes':9} {found.episodes:>9,}{kinds}")
    frames = f"   success {found.success_frames:,}   failure {found.failure_frames:,}"
    say(f"  {'frames':9} {found.frames:>9,}{frames}   unsure {found.unsure_frames:,}")
    if result.written_before:
        say(f"  {result.written_before:,} of the episodes were there already")
    for note, count in result.notes.items():
        say(f"  {note}: {count:,}")
    _print_reasons("episodes left out", result.dropped)
    _print_reasons("also left out", result.left_out)
    counts = {"success": found.success_frames, "failure": found.failure_frames}
    missing = [name for name, count in counts.items() if not count]
    if missing:
        say(f"warning: no frame is a {' or a '.join(missing)}; a classifier needs both")
    say(f"wrote {result.directory}")
    if not missing:
        say(f"next: {NEXT.format(shlex.quote(str(result.directory)))}")


def _print_reasons(what: str, left_out: list[tuple[str, str]]) -> None:
    if left_out:
        say(f"  {what}: {len(left_out):,}")
    for name, why in left_out[:MOST_REASONS]:
        say(f"    {why}" if name in why else f"    {name}: {why}")
    if len(left_out) > MOST_REASONS:
        say(f"    and {len(left_out) - MOST_REASONS:,} more")
