"""What two runs left on disk, compared to the bit: for exact_resume.py and kills.py."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from torch import Tensor

from rewardlab.data import read_episodes
from rewardlab.data.reader import episode_paths
from rewardlab.reports.history import read_history
from rewardlab.rewards.checkpoint import read_checkpoint
from rewardlab.run_state import STEP, load_state

# Small runs on the built-in task, of a second or two.
TABLETOP = [
    "env.train.num_envs=8",
    "env.eval.num_envs=4",
    "env.train.max_episode_steps=5",
    "env.train.image_size=[3,32,32]",
    "algorithm.ppo.rollout_steps=10",
    "algorithm.ppo.update_epochs=2",
    "actor.model.hidden_sizes=[16]",
    "actor.global_batch_size=40",
]


def digest(tensors: dict[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def episode_digests(directory: Path) -> Counter[str]:
    """Number of files with the same columns, by a digest of these; a file that cannot be read raises."""
    found: Counter[str] = Counter()
    there = directory.is_dir() and episode_paths(directory)
    for stored in read_episodes(directory) if there else []:
        episode = stored.load()
        content = hashlib.sha256()
        for name, column in sorted(episode.columns.items()):
            content.update(name.encode() + column.tobytes())
        found[content.hexdigest()[:16]] += 1
    return found


def checkpoints(run: Path) -> dict[str, str]:
    """A digest of the weights of each checkpoint; one that cannot be read raises."""
    found = {}
    for path in sorted(run.glob("checkpoints/*")) + sorted(run.glob("reward_models/*/*")):
        if path.name == "last" or path.name.startswith(STEP):
            state = load_state(path)[0]
            found[str(path.relative_to(run))] = digest(state["policy"] if "policy" in state else state["network"])
        elif not path.name.startswith("."):
            found[str(path.relative_to(run))] = digest(read_checkpoint(path).weights)
    return found


def history(run: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl without times."""
    path = run / "metrics.jsonl"
    rows = read_history(path) if path.exists() else []
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


def differences(run: Path, other: Path, data: Path | None = None, other_data: Path | None = None) -> list[str]:
    """Say in words what differs between the ends of two runs, and between the episodes that they collected."""
    found = []
    if history(run) != history(other):
        found.append("metrics")
    one, two = checkpoints(run), checkpoints(other)
    found += [name for name in sorted(one.keys() & two.keys()) if one[name] != two[name]]
    found += [f"no {name}" for name in sorted(two.keys() - one.keys())]
    if data is not None and other_data is not None:
        mine, its = episode_digests(data), episode_digests(other_data)
        if lost := its - mine:
            found.append(f"{lost.total()} episodes lost")
        if more := mine - its:
            found.append(f"{more.total()} episodes too many")
    return found
