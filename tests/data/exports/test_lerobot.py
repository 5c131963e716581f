"""Episodes as a LeRobotDataset: read back by a reader that knows the layout alone, and by the import."""

import io
import json
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rewardlab.cli import main
from rewardlab.data import Episode, EpisodeWriter, read_episodes
from rewardlab.data.convert import export_lerobot
from rewardlab.data.exports import lerobot as export
from rewardlab.data.imports.lerobot import LeRobotSource
from rewardlab.data.imports.picture_size import PictureSize
from rewardlab.data.imports.source import ImportOptions
from rewardlab.errors import DataError

CAMERA = "observation.images.base_camera"
SHIFTED = ("action", "reward", "env_reward", "intervention")  # columns of transitions: their row 0 is the reset


def make(length: int, seed: int, **options: Any) -> Episode:
    rng = np.random.default_rng(seed)
    success = np.arange(length) >= length - 2 - seed % 2
    columns = {
        "observation.state": rng.normal(size=(length, 5)).astype(np.float32),
        "observation.desired_goal": rng.normal(size=(length, 3)).astype(np.float32),
        CAMERA: rng.integers(0, 256, (length, 8, 10, 3), dtype=np.uint8),
        "observation.images.wrist": rng.integers(0, 256, (length, 6, 4, 3), dtype=np.uint8),
        "action": rng.normal(size=(length, 4)).astype(np.float32),
        "reward": rng.normal(size=length).astype(np.float32),
        "env_reward": rng.normal(size=length).astype(np.float32),
        "terminated": np.zeros(length, bool),
        "truncated": np.arange(length) == length - 1,
        "success": success if seed % 3 else ~success,  # also in the reset frame
        "unsure": np.zeros(length, bool),
        "grasp": rng.random(length) < 0.5,
        "intervention": rng.random(length) < 0.5,
    }
    columns["unsure"][1] = not columns["success"][1]
    for name in SHIFTED:
        columns[name][0] = 0
    facts = {"task": f"task {seed % 2}", "seed": seed, "policy": "expert", **options}
    return Episode.from_columns(columns, **facts)


@pytest.fixture
def data(tmp_path):
    writer = EpisodeWriter(tmp_path / "episodes", durable=False)
    for seed in range(5):
        writer.write(make(5 + seed, seed))
    return tmp_path / "episodes"


