"""The main job on the built-in task, from nothing to something to look at."""

import sys
from itertools import chain, count
from pathlib import Path

from rich.console import Console

from rewardlab.config import load_config, text_override
from rewardlab.data import draw_contact_sheet
from rewardlab.pipelines import collect


def run(out: Path, *, seed: int) -> Path:
    """Stage 1 for now: episodes of the noisy expert, and a picture of them. Never overwrites an earlier demo."""
    console = Console()
    out = _unused(out)
    episodes = out / "episodes"
    console.print("[bold]Stage 1[/]: a clumsy gripper picks up cubes; every frame gets a label")
    cfg = load_config("tabletop_pickcube", [f"seed={seed}", text_override("data.collection.save_dir", str(episodes))])
    collect.run(cfg, console=console)
    sheet = draw_contact_sheet(episodes, out / "contact_sheet.png")
    console.print(f"frames and labels: {sheet}", highlight=False, soft_wrap=True, markup=False)
    command = sys.argv[0] if Path(sys.argv[0]).name == "rewardlab" else "rewardlab"
    console.print(f"look further: {command} data info {episodes}", highlight=False, soft_wrap=True, markup=False)
    return out


def _unused(place: Path) -> Path:
    """The path itself, or with the first number behind it under which nothing exists."""
    candidates = chain([place], (place.with_name(f"{place.name}_{n}") for n in count(2)))
    return next(path for path in candidates if not path.exists())
