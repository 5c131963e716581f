"""What the README and the page that goes on from it print works as printed."""

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from rewardlab.cli import main
from rewardlab.data import read_episodes

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
STEP_BY_STEP = (ROOT / "docs" / "step_by_step.md").read_text()
OWN_ENVIRONMENT = (ROOT / "docs" / "your_own_environment.md").read_text()
SMALL = {
    "train-reward": ["reward.model.width=4", "reward.model.hidden_dim=8", "runner.max_epochs=1"],
    "run": ["runner.max_epochs=1", "env.train.num_envs=2", "env.eval.num_envs=2", "actor.global_batch_size=8"],
    "collect": ["--episodes", "12", "env.train.max_episode_steps=30"],
    "evaluate": ["--episodes", "4"],
}
FRAMES = (np.arange(120) // 6).tolist()  # 20 recordings of 6 frames, of which the last three show success


class Camera:
    """Stands for cv2.VideoCapture: frames of the size of the built-in task's."""

    def __init__(self, number: int) -> None:
        self.frame = np.full((64, 64, 3), number, np.uint8)

    def read(self) -> tuple[bool, np.ndarray]:
        return True, self.frame


def section(title: str) -> str:
    """Return the text of the README from a heading to the next one."""
    return re.split(r"^##+ ", README.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def commands(text: str) -> list[str]:
    return re.findall(r"^rewardlab ([^\n]+)$", text.replace("\\\n", ""), re.MULTILINE)


def run(command: str) -> None:
    """Run a command in small sizes."""
    words = shlex.split(command, comments=True)
    assert main([*words, *SMALL.get(words[0], [])]) == 0, command


def picture(number: int) -> npt.NDArray[np.uint8]:
    """Return a noisy picture with a square that is red in a success, else blue."""
    rng = np.random.default_rng(number)
    frame = rng.integers(0, 60, (24, 32, 3), dtype=np.uint8)
    row, column = rng.integers(0, 14, 2)
    frame[row : row + 10, column : column + 10, 0 if number % 6 >= 3 else 2] = 230
    return frame


def write_pictures() -> None:
    for number, recording in enumerate(FRAMES):
        directory = Path("my_pictures") / ("success" if number % 6 >= 3 else "failure")
        directory.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number)).save(directory / f"ep{recording}_{number:04d}.png")


def write_clip() -> None:
    av = pytest.importorskip("av")
    with av.open("clip.mp4", "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.height, stream.width, stream.pix_fmt = 24, 32, "yuv420p"
        for number in range(len(FRAMES)):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(number), format="rgb24")))
        container.mux(stream.encode())
    rows = [f"clip.mp4,{0.6 * n + 0.3:.1f},{0.6 * n + 0.6:.1f},success" for n in range(20)]
    Path("times.csv").write_text("\n".join(["video,start,end,label", *rows]))


def write_lerobot() -> None:
    """Write a LeRobotDataset by export; tests/data/imports has those of an independent writer."""
    write_pictures()
    assert main(["data", "import", "my_pictures", "episodes"]) == 0
    assert main(["data", "convert", "episodes", "my_lerobot_dataset", "--format", "lerobot"]) == 0


def test_everything_that_needs_nothing_else_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and Python in the order of a reader, in one directory; what both pages print, once."""
    monkeypatch.setattr(cv2, "VideoCapture", Camera)
    monkeypatch.chdir(tmp_path)
    own = [section(title) for title in ("From frames to a verdict", "A simulator", "Another RL library")]
    whole_lines = "\n".join([*own, STEP_BY_STEP]).replace("\\\n", "")
    printed = re.findall(r"^rewardlab ([^\n]+)$|```python\n(.+?)```", whole_lines, re.MULTILINE | re.DOTALL)

    printed = list(dict.fromkeys((" ".join(shlex.split(command, comments=True)), code) for command, code in printed))
    assert len(printed) >= 12
    for command, code in printed:
        if code:
            exec(code, {})
        else:
            assert main(command.split()) == 0, command
    assert len(read_episodes(tmp_path / "data/mine")) == 100


@pytest.mark.usefixtures("without_drawing")
@pytest.mark.parametrize(
    ("source", "write"), [("my_pictures", write_pictures), ("clip.mp4", write_clip), ("my_lerobot", write_lerobot)]
)
def test_what_one_has_becomes_a_classifier(
    source: str, write: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write()
    printed = commands(section("Pictures, videos, LeRobot datasets, other recordings"))
    imports = [command for command in printed if command.startswith("data import")]
    assert len(imports) == 3
    run(next(command for command in imports if f"import {source}" in command))
    for command in printed[len(imports) :]:
        run(command)
    assert Path("runs/mine/report.html").is_file()
    assert Path("mine_lerobot/meta/info.json").is_file()


@pytest.mark.usefixtures("without_drawing")
def test_an_environment_of_ones_own_gets_a_reward_and_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (code,) = re.findall(r"^```python\n(import gymnasium\nimport numpy.+?)^```", OWN_ENVIRONMENT, re.M | re.S)
    Path("my_file.py").write_text(code.replace("class Rail", "class MyEnv").replace("to_the_mark", "act"))
    (config,) = re.findall(r"`(env: .+?)`", section("Your own environment"))
    Path("my.yaml").write_text(config)
    monkeypatch.setitem(SMALL, "run", [*SMALL["run"], "algorithm.ppo.rollout_steps=4", "reward.min_recall=0"])

    for command in commands(section("Your own environment")):
        run(command)
    assert "success at end" in capsys.readouterr().out
    del sys.modules["my_file"]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 150


def test_every_folder_of_the_package_is_in_the_readme() -> None:
    (tree,) = re.findall(r"## The folders\n```\n(.+?)```", README, re.DOTALL)
    folders = {file.parent.name for file in (ROOT / "rewardlab").glob("*/__init__.py")}
    assert folders == set(re.findall(r"^  (\w+)/", tree, re.MULTILINE))


def test_no_figure_is_a_placeholder() -> None:
    assert not re.search(r"\| [A-Z]{4,} \|", README)


def test_make_targets_are_the_readmes() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
