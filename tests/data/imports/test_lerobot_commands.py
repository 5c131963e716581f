"""On the command line: from a LeRobotDataset to a report in two commands, and back."""

from pathlib import Path

import pytest
from lerobot_sets import write_v3

from rewardlab.cli import main
from rewardlab.data import read_episodes

SMALL = [
    "reward.model.width=8",
    "reward.model.hidden_dim=16",
    "reward.model.image_size=[3,32,32]",
    "runner.max_epochs=1",
]
EPISODES = [[0.0] * 12 + [1.0] * 6, [0.0] * 15] * 4


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_v3(tmp_path / "my set (ü)", EPISODES)


def test_a_lerobot_data_set_to_a_report_in_two_commands(data, tmp_path, capsys):
    out, run = tmp_path / "episodes", tmp_path / "run"
    assert main(["data", "import", str(data), str(out)]) == 0
    said = capsys.readouterr().out
    assert "next.reward judges the frame in its own row (--align same)" in said
    assert "within 4 frames of an onset of success: 16" in said
    assert main(["train-reward", "--data", str(out), *SMALL, f"runner.logger.log_path={run}"]) == 0
    assert "<html" in (run / "report.html").read_text()


def test_stopped_and_called_again_it_continues(data, tmp_path, capsys):
    out = tmp_path / "episodes"
    assert main(["data", "import", str(data), str(out)]) == 0
    gone = read_episodes(out)[3].path
    content = gone.read_bytes()
    gone.unlink()
    assert main(["data", "import", str(data), str(out)]) == 0
    assert "7 of the episodes were there already" in capsys.readouterr().out
    assert content in {episode.path.read_bytes() for episode in read_episodes(out)}


def test_without_labels_it_says_so(tmp_path, capsys):
    data = write_v3(tmp_path / "set", [[0.0] * 4] * 2)
    main(["data", "import", str(data), str(tmp_path / "episodes")])
    said = capsys.readouterr().out
    assert "NO LABELS: next.reward is 0 in the whole data set; all frames are unsure" in said
    assert "unsure 8" in said
    assert "next:" not in said


def test_options_without_a_meaning_are_refused(data, tmp_path, capsys):
    assert main(["data", "import", str(data), str(tmp_path / "episodes"), "--success", "good"]) != 0
    assert "--success has no meaning for LeRobotDataset" in capsys.readouterr().err
