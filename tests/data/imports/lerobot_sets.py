"""LeRobotDatasets in the layout of the lerobot package, made from the layout alone: nothing of rewardlab is used."""

import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

FPS = 10
HEIGHT, WIDTH = 48, 64
VIDEO, IMAGE = "observation.images.front", "observation.images.wrist"
INDEX = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}


def grey(number: int, row: int) -> int:
    """The level of the picture of a row, which tells episodes and rows apart after lossy encoding."""
    return 20 + 8 * row + 3 * number


def frame(number: int, row: int) -> np.ndarray:
    return np.full((HEIGHT, WIDTH, 3), grey(number, row), np.uint8)


def features(**more: dict[str, Any]) -> dict[str, Any]:
    picture = {"shape": [HEIGHT, WIDTH, 3], "names": ["height", "width", "channels"]}
    return {
        VIDEO: {"dtype": "video", **picture, "info": {"video.fps": FPS, "is_depth_map": False}},
        IMAGE: {"dtype": "image", **picture},
        "observation.images.depth": {"dtype": "video", **picture, "info": {"is_depth_map": True}},
        "observation.state": {"dtype": "float32", "shape": [3], "names": None},
        "action": {"dtype": "float32", "shape": [2], "names": None},
        "next.reward": {"dtype": "float32", "shape": [1], "names": None},
        "next.done": {"dtype": "bool", "shape": [1], "names": None},
        **more,
        **{name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in INDEX.items()},
    }


def rows_of(number: int, rewards: list[float], first: int) -> dict[str, Any]:
    """The columns of an episode, as lists."""
    rows = range(len(rewards))

    def png(row: int) -> dict[str, Any]:
        content = io.BytesIO()
        Image.fromarray(frame(number, row)).save(content, "png")
        return {"bytes": content.getvalue(), "path": f"frame-{row:06d}.png"}

    return {
        IMAGE: pa.array([png(row) for row in rows]),
        "observation.state": pa.array([[float(number), float(row), 0.5] for row in rows], pa.list_(pa.float32(), 3)),
        "action": pa.array([[row + 1.0, number + 1.0] for row in rows], pa.list_(pa.float32(), 2)),
        "next.reward": pa.array(rewards, pa.float32()),
        "next.done": pa.array([row == rows[-1] for row in rows]),
        "timestamp": pa.array([row / FPS for row in rows], pa.float32()),
        "frame_index": pa.array(rows, pa.int64()),
        "episode_index": pa.array([number] * len(rows), pa.int64()),
        "index": pa.array([first + row for row in rows], pa.int64()),
        "task_index": pa.array([number % 2] * len(rows), pa.int64()),
    }


def write_video(path: Path, frames: list[np.ndarray], codec: str = "libx264") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=FPS, options={"g": "2", "crf": "30"})
        stream.pix_fmt, stream.height, stream.width = "yuv420p", *frames[0].shape[:2]
        for number, pixels in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            picture.pts, picture.time_base = number, Fraction(1, FPS)
            container.mux(stream.encode(picture))
        container.mux(stream.encode())


def write_info(root: Path, version: str, episodes: list[list[float]], listed: dict[str, Any], **more: Any) -> None:
    info = {
        "codebase_version": version,
        "fps": FPS,
        "features": listed,
        "total_episodes": len(episodes),
        "total_frames": sum(map(len, episodes)),
        "total_tasks": 2,
        "chunks_size": 1000,
        "robot_type": "so100",
        "splits": {"train": f"0:{len(episodes)}"},
        **more,
    }
    (root / "meta").mkdir(parents=True, exist_ok=True)
    (root / "meta/info.json").write_text(json.dumps(info))


def write_v3(root: Path, episodes: list[list[float]], **columns: list[list[Any]]) -> Path:
    """Write episodes with the given rewards, three to a file; `columns` are further ones, by episode."""
    extra = {name: {"dtype": "bool", "shape": [1], "names": None} for name in columns}
    paths = {
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    write_info(root, "v3.0", episodes, features(**extra), **paths)
    table = [{"task_index": 0, "task": "push the cube"}, {"task_index": 1, "task": "lift the cube"}]
    pandas = {"index_columns": ["task"], "columns": [], "column_indexes": [], "pandas_version": "2.2.0"}
    tasks = pa.Table.from_pylist(table).replace_schema_metadata({"pandas": json.dumps(pandas)})
    pq.write_table(tasks, root / "meta/tasks.parquet")
    listed, first = [], 0
    for file in range(0, len(episodes), 3):
        place = f"chunk-000/file-{file // 3:03d}"
        (root / "data/chunk-000").mkdir(parents=True, exist_ok=True)
        writer, frames = None, []
        for number in range(file, min(file + 3, len(episodes))):
            rewards = episodes[number]
            rows = rows_of(number, rewards, first)
            rows |= {name: pa.array(values[number]) for name, values in columns.items()}
            data = pa.table(rows)
            writer = writer or pq.ParquetWriter(root / f"data/{place}.parquet", data.schema)
            writer.write_table(data)
            start = len(frames) / FPS
            frames += [frame(number, row) for row in range(len(rewards))]
            listed.append(
                {
                    "episode_index": number,
                    "tasks": [table[number % 2]["task"]],
                    "length": len(rewards),
                    "data/chunk_index": 0,
                    "data/file_index": file // 3,
                    "dataset_from_index": first,
                    "dataset_to_index": first + len(rewards),
                    f"videos/{VIDEO}/chunk_index": 0,
                    f"videos/{VIDEO}/file_index": file // 3,
                    f"videos/{VIDEO}/from_timestamp": start,
                    f"videos/{VIDEO}/to_timestamp": len(frames) / FPS,
                    "stats/action/min": [0.0, 0.0],
                }
            )
            first += len(rewards)
        writer.close()
        write_video(root / f"videos/{VIDEO}/{place}.mp4", frames)
    write_episodes(root, listed)
    return root


def write_episodes(root: Path, listed: list[dict[str, Any]]) -> None:
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(listed), path)


def write_v21(root: Path, episodes: list[list[float]]) -> Path:
    paths = {
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "total_videos": len(episodes),
    }
    write_info(root, "v2.1", episodes, features(), **paths)
    lines, first = [], 0
    (root / "data/chunk-000").mkdir(parents=True, exist_ok=True)
    for number, rewards in enumerate(episodes):
        pq.write_table(pa.table(rows_of(number, rewards, first)), root / f"data/chunk-000/episode_{number:06d}.parquet")
        frames = [frame(number, row) for row in range(len(rewards))]
        write_video(root / f"videos/chunk-000/{VIDEO}/episode_{number:06d}.mp4", frames)
        lines.append({"episode_index": number, "tasks": ["push the cube"], "length": len(rewards)})
        first += len(rewards)
    (root / "meta/episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tasks = '{"task_index": 0, "task": "push the cube"}\n{"task_index": 1, "task": "lift the cube"}\n'
    (root / "meta/tasks.jsonl").write_text(tasks)
    return root
