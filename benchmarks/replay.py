"""Space and speed of a replay buffer with one camera, against one whose rows hold each picture twice.

Prints kB per transition in memory, on disk and across processes (a pickled rollout of an environment worker), and the
rates of `add_rollout` and `sample` as ratios within this run.

.venv/bin/python benchmarks/replay.py
"""

import argparse
import itertools
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rewardlab.config import config_from_mapping
from rewardlab.data.packed_batch import PackedBatch
from rewardlab.data.replay import ReplayBuffer
from rewardlab.run_state import save_state
from rewardlab.types import Batch
from rewardlab.workers.env import EnvWorker, FrameRequest

ENVS, STEPS, BATCH = 16, 32, 256


class RowsWithImages:
    """A ring whose rows hold the pictures of both observations."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.next, self.size = capacity, 0, 0
        self.rows: Batch | None = None

    def add_rollout(self, rollout: Batch) -> None:
        batch = rollout.reshape(-1)
        if self.rows is None:
            self.rows = batch[:0].new_empty(torch.Size([self.capacity]))
        self.rows[(self.next + torch.arange(len(batch))) % self.capacity] = batch
        self.next = (self.next + len(batch)) % self.capacity
        self.size = min(self.size + len(batch), self.capacity)

    def sample(self, count: int, generator: torch.Generator) -> Batch:
        assert self.rows is not None
        return self.rows[: self.size][torch.randint(self.size, (count,), generator=generator)]


def collect(rollouts: int, side: int, classifier: bool) -> tuple[list[PackedBatch], float]:
    """Return rollouts of random actions, as environment workers send them, and the share of time that `fetch` takes."""
    settings = {"num_envs": ENVS, "max_episode_steps": 50, "image_size": [3, side, side], "obs_mode": "proprio+images"}
    config = config_from_mapping({"env": {"train": settings}}).env.train
    request = FrameRequest(tuple(config.cameras), stored=True) if classifier else None
    worker = EnvWorker(config, seed=0, frames=request, keep_next=True)
    worker.begin(0)
    found, packing, start = [], 0.0, time.perf_counter()
    for _ in range(rollouts):
        actions = torch.rand(STEPS, ENVS, *worker.spaces()[1].shape) * 2 - 1  # type: ignore[misc]
        for action in actions:
            worker.step(action.numpy())
        fetching = time.perf_counter()
        packed = worker.fetch()
        packing += time.perf_counter() - fetching
        packed.rows["action"] = actions
        found.append(packed)
    return found, packing / (time.perf_counter() - start)


def seconds(call: Callable[[], Any], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def on_disk(state: dict[str, Any]) -> int:
    with tempfile.TemporaryDirectory() as place:
        saved = save_state(Path(place) / "state", {"replay": state}, {})
        return sum(file.stat().st_size for file in saved.iterdir())


def measure(capacity: int, side: int, classifier: bool) -> None:
    packed, share = collect(capacity // (ENVS * STEPS) + 2, side, classifier)  # the ring wraps around
    plain = [rollout.unpack().exclude("frame") for rollout in packed]
    new, old = ReplayBuffer(capacity), RowsWithImages(capacity)
    for one, other in zip(packed, plain, strict=True):
        new.add_rollout(one)
        old.add_rollout(other)
    assert old.rows is not None
    steps, rows = ENVS * STEPS, old.rows
    third = side * side * 3 if classifier else 0  # the frames to score were apart from those of observations
    crossed = sum(len(pickle.dumps(rollout)) for rollout in packed) / steps / len(packed)
    crossed_before = sum(len(pickle.dumps(rollout)) for rollout in plain) / steps / len(plain) + third
    drawn = new.sample(1000, torch.Generator().manual_seed(0)).exclude("frame")
    assert bool((drawn == old.sample(1000, torch.Generator().manual_seed(0))).all())
    title = f"{side}x{side}" + (", and a classifier that scores stored frames again" if classifier else "")
    print(f"\n{title}: kB per transition, {capacity} transitions")
    print("| | pictures in rows | each picture once |\n|---|---|---|")
    print(f"| memory | {(rows.bytes() / capacity + third) / 1000:.1f} | {new.nbytes / capacity / 1000:.1f} |")
    disk = on_disk({"rows": rows.to_dict()}) / capacity + third
    print(f"| disk | {disk / 1000:.1f} | {on_disk(new.state_dict()) / capacity / 1000:.1f} |")
    print(f"| across processes | {crossed_before / 1000:.1f} | {crossed / 1000:.1f} |")
    generator = torch.Generator().manual_seed(0)
    draw = [seconds(lambda buffer=buffer: buffer.sample(BATCH, generator), 50) for buffer in (old, new)]  # type: ignore[misc]
    once, twice = itertools.cycle(packed), itertools.cycle(plain)
    add = [seconds(lambda: old.add_rollout(next(twice)), 15), seconds(lambda: new.add_rollout(next(once)), 15)]
    print(f"sample of {BATCH}: {draw[0] / draw[1]:.2f} times the rate ({BATCH / draw[1]:,.0f} transitions/s)")
    print(f"add_rollout: {add[0] / add[1]:.2f} times the rate ({steps / add[1]:,.0f} transitions/s)")
    print(f"stacking and packing rollouts: {share:.1%} of the time of an environment worker without a policy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, default=20_000)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for classifier in (False, True):
        measure(arguments.capacity, arguments.side, classifier)


if __name__ == "__main__":
    main()
