"""`rewardlab data process`: from a recording of a robot to episodes that a classifier is trained on."""

import argparse
import shlex
from typing import TYPE_CHECKING

from rewardlab.cli.command import CONFIG_HELP, path_name
from rewardlab.screen import say

if TYPE_CHECKING:
    from rewardlab.data.process import Processed

PROCESS_SUMMARY = "cut a recording of a robot into labelled episodes, without damaged and static ones"
NEXT = "rewardlab train-reward --data {}"
MOST_REASONS = 20  # that are printed


def add_process(command: argparse.ArgumentParser) -> None:
    """Give a parser the arguments of this command; the script in examples/ has the same."""
    command.add_argument("recording", metavar="PKL", type=path_name, help="a pickle with a list of transitions")
    command.add_argument(
        "--out", metavar="DIR", type=path_name, help="a new directory (default: collected_data beside the recording)"
    )
    command.add_argument(
        "--crop",
        action="append",
        default=[],
        metavar="CAMERA=TOP,LEFT,HEIGHT,WIDTH",
        help="what the classifier shall look at, in pixels of the recorded pictures or as fractions of them",
    )
    command.add_argument("--config", help=f"take the crops of its reward.model.crop: {CONFIG_HELP}")


def process(arguments: argparse.Namespace) -> None:
    from rewardlab.data.process import process_recording

    crops = _crops_of(arguments.config) | dict(_read_crop(text) for text in arguments.crop)
    result = process_recording(arguments.recording, arguments.out, crops=crops)
    _print(result)


def _crops_of(config: str | None) -> dict[str, list[float]]:
    if config is None:
        return {}
    from rewardlab.config import load_config

    found = load_config(config, check_files=False).reward.models[0].crop or {}
    return {camera: list(crop) for camera, crop in found.items()}


def _read_crop(text: str) -> tuple[str, list[float]]:
    from rewardlab.errors import ConfigError

    camera, _, numbers = text.rpartition("=")
    try:
        values = [float(number) for number in numbers.split(",")]
    except ValueError:
        values = []
    if not camera or len(values) != 4:
        raise ConfigError(f"--crop: found {text!r}, expected CAMERA=TOP,LEFT,HEIGHT,WIDTH")
    return camera, [int(value) if value > 1 and value.is_integer() else value for value in values]


def _print(result: "Processed") -> None:
    from rewardlab.data.process import DAMAGED, NO_PICTURES, STATIC

    episodes = result.kept.total() + len(result.dropped)
    say(f"{result.source}: {episodes} episodes of {result.transitions:,} transitions")
    kept, frames = result.kept, result.frames
    say(f"  {'episodes kept':17} {kept.total():>8,}   with success {kept[True]:,}   without {kept[False]:,}")
    say(f"  {'frames kept':17} {frames.total():>8,}   success {frames[True]:,}   failure {frames[False]:,}")
    for kind in (DAMAGED, STATIC, NO_PICTURES):
        count = sum(found == kind for found, _, _ in result.dropped)
        say(f"  {f'dropped, {kind}':17} {count:>8,}") if count or kind != NO_PICTURES else None
    for kind, place, reason in result.dropped[:MOST_REASONS]:
        say(f"    {place}, {kind}: {reason}")
    if len(result.dropped) > MOST_REASONS:
        say(f"    and {len(result.dropped) - MOST_REASONS} more")
    if result.gaps:
        say(f"note: {result.gaps:,} episodes end where the next transition begins in another state")
    for (camera, (top, left, height, width)), picture in zip(result.crops.items(), result.pictures, strict=True):
        say(f"crop of {camera}: {height}x{width} pixels from row {top}, column {left}; look at {picture}")
    for outcome in (True, False):
        if not result.frames[outcome]:
            say(f"warning: no frame is a {'success' if outcome else 'failure'}; a classifier needs both")
    say(f"wrote {result.directory}")
    say(f"next: {NEXT.format(shlex.quote(str(result.directory)))}")