def read_set(root: Path) -> list[dict[str, Any]]:
    """Read a LeRobotDataset v3.0 as its package does, with nothing of rewardlab: rows by episode, in their order."""
    info = json.loads((root / "meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0"
    tasks = pq.read_table(root / "meta/tasks.parquet")
    pandas = json.loads(tasks.schema.metadata[b"pandas"])
    (index,) = pandas["index_columns"]  # a reader asks for tasks.iloc[task_index].name
    names = tasks[index].to_pylist()
    assert tasks["task_index"].to_pylist() == list(range(info["total_tasks"]))
    tables = [pq.read_table(path) for path in sorted((root / "meta/episodes").glob("*/*.parquet"))]
    listed = [row for table in tables for row in table.to_pylist()]
    assert len(listed) == info["total_episodes"]
    files = sorted((root / "data").glob("*/*.parquet"))
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    assert [row["index"] for row in rows] == list(range(info["total_frames"]))
    episodes = []
    for number, entry in enumerate(listed):
        path = info["data_path"].format(chunk_index=entry["data/chunk_index"], file_index=entry["data/file_index"])
        of_file = pq.read_table(root / path)["episode_index"].to_pylist()
        assert number in of_file
        own = rows[entry["dataset_from_index"] : entry["dataset_to_index"]]
        assert [row["episode_index"] for row in own] == [number] * entry["length"]
        assert [row["frame_index"] for row in own] == list(range(entry["length"]))
        np.testing.assert_allclose([row["timestamp"] * info["fps"] for row in own], range(entry["length"]), atol=1e-4)
        assert {names[row["task_index"]] for row in own} == set(entry["tasks"])
        episode: dict[str, Any] = {"task": entry["tasks"][0]}
        for key, feature in info["features"].items():
            if feature["dtype"] == "image":
                cells = [Image.open(io.BytesIO(row[key]["bytes"])) for row in own]
                episode[key] = np.stack([np.asarray(cell) for cell in cells])
            elif feature["dtype"] == "video":
                place = {name: entry[f"videos/{key}/{name}"] for name in ("chunk_index", "file_index")}
                video = root / info["video_path"].format(video_key=key, **place)
                times = [entry[f"videos/{key}/from_timestamp"] + row["timestamp"] for row in own]
                episode[key] = frames_at(video, times)
            else:
                episode[key] = np.array([row[key] for row in own], feature["dtype"])
                if feature["shape"] != [1]:
                    assert list(episode[key].shape[1:]) == feature["shape"]
        episodes.append(episode)
    return episodes


def frames_at(path: Path, times: list[float]) -> np.ndarray:
    with av.open(str(path)) as container:
        decoded = {frame.time: frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)}
    nearest = [min(decoded, key=lambda time: abs(time - wanted)) for wanted in times]
    assert all(abs(found - wanted) < 1e-4 for found, wanted in zip(nearest, times, strict=True))
    return np.stack([decoded[time] for time in nearest])


def test_a_reader_of_the_layout_finds_every_frame_label_and_episode(data, tmp_path):
    exported = export_lerobot(data, tmp_path / "set", fps=20)
    assert exported.episodes == 5
    assert not exported.without_place
    for stored, found in zip(read_episodes(data), read_set(tmp_path / "set"), strict=True):
        columns, last = stored.load().columns, -1
        assert found["task"] == stored.facts.task
        for name in ("observation.state", "observation.desired_goal", CAMERA, "observation.images.wrist"):
            np.testing.assert_array_equal(found[name], columns[name])
        for name in ("success", "unsure", "grasp"):
            np.testing.assert_array_equal(found[name], columns[name])
        named = {
            "action": "action",
            "reward": "next.reward",
            "env_reward": "next.env_reward",
            "success": "next.success",
        }
        for name, theirs in named.items():  # what was done in a frame, and what came of it
            np.testing.assert_array_equal(found[theirs][:last], columns[name][1:])
        assert found["next.done"][:-2].tolist() == [False] * (stored.length - 2)
        assert found["next.done"][-2:].all()
        assert found["next.truncated"][-1]


@pytest.mark.parametrize("per_file", [1, 100])
def test_importing_it_gives_the_same_episodes(data, tmp_path, monkeypatch, per_file):
    monkeypatch.setattr(export, "DATA_MEGABYTES", per_file / 2**20)  # a byte: each episode into a new file
    export_lerobot(data, tmp_path / "set")
    source = LeRobotSource(tmp_path / "set", ImportOptions(size=PictureSize(original=True)))
    for stored, imported in zip(read_episodes(data), source.episodes(frozenset()), strict=True):
        episode = stored.load()
        assert imported.episode.facts == episode.facts
        for name, values in episode.columns.items():
            np.testing.assert_array_equal(imported.episode.columns.get(name, np.zeros_like(values)), values)


def test_videos_hold_all_episodes_one_after_another(tmp_path):
    writer = EpisodeWriter(tmp_path / "episodes", durable=False)
    for seed in range(3):
        columns = make(6, seed).columns
        greys = 40 * seed + 5 * np.arange(6, dtype=np.uint8)
        for name, sides in ((CAMERA, (32, 48)), ("observation.images.wrist", (16, 16))):
            columns[name] = np.broadcast_to(greys[:, None, None, None], (6, *sides, 3)).copy()
        writer.write(Episode.from_columns(columns))
    export_lerobot(tmp_path / "episodes", tmp_path / "set", video=True)
    assert len(list((tmp_path / "set").rglob("*.mp4"))) == 2  # one a camera
    for stored, found in zip(read_episodes(tmp_path / "episodes"), read_set(tmp_path / "set"), strict=True):
        for name in (CAMERA, "observation.images.wrist"):
            np.testing.assert_allclose(found[name].mean((1, 2, 3)), stored.load().columns[name].mean((1, 2, 3)), atol=2)


def test_statistics_are_those_of_the_frames(data, tmp_path):
    export_lerobot(data, tmp_path / "set")
    stats = json.loads((tmp_path / "set/meta/stats.json").read_text())
    found = read_set(tmp_path / "set")
    states = np.concatenate([episode["observation.state"] for episode in found]).astype(float)
    frames = np.concatenate([episode[CAMERA] for episode in found]) / 255
    np.testing.assert_allclose(stats["observation.state"]["mean"], states.mean(0), atol=1e-6)
    np.testing.assert_allclose(stats["observation.state"]["std"], states.std(0), atol=1e-6)
    np.testing.assert_allclose(stats["observation.state"]["max"], states.max(0))
    np.testing.assert_allclose(np.squeeze(stats[CAMERA]["mean"]), frames.mean((0, 1, 2)), atol=1e-6)
    assert np.shape(stats[CAMERA]["q99"]) == (3, 1, 1)
    assert stats["next.reward"]["count"] == [len(states)]
    row = pq.read_table(tmp_path / "set/meta/episodes/chunk-000/file-000.parquet").to_pylist()[1]
    np.testing.assert_allclose(row["stats/action/min"], found[1]["action"].min(0))


def test_what_has_no_place_is_said(tmp_path):
    episode = make(5, 1)
    episode.columns["action"][0] = 1
    episode.columns["heat"] = np.zeros((5, 4, 4), np.float32)
    EpisodeWriter(tmp_path / "episodes").write(Episode.from_columns(episode.columns))
    without_place = export_lerobot(tmp_path / "episodes", tmp_path / "set").without_place
    assert without_place == {"a action in the reset frame, which no action led to": 1, "column heat [4, 4]": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda columns: columns.pop("observation.state"), "'observation.state' is missing"),
        (
            lambda columns: columns.update({"action": columns["action"][:, :2]}),
            r"'action' is float32 \[2\], in the first",
        ),
        (lambda columns: columns.update({CAMERA: columns[CAMERA][:, :4]}), r"is uint8 \[4, 10, 3\], in the first"),
    ],
)
def test_episodes_that_differ_are_named(data, tmp_path, change, words):
    columns = make(5, 1).columns
    change(columns)
    EpisodeWriter(data).write(Episode.from_columns(columns))
    with pytest.raises(DataError, match=words):
        export_lerobot(data, tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_episodes_with_pictures_of_some_frames_are_refused(tmp_path):
    columns = make(5, 1).columns
    columns["frame_rows"] = np.array([0, 4])
    for name in (CAMERA, "observation.images.wrist"):
        columns[name] = columns[name][[0, 4]]
    EpisodeWriter(tmp_path / "episodes").write(Episode.from_columns(columns))
    with pytest.raises(DataError, match="2 of its 5 frames have pictures"):
        export_lerobot(tmp_path / "episodes", tmp_path / "set")


def test_on_the_command_line(data, tmp_path, capsys):
    assert main(["data", "convert", str(data), str(tmp_path / "set"), "--format", "lerobot"]) == 0
    assert "5 episodes as a LeRobotDataset v3.0" in capsys.readouterr().out
    assert main(["data", "convert", str(data), str(tmp_path / "other"), "--format", "lerbot"]) != 0
    assert "Did you mean 'lerobot'" in capsys.readouterr().err
    assert main(["data", "convert", str(data), str(tmp_path / "other"), "--fps", "5"]) != 0
    assert "--fps is for --format lerobot" in capsys.readouterr().err


def test_videos_need_even_sides(tmp_path):
    columns = make(5, 1).columns
    columns[CAMERA] = columns[CAMERA][:, :7]
    EpisodeWriter(tmp_path / "episodes").write(Episode.from_columns(columns))
    with pytest.raises(DataError, match="pictures of 7x10; videos need even sides"):
        export_lerobot(tmp_path / "episodes", tmp_path / "set", video=True)


def test_an_episode_of_one_frame(tmp_path):
    columns = {name: values[:1].copy() for name, values in make(5, 1).columns.items()}
    columns["truncated"][0] = True
    EpisodeWriter(tmp_path / "episodes").write(Episode.from_columns(columns))
    export_lerobot(tmp_path / "episodes", tmp_path / "set")
    source = LeRobotSource(tmp_path / "set", ImportOptions(size=PictureSize(original=True)))
    (imported,) = source.episodes(frozenset())
    for name, values in columns.items():
        np.testing.assert_array_equal(imported.episode.columns.get(name, np.zeros_like(values)), values)
