"""What collecting costs on top of stepping and drawing, what an episode costs on disk, what a frame costs to read.

.venv/bin/python benchmarks/collection.py
"""

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from rewardlab.data import Episode, EpisodeWriter, read_episodes
from rewardlab.envs import make_vec_env
from rewardlab.envs.wrappers import DataCollectorWrapper

STEPS = 200  # four episodes an environment


def seconds_of_a_round(num_envs: int, directory: Path | None) -> float:
    """Step and draw every frame; with a directory, through the collector that also writes them."""
    env = make_vec_env("tabletop/PickCube", num_envs=num_envs)
    actions = env.action_space.sample()
    if directory is not None:
        env = DataCollectorWrapper(env, directory, image_size=(64, 64))
    env.reset(seed=0)
    start = time.perf_counter()
    for _ in range(STEPS):
        _, _, terminated, truncated, _ = env.step(actions)
        if directory is None:
            ended = np.flatnonzero(terminated | truncated)
            env.unwrapped.render_cameras(("base_camera",), (64, 64))
            if len(ended):
                env.unwrapped.render_cameras(("base_camera",), (64, 64), ended, final=True)
    env.close()  # with the collector: everything is on disk
    return time.perf_counter() - start


def overhead(table: Table) -> None:
    for num_envs in (64, 256):
        ratios = []
        for _ in range(5):
            with tempfile.TemporaryDirectory() as place:
                plain = seconds_of_a_round(num_envs, None)
                ratios.append(seconds_of_a_round(num_envs, Path(place)) / plain)
        measured = f"{median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"
        table.add_row(f"collecting / stepping and drawing, {num_envs} envs", measured, "at most 1.3x")


def storage(table: Table) -> None:
    with tempfile.TemporaryDirectory() as place:
        env = DataCollectorWrapper(make_vec_env("tabletop/PickCube", num_envs=16), place)
        env.reset(seed=0)
        for _ in range(50):
            env.step(env.action_space.sample())
        env.close()
        raw = written = 0
        for episode in read_episodes(place):
            raw += sum(column.nbytes for column in episode.load().columns.values())
            written += episode.path.stat().st_size
        table.add_row("bytes of an episode / its raw frames and numbers", f"{written / raw:.3f}x", "at most 1.05x")


def frame_access(table: Table) -> None:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        times = {}
        for length in (50, 5000):
            frames = rng.integers(0, 255, (length, 64, 64, 3), np.uint8)
            columns = {"observation.images.base_camera": frames, "success": np.zeros(length, bool)}
            EpisodeWriter(Path(place, str(length))).write(Episode.from_columns(columns))
            episode = read_episodes(Path(place, str(length)))[0]
            rounds = []
            for _ in range(20):
                start = time.perf_counter()
                for t in rng.integers(0, length, 50):
                    episode.frame("base_camera", int(t))
                rounds.append((time.perf_counter() - start) / 50)
            times[length] = median(rounds)
        text = f"{times[5000] / times[50]:.2f}x ({1e6 * times[50]:.0f} us a frame)"
        table.add_row("a random frame of 5,000 / a random frame of 50", text, "about 1x")


def main() -> None:
    table = Table("collection", "measured", "bar")
    overhead(table)
    storage(table)
    frame_access(table)
    Console().print(table)


if __name__ == "__main__":
    main()
