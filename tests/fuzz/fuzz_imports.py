"""Data sets of other tools, damaged: bytes of any of their files, and what their metadata say."""

import json
import random
import shutil
from pathlib import Path

import h5py
import numpy as np
from fuzzing import Case, Target, mutate_bytes, mutate_tree
from valid_files import SIZE, write_episodes

from rewardlab.data.convert import export_lerobot

SETS = ("pictures", "videos", "demo.hdf5")
OPTIONS = ("--every=2", "--align=next", "--unsure-seconds=1", "--camera=base_camera", "--size=8x8", "--camera=x")


def _prepare(valid: Path) -> None:
    write_episodes(valid / "episodes", count=3)
    export_lerobot(valid / "episodes", valid / "pictures")
    export_lerobot(valid / "episodes", valid / "videos", video=True)
    with h5py.File(valid / "demo.hdf5", "w") as file:
        for number in range(2):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"], demo["rewards"] = np.ones((4, 2)), np.arange(4) // 3
            demo["obs/agentview_image"] = np.zeros((4, SIZE, SIZE, 3), np.uint8)


def _draw(rng: random.Random, valid: Path, work: Path) -> Case:
    name = rng.choice(SETS)
    place = work / name
    if (valid / name).is_dir():
        shutil.copytree(valid / name, place)
    else:
        shutil.copy(valid / name, place)
    files = sorted(path for path in place.rglob("*") if path.is_file()) or [place]
    for file in rng.sample(files, min(len(files), rng.choice((1, 1, 2)))):
        content = file.read_bytes()
        if file.suffix == ".json" and rng.random() < 0.8:
            file.write_text(json.dumps(mutate_tree(rng, json.loads(content))))
        else:
            file.write_bytes(mutate_bytes(rng, content, content))
    options = [rng.choice(OPTIONS)] if rng.random() < 0.3 else []
    return Case(["data", "import", name, "out", *options])


TARGET = Target("imports", _prepare, _draw)
