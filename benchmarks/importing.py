"""Imports videos made on the fly: peak memory of a long one against a short one, and speed against bare PyAV.

    python benchmarks/importing.py --minutes 1 10 --size 480 640

Each import runs in a process of its own, which reports the most memory it ever had. "bare" decodes the same file to RGB
arrays in the same run and does nothing with them; "size original" stores frames as they are, "reduced" as by default.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import av
import numpy as np

RATE = 30


def make_video(path: Path, minutes: float, size: tuple[int, int]) -> int:
    """Write a moving pattern with some noise, as a camera sees it; return the number of frames."""
    rng = np.random.default_rng(0)
    height, width = size
    noise = rng.integers(0, 24, (8, height, width, 3), dtype=np.uint8)
    pattern = rng.integers(0, 200, (height // 16, 2 * width // 16, 3), dtype=np.uint8).repeat(16, 0).repeat(16, 1)
    frames = round(minutes * 60 * RATE)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for number in range(frames):
            left = number % width
            frame = pattern[:, left : left + width] + noise[number % 8]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode())
    return frames


def measure(what: str, video: Path, out: Path) -> None:
    """Do one thing, and print its seconds, of the clock and of the CPU, and the most memory it ever had, in MB."""
    from rewardlab.data.imports.picture_size import PictureSize
    from rewardlab.data.imports.run_import import import_recording
    from rewardlab.data.imports.source import ImportOptions

    start, before = time.perf_counter(), time.process_time()
    if what == "bare":
        with av.open(str(video)) as container:
            container.streams.video[0].thread_type = "AUTO"
            for frame in container.decode(video=0):
                frame.to_ndarray(format="rgb24")
    else:
        import_recording(video, out, ImportOptions(size=PictureSize(original=what == "original")))
    seconds, cpu = time.perf_counter() - start, time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{seconds} {cpu} {memory}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--size", type=int, nargs=2, default=[480, 640], metavar=("H", "W"))
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        what, video, out = arguments.measure
        measure(what, Path(video), Path(out))
        return
    print(f"{'video':>18} {'':>9} {'seconds':>8} {'of bare':>8} {'CPU s':>8} {'of bare':>8} {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as place:
        for minutes in arguments.minutes:
            video = Path(place, f"{minutes:g}.mp4")
            frames = make_video(video, minutes, tuple(arguments.size))
            bare: tuple[float, float] | None = None
            for what in ("bare", "reduced", "original"):
                out = Path(place, f"{what}{minutes:g}")
                command = [sys.executable, __file__, "--measure", what, str(video), str(out)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds, cpu, memory = map(float, done.stdout.split())
                bare = bare or (seconds, cpu)
                speed = f"{seconds:8.1f} {bare[0] / seconds:8.2f} {cpu:8.1f} {bare[1] / cpu:8.2f}"
                print(f"{f'{minutes:g} min, {frames:,}':>18} {what:>9} {speed} {memory:8.0f}")


if __name__ == "__main__":
    main()
