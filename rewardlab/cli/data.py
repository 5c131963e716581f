"""`rewardlab data`: look at, check and convert episodes on disk."""

import argparse
from collections import Counter
from functools import partial

from rewardlab.cli.command import Commands, add_command, add_group, path_name, positive
from rewardlab.cli.data_import import IMPORT_EXAMPLE, IMPORT_SUMMARY, add_import, import_data
from rewardlab.cli.data_process import PROCESS_SUMMARY, add_process, process
from rewardlab.screen import say


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    verbs = add_group(commands, "data", "look at, check and convert episodes on disk", "rewardlab data info DIR")
    info = add_command(verbs, "info", "count episodes, frames and labels", "rewardlab data info DIR", _info)
    example = "rewardlab data verify DIR"
    verify = add_command(verbs, "verify", "read every byte and name damaged files", example, _verify)
    example = "rewardlab data convert DIR data_as_pickle --format pickle"
    convert = add_command(verbs, "convert", "write the episodes in another format", example, _convert)
    example = "rewardlab data show DIR --out sheet.png"
    show = add_command(verbs, "show", "draw frames with their labels as one PNG", example, _show)
    add_import(add_command(verbs, "import", IMPORT_SUMMARY, IMPORT_EXAMPLE, import_data))
    add_process(add_command(verbs, "process", PROCESS_SUMMARY, "rewardlab data process logs/now/data.pkl", process))
    for verb in (info, verify, convert, show):
        verb.add_argument("path", metavar="DIR", type=path_name, help="directory of episodes, or one file")
    convert.add_argument("out", metavar="OUT", type=path_name, help="directory that does not exist yet")
    convert.add_argument(
        "--format", default="safetensors", help="safetensors, pickle, npy or lerobot (default: %(default)s)"
    )
    convert.add_argument(
        "--fps", type=positive, help="lerobot: frames a second, which episodes do not know (default: 10)"
    )
    convert.add_argument("--video", action="store_true", help="lerobot: videos, which are not exact, instead of PNG")
    show.add_argument(
        "--out", metavar="PNG", type=path_name, default="contact_sheet.png", help="(default: %(default)s)"
    )
    show.add_argument("--episodes", type=positive, default=8, help="rows (default: %(default)s)")
    show.add_argument("--frames", type=positive, default=8, help="columns (default: %(default)s)")
    show.add_argument("--camera", help="default: each episode's first camera")


def _info(arguments: argparse.Namespace) -> int:
    from rewardlab.data.inspection import summarize

    summary = summarize(arguments.path)

    def listed(counts: Counter[str]) -> str:
        return ", ".join(name if len(counts) == 1 else f"{name} ({n})" for name, n in counts.most_common()) or "none"

    def counted(name: str, success: int, failure: int, unsure: int = 0) -> str:
        words = f"  {name:8}   {success + failure + unsure:>9,}   success {success:,}   failure {failure:,}"
        return f"{words}   unsure {unsure:,}" if unsure else words

    say(f"{arguments.path}")
    say(counted("episodes", summary.success_episodes, summary.failure_episodes, summary.unsure_episodes))
    say(counted("frames", summary.success_frames, summary.failure_frames, summary.unsure_frames))
    if summary.without_picture:
        say(f"  {'':8}   {summary.without_picture:>9,}   more have no picture (data.collection.frames)")
    say(f"  size       {summary.bytes / 1e6:>9,.1f} MB")
    say(f"  cameras    {listed(summary.cameras)}")
    say(f"  task       {listed(summary.tasks)}")
    say(f"  policy     {listed(summary.policies)}")
    say(f"  format     {listed(summary.formats)}")
    if summary.copies:
        say(f"  copies     {summary.copies:>9,} episodes have the content of another one")
    for problem in summary.damaged:
        say(f"  damaged    {problem.sentence}")
    return 1 if summary.damaged else 0


def _verify(arguments: argparse.Namespace) -> int:
    from rewardlab.data.inspection import verify

    problems = verify(arguments.path)
    for problem in problems:
        say(problem.sentence)
    say(f"problems: {len(problems)}" if problems else f"every episode in {arguments.path} is whole")
    return 1 if problems else 0


def _convert(arguments: argparse.Namespace) -> None:
    from rich.progress import track

    from rewardlab.console import make_console
    from rewardlab.data.convert import LEROBOT, convert_episodes, export_lerobot
    from rewardlab.data.formats import FORMATS
    from rewardlab.errors import ConfigError
    from rewardlab.registry import unknown_name

    path, out, format, fps, video = (getattr(arguments, name) for name in ("path", "out", "format", "fps", "video"))
    if format not in (LEROBOT, *FORMATS):
        raise ConfigError(unknown_name("format", format, [LEROBOT, *FORMATS]))
    progress = partial(track, description="converting", transient=True, console=make_console())
    if format != LEROBOT:
        if fps is not None or video:
            raise ConfigError(f"--{'video' if video else 'fps'} is for --format {LEROBOT}; found --format {format}")
        say(f"{convert_episodes(path, out, format, progress)} episodes as {format} in {out}")
        return
    exported = export_lerobot(path, out, fps=fps, video=video, progress=progress)
    say(f"{exported.episodes} episodes as a LeRobotDataset v3.0 in {out}")
    if fps is None:
        say("note: episodes do not say how many frames a second they have; 10 are written (--fps)")
    for words, count in exported.without_place.items():
        say(f"note: left out, LeRobot has no place for it: {words} ({count} episodes)")


def _show(arguments: argparse.Namespace) -> None:
    from rewardlab.data.contact_sheet import draw_contact_sheet

    shown = {name: getattr(arguments, name) for name in ("episodes", "frames", "camera")}
    say(f"wrote {draw_contact_sheet(arguments.path, arguments.out, **shown)}")
