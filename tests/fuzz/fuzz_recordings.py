"""Recordings of robots, damaged: bytes anywhere, keys and values of transitions, and crops that make no sense."""

import copy
import pickle
import random
from pathlib import Path
from typing import Any

from fuzzing import Case, Target, mutate_bytes, mutate_tree, nasty
from valid_files import write_episodes

from rewardlab.data import read_episodes
from rewardlab.data.transition_file import RECORDING, RecordingWriter

CROPS = ("base_camera=0,0,8,8", "base_camera=0,0,1,1", "side=0,0,8,8", "base_camera=1e400,nan,-1,8", "=1,2,3,4", "x")


def _prepare(valid: Path) -> None:
    write_episodes(valid / "episodes", count=3)
    writer = RecordingWriter(valid)
    for stored in read_episodes(valid / "episodes"):
        writer.write(stored.load())
    writer.close()


def _draw(rng: random.Random, valid: Path, work: Path) -> Case:
    content = (valid / RECORDING).read_bytes()
    if rng.random() < 0.5:
        content = mutate_bytes(rng, content, content)
    else:
        content = pickle.dumps(_mutated(rng, pickle.loads(content)), protocol=rng.choice((2, 3, 4)))
    (work / RECORDING).write_bytes(content)
    crop = ["--crop", rng.choice(CROPS)] if rng.random() < 0.2 else []
    return Case(["data", "process", RECORDING, *crop])


def _mutated(rng: random.Random, steps: list[Any]) -> Any:
    steps = copy.deepcopy(steps)
    for _ in range(rng.choice((1, 1, 3))):
        number = rng.randrange(len(steps))
        if isinstance(steps[number], dict) and rng.random() < 0.8:
            steps[number] = mutate_tree(rng, steps[number])
        else:
            steps[number] = nasty(rng)
    return steps if rng.random() < 0.95 else nasty(rng)


TARGET = Target("recordings", _prepare, _draw)
