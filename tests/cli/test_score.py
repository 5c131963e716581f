"""`rewardlab score` as a user types it."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rewardlab.cli import main
from rewardlab.data import read_episodes
from rewardlab.rewards import ResNetRewardModel, load_reward_model, load_success_classifier


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    model = ResNetRewardModel(arch="resnet10", width=8, hidden_dim=16, image_size=(3, 32, 32))
    model.network.train()(torch.randint(0, 255, (16, 32, 32, 3), dtype=torch.uint8))
    model.network.eval()
    model.temperature, model.threshold = 0.1, 0.09
    return str(model.save(tmp_path_factory.mktemp("model") / "best_model"))


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory, write_toy_episodes: Callable[..., Path]) -> Path:
    return write_toy_episodes(tmp_path_factory.mktemp("toy") / "data", count=4, length=12)


def expected(checkpoint: str, episodes: Path) -> list[dict[str, object]]:
    model = load_reward_model(checkpoint)
    words = ("failure", "success")
    rows: list[dict[str, object]] = []
    for episode in read_episodes(episodes):
        frames = episode.load().columns["observation.images.base_camera"]
        probability = model.probabilities(frames).tolist()
        for t, (p, label) in enumerate(zip(probability, episode.labels(), strict=True)):
            verdict = words[int(p > np.float32(0.09))]
            rows.append(
                {
                    "file": str(episode.path),
                    "frame": t,
                    "probability": p,
                    "verdict": verdict,
                    "label": words[int(label)],
                }
            )
    return rows


def test_json_and_csv_have_every_frame_with_its_exact_probability(
    checkpoint: str, episodes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = expected(checkpoint, episodes)
    assert {row["verdict"] for row in wanted} == {"success", "failure"}
    assert main(["score", checkpoint, str(episodes), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == wanted
    out = tmp_path / "new" / "scores.csv"
    assert main(["score", checkpoint, str(episodes), "--format", "csv", "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert rows == [{key: str(value) for key, value in row.items()} for row in wanted]
    assert [path.name for path in out.parent.iterdir()] == ["scores.csv"]


def test_the_table_has_a_line_for_each_episode_and_counts_agreement(
    checkpoint: str, episodes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = expected(checkpoint, episodes)
    assert main(["score", checkpoint, str(episodes)]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["frames", "success", "first", "last", "p", "last", "right", "file"]
    for number, line in enumerate(lines[:4]):
        mine = rows[12 * number : 12 * number + 12]
        called = [row["frame"] for row in mine if row["verdict"] == "success"]
        right = sum(row["verdict"] == row["label"] for row in mine)
        cells = line.split()
        assert cells[:5] == [
            "12",
            str(len(called)),
            str(called[0]) if called else "-",
            f"{mine[-1]['probability']:.4f}",
            mine[-1]["verdict"],
        ]
        assert float(cells[5]) == pytest.approx(100 * right / 12, abs=0.1)
        assert cells[-1] == mine[0]["file"]
    false = sum(row["verdict"] == "success" and row["label"] == "failure" for row in rows)
    missed = sum(row["verdict"] == "failure" and row["label"] == "success" for row in rows)
    assert "4 episodes, threshold 0.09 of the checkpoint." in lines
    assert (
        f"of 48 labelled frames judged rightly; called success: {false} of 40 failures, missed: {missed} of 8 "
        in (lines[-1])
    )


def test_every_frame_on_request_and_another_threshold(
    checkpoint: str, episodes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", checkpoint, str(episodes), "--frames", "--threshold", "0.999999"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 48 + 3
    assert all(line.split()[2] == "failure" for line in lines[1:49])
    assert "4 episodes, threshold 1." in lines[-2]


def test_pictures_have_no_label(checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (32, 32), "red").save(tmp_path / "a.png")
    assert main(["score", checkpoint, str(tmp_path / "a.png"), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["frame"], row["label"]) == (0, None)
    assert main(["score", checkpoint, str(tmp_path / "a.png")]) == 0
    assert "1 picture, threshold" in capsys.readouterr().out


def test_onnx_runtime_scores_alike(
    checkpoint: str, episodes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {}
    for backend in ("torch", "onnx"):
        assert main(["score", checkpoint, str(episodes), "--format", "json", "--backend", backend]) == 0
        scores[backend] = [row["probability"] for row in json.loads(capsys.readouterr().out)]
    assert scores["onnx"] == pytest.approx(scores["torch"], rel=0, abs=1e-5)
    monkeypatch.setattr("rewardlab.models.onnx_encoder.find_spec", lambda name: None)
    assert main(["score", checkpoint, str(episodes), "--backend", "onnx"]) == 2
    assert "pip install 'rewardlab[onnx]'" in capsys.readouterr().err


def test_plots_are_pictures_in_the_folders_of_their_episodes(checkpoint: str, episodes: Path, tmp_path: Path) -> None:
    assert main(["score", checkpoint, str(episodes), "--plot", str(tmp_path / "plots")]) == 0
    found = sorted(str(path.relative_to(tmp_path / "plots")) for path in (tmp_path / "plots").rglob("*.png"))
    assert found == [
        "failure/episode_000001.png",
        "failure/episode_000003.png",
        "success/episode_000000.png",
        "success/episode_000002.png",
    ]
    one = tmp_path / "one.png"
    episode = next(episodes.rglob("episode_000000.*"))
    assert main(["score", checkpoint, str(episode), "--plot", str(one)]) == 0
    assert one.read_bytes() == (tmp_path / "plots" / "success" / "episode_000000.png").read_bytes()
    with Image.open(one) as picture:
        assert picture.width > 1000


def test_a_bad_file_is_named_the_others_scored_and_the_status_is_1(
    checkpoint: str, tmp_path: Path, write_toy_episodes: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_toy_episodes(tmp_path / "data", count=2)
    bad = next(data.rglob("episode_000000.*"))
    bad.write_bytes(b"nothing")
    assert main(["score", checkpoint, str(data), str(tmp_path / "gone.png"), "--format", "json"]) == 1
    captured = capsys.readouterr()
    assert {Path(row["file"]).name for row in json.loads(captured.out)} == {"episode_000001.safetensors"}
    assert f"error: {bad}" in captured.err
    assert f"error: {tmp_path / 'gone.png'} does not exist" in captured.err
    assert main(["score", checkpoint, str(bad), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone", "{data}"], "gone: no such checkpoint"),
        (["{model}"], "nothing to score"),
        (["{model}", "{data}", "--plot", "one.png"], "4 episodes: name a directory"),
        (["{model}", "a.png", "--plot", "plots"], "there is none among the paths"),
        (["{model}", "--camera", "wrist=a.png"], "unknown camera 'wrist'"),
        (["{model}", "{data}", "--out", "a.png/scores.json"], "could not write a.png/scores.json"),
    ],
)
def test_mistakes_are_answered_in_words(
    checkpoint: str,
    episodes: Path,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (32, 32)).save("a.png")
    assert main(["score", *(text.format(model=checkpoint, data=episodes) for text in arguments)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--threshold", "1"], ["--threshold", "half"], ["--camera", "a.png"]])
def test_wrong_usage_says_what_is_expected(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["score", "model", "path", *option])
    assert f"found '{option[1]}', expected" in capsys.readouterr().err


def test_the_size_of_bare_weights_and_resizing_are_set_on_the_command_line(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(load_success_classifier(checkpoint).network.state_dict(), tmp_path / "bare.pt")
    Image.new("RGB", (16, 16)).save(tmp_path / "small.png")
    command = ["score", str(tmp_path / "bare.pt"), str(tmp_path / "small.png")]
    assert main(command) == 2
    assert "reward.model.image_size: not given" in capsys.readouterr().err
    size = ["--set", "image_size=[3,32,32]"]
    assert main([*command, *size]) == 1
    assert "are 16x16" in capsys.readouterr().err
    assert main([*command, *size, "--set", "resize=allow"]) == 0
    assert main([*command, "--set", "image_sise=[3,32,32]"]) == 2
    assert "image_size" in capsys.readouterr().err
