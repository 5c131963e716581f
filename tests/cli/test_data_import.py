"""From pictures or a video of one's own to a report, as a user types it: three commands each."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from rewardlab.cli import main
from rewardlab.data import read_episodes

SMALL = ["reward.model.width=8", "reward.model.hidden_dim=16", "runner.max_epochs=1", "actor.optim.lr=0.003"]


def draw(rng: np.random.Generator, success: bool) -> npt.NDArray[np.uint8]:
    """Return a noisy picture with a square that is red in a success, else blue."""
    frame = rng.integers(0, 60, (24, 32, 3), dtype=np.uint8)
    row, column = rng.integers(0, 14, 2)
    frame[row : row + 10, column : column + 10, 0 if success else 2] = 230
    return frame


def train(data: Path, out: Path) -> int:
    return main(["train-reward", "--data", str(data), *SMALL, f"runner.logger.log_path={out}"])


@pytest.mark.usefixtures("without_drawing")
def test_two_folders_of_200_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for name in ("success", "failure"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for n in range(200):
            Image.fromarray(draw(rng, name == "success")).save(tmp_path / "pictures" / name / f"{n:04d}.png")
    data, run = tmp_path / "data", tmp_path / "run"
    assert main(["data", "import", str(tmp_path / "pictures"), str(data)]) == 0
    said = capsys.readouterr().out
    assert "folders of pictures" in said
    assert "grouped into 20 episodes by their order alone" in said
    assert "frames 400 success 200 failure 200 unsure 0" in " ".join(said.split())
    assert said.splitlines()[-1] == f"next: rewardlab train-reward --data {data}"
    assert train(data, run) == 0
    said = capsys.readouterr().out
    assert "the split is by episode" in said
    assert "by their order alone" in said
    assert (run / "report.html").exists()
    assert main(["score", str(run / "checkpoints/best_model"), str(tmp_path / "pictures/success")]) == 0
    assert "200 pictures" in capsys.readouterr().out


@pytest.mark.usefixtures("without_drawing")
def test_a_video_and_a_table_of_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    av = pytest.importorskip("av")
    rng = np.random.default_rng(0)
    with av.open(str(tmp_path / "video.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.height, stream.width, stream.pix_fmt = 24, 32, "yuv420p"
        for n in range(300):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(draw(rng, n % 50 >= 35), format="rgb24")))
        container.mux(stream.encode())
    rows = "".join(f"video.mp4,{start + 3.5},0:{start + 5:02d},success\n" for start in range(0, 30, 5))
    (tmp_path / "labels.csv").write_text(f"video,start,end,label\n{rows}")
    data, run = tmp_path / "data", tmp_path / "run"
    labels = ["--labels", str(tmp_path / "labels.csv"), "--unsure-seconds", "0.15", "--task", "stack"]
    assert main(["data", "import", str(tmp_path / "video.mp4"), str(data), *labels]) == 0
    said = capsys.readouterr().out
    assert "videos cut into 6 episodes" in said
    assert "unsure 34" in said
    assert train(data, run) == 0
    assert "left out 34 frames that are neither success nor failure (unsure)" in capsys.readouterr().out
    assert "stack" in (run / "report.html").read_text()
    model, scores = str(run / "checkpoints/best_model"), tmp_path / "scores.csv"
    assert (
        main(["score", model, str(tmp_path / "video.mp4"), "--every", "5", "--format", "csv", "--out", str(scores)])
        == 0
    )
    with scores.open() as file:
        found = list(csv.DictReader(file))
    assert [(row["frame"], row["second"], row["label"]) for row in found[:2]] == [("0", "0.0", ""), ("5", "0.5", "")]
    assert len(found) == 60
    # The very frames that the model was trained on.
    assert main(["score", model, str(data), str(tmp_path / "video.mp4"), "--plot", str(tmp_path / "plots")]) == 0
    said = capsys.readouterr().out
    assert "1 video and 6 episodes" in said
    assert "of 266 labelled frames judged rightly" in said
    assert (tmp_path / "plots" / "video.png").exists() or list((tmp_path / "plots").rglob("video.png"))


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    for name in ("success", "failure"):
        (tmp_path / "in" / name).mkdir(parents=True)
        for n in range(20):
            Image.new("RGB", (8, 8)).save(tmp_path / "in" / name / f"{n // 4}_{n}.png")
    code = (
        "import sys; from rewardlab.data.imports import pictures\n"
        "def stop(path): raise KeyboardInterrupt\n"
        "pictures.read_image = stop\n"
        "from rewardlab.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = ["data", "import", str(tmp_path / "in"), str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "the same command continues where it was" in done.stderr
    assert main(command) == 0
    assert len(read_episodes(tmp_path / "out")) == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--size", "big"], "found 'big', expected height x width such as 128x171, or original"),
        (["--every", "0"], "expected a whole number above 0"),
        (["--unsure-seconds", "-1"], "expected seconds such as 0.4"),
    ],
)
def test_mistakes_are_answered_in_words(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["data", "import", str(tmp_path), str(tmp_path / "out"), *arguments])
    assert words in capsys.readouterr().err
