"""`rewardlab compare`: classifiers on episodes that none of them was trained on, and runs over each other."""

import json
from pathlib import Path

import numpy as np
import pytest
from test_training_faults import command, write_episodes

from rewardlab.cli import main
from rewardlab.data import read_episodes
from rewardlab.figures.comparison import compare_models
from rewardlab.figures.metrics import FrameScores


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classifiers: `good` has learned from data/, `poor` hardly anything from other/."""
    top = tmp_path_factory.mktemp("runs")
    write_episodes(top / "data", 16)
    (top / "other").mkdir()
    for episode in read_episodes(top / "data")[8:]:
        episode.path.rename(top / "other" / episode.path.name)
    assert main(command(top / "data", top / "good", "runner.max_epochs=20", "actor.optim.lr=0.01")) == 0
    assert main(command(top / "other", top / "poor", "runner.max_epochs=1", "actor.optim.lr=1e-8")) == 0
    return top


def write_history(run: Path, *success: float) -> Path:
    (run / "checkpoints").mkdir(parents=True)
    rows = ({"iteration": k, "env_steps": 100 * k, "eval/success_at_end": s} for k, s in enumerate(success, 1))
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def test_only_episodes_that_no_model_was_trained_on_are_compared(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    data = ["--data", str(runs / "data"), "--data", str(runs / "other")]
    paths = [runs / "good", runs / "poor" / "checkpoints" / "best_model"]
    assert main(["compare", *map(str, paths), *data, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    held_out = 16 - 2 * 6  # a fifth of eight, rounded up, of each
    assert f"of {held_out} episodes" in said
    assert "left out 6 of 16 episodes that trained good: " in said
    assert "left out 6 of 16 episodes that trained poor: " in said
    assert "2 episodes served to choose the threshold of good, which favours it a little" in said
    assert "Recall" in said
    page = (out / "compare.html").read_text()
    assert page.count("data:image/png;base64,") >= 2
    assert "left out 6 of 16" in page
    assert (out / "roc.png").read_bytes().startswith(b"\x89PNG")


def test_what_was_seen_by_all_is_refused(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    used = json.loads((runs / "good" / "checkpoints" / "best_model" / "config.json").read_text())["used_episodes"]
    seen = tmp_path / "seen"
    seen.mkdir()
    for episode in read_episodes(runs / "data"):
        if episode.identity in used["train"].values():
            (seen / episode.path.name).write_bytes(episode.path.read_bytes())
    models = [str(runs / "good"), str(runs / "poor")]
    assert main(["compare", *models, "--data", str(seen), "--out", str(tmp_path / "out")]) == 2
    assert "all 6 episodes were used to train one of good, poor" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_difference_is_resampled_on_the_same_episodes() -> None:
    """Both models are wrong in the same hard episodes; one is wrong in a further frame of every episode."""
    rng = np.random.default_rng(0)
    episode, time = np.repeat(np.arange(40), 10), np.tile(np.arange(10), 40)
    label = time >= 5
    hard = rng.random(40) < 0.5
    one = label ^ (hard[episode] & (time < 8))
    other = one ^ (time == 9)
    scores = FrameScores(episode, time, label, np.where(one, 1.0, -1.0), tuple(map(str, range(40))))
    first, second = compare_models([(scores, one), (scores, other)])
    assert first.differences == {}
    difference = second.differences["accuracy"]
    assert difference.value == pytest.approx(-0.1)
    assert (difference.low, difference.high) == (pytest.approx(-0.1), pytest.approx(-0.1))  # the same in each episode
    assert difference.certain
    assert not difference.better
    spread = second.estimates["accuracy"]
    assert spread.low is not None
    assert spread.high is not None
    assert spread.high - spread.low > 0.15
    assert not second.differences["agreement"].certain


def test_runs_are_drawn_over_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write_history(tmp_path / "one", 0.1, 0.6, 0.95), write_history(tmp_path / "two", 0.1, 0.2)
    assert main(["compare", str(one), str(two / "checkpoints"), "--out", str(tmp_path / "out")]) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    table = {cells[0]: [cell.strip() for cell in cells[1:] if cell] for cells in lines}
    assert table["True success, evaluation"] == ["95.0 %", "20.0 %"]
    assert table["Steps to 50.0 % true success"] == ["200", "never"]
    assert table["Environment steps"] == ["300", "200"]
    assert (tmp_path / "out" / "compare.html").read_text().count("data:image/png;base64,") == 1
    assert (tmp_path / "out" / "true_success__evaluation.png").is_file()


def test_wrong_pairs_are_answered_in_words(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = write_history(tmp_path / "policy", 0.5)
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ([policy, runs / "good"], "is the run of a policy, but"),
        ([runs / "good", runs / "poor"], "--data: not given, but required"),
        ([policy], "nothing to compare"),
        ([policy, policy], "given twice"),
        ([policy, tmp_path / "nowhere"], "there is no such run"),
        ([policy, tmp_path / "empty"], "found nothing"),
        ([policy, runs], "has 2 runs, expected one of them: good, poor"),
    ):
        assert main(["compare", *map(str, arguments)]) == 2
        assert words in capsys.readouterr().err, arguments
