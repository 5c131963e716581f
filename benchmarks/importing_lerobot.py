"""How fast LeRobotDatasets are imported, and how much memory it takes.

    .venv/bin/python benchmarks/importing_lerobot.py speed [--size 480x640] [--codec libx264] [--episodes 6]
    .venv/bin/python benchmarks/importing_lerobot.py memory [--size 480x640]

`speed` makes a LeRobotDataset with videos and imports it, in turn with two loops over its videos in bare PyAV: one
that decodes every frame, and one that turns it into an array as well. Lines have frames a second of wall time, and CPU
milliseconds a frame, which say the same on a machine that is busy with other things. `memory` imports data sets
of growing size, each in a process of its own, and prints the peak of its memory.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import av
import numpy as np

from rewardlab.data import Episode
from rewardlab.data.exports import lerobot_pictures
from rewardlab.data.exports.lerobot import LeRobotWriter
from rewardlab.data.imports.picture_size import PictureSize
from rewardlab.data.imports.run_import import import_recording
from rewardlab.data.imports.source import ImportOptions

FRAMES, FPS = 300, 30


def scene(size: tuple[int, int], seed: int) -> np.ndarray:
    """Return the pictures of an episode: a background that moves, and a square on it that moves faster."""
    height, width = size
    rng = np.random.default_rng(0)
    texture = rng.integers(0, 256, (height // 8 + 12, width // 8 + 12, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    frames = np.empty((FRAMES, height, width, 3), np.uint8)
    for t, frame in enumerate(frames):
        down, right = (int(40 + 35 * np.sin(t / 20 + shift)) for shift in (seed, seed + 1.5))
        frame[:] = texture[down : down + height, right : right + width]
        top, left = 3 * t % (height - 20), 5 * t % (width - 20)
        frame[top : top + 20, left : left + 20] = (255, 0, 0)
    return frames


def make(root: Path, size: tuple[int, int], codec: str, episodes: int) -> None:
    lerobot_pictures.CODEC = codec
    writer = LeRobotWriter(root, fps=FPS, video=True)
    for seed in range(episodes):
        columns = {
            "observation.images.front": scene(size, seed),
            "observation.state": np.zeros((FRAMES, 6), np.float32),
            "action": np.zeros((FRAMES, 6), np.float32),
            "success": np.arange(FRAMES) > FRAMES - 20,
        }
        writer.write(Episode.from_columns(columns))
    writer.close()


def decode(root: Path, *, arrays: bool) -> int:
    frames = 0
    for path in sorted(root.rglob("*.mp4")):
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            for frame in container.decode(stream):
                frames += 1
                if arrays:
                    frame.to_ndarray(format="rgb24")
    return frames


def imported(root: Path, *, original: bool) -> int:
    with tempfile.TemporaryDirectory(dir=root.parent) as out:
        options = ImportOptions(size=PictureSize(original=original))
        return import_recording(root, Path(out, "episodes"), options).summary.frames


def compare(size: tuple[int, int], codec: str, episodes: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "set")
        make(root, size, codec, episodes)
        ways: dict[str, Callable[[], int]] = {
            "PyAV, decoded": lambda: decode(root, arrays=False),
            "PyAV, as arrays": lambda: decode(root, arrays=True),
            "import": lambda: imported(root, original=False),
            "import --size original": lambda: imported(root, original=True),
        }
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        imported(root, original=False)  # imports modules
        for _ in range(rounds):
            for name, way in ways.items():
                wall, cpu = time.perf_counter(), sum(os.times()[:2])
                frames = way()
                seconds[name].append((time.perf_counter() - wall, sum(os.times()[:2]) - cpu))
        print(f"{episodes} episodes of {FRAMES} frames of {size[0]}x{size[1]}, {codec}")
        print("| | frames/s | CPU ms a frame | of decoding, wall | of decoding, CPU |\n|---|---|---|---|---|")
        base = [median(part) for part in zip(*seconds["PyAV, decoded"], strict=True)]
        for name, times in seconds.items():
            wall, cpu = (median(part) for part in zip(*times, strict=True))
            row = f"| {name} | {frames / wall:,.0f} | {1000 * cpu / frames:.2f} |"
            print(f"{row} {base[0] / wall:.2f}x | {base[1] / cpu:.2f}x |", flush=True)


def memory(size: tuple[int, int]) -> None:
    print("| frames | peak memory of the import |\n|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for episodes in (4, 16, 64):
            root = Path(place, f"set{episodes}")
            make(root, size, "libx264", episodes)
            done = subprocess.run(
                [sys.executable, __file__, "peak", str(root)], capture_output=True, text=True, check=True
            )
            print(f"| {episodes * FRAMES:,} | {done.stdout.strip()} MB |", flush=True)


def peak(root: Path) -> None:
    imported(root, original=False)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory", "peak"))
    parser.add_argument("root", nargs="?", type=Path)
    parser.add_argument("--size", default="480x640")
    parser.add_argument("--codec", default="libx264", help="libx264, or libsvtav1, which lerobot takes by default")
    parser.add_argument("--episodes", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    height, _, width = arguments.size.partition("x")
    size = int(height), int(width)
    if arguments.what == "speed":
        compare(size, arguments.codec, arguments.episodes, arguments.rounds)
    elif arguments.what == "memory":
        memory(size)
    else:
        peak(arguments.root)


if __name__ == "__main__":
    main()
