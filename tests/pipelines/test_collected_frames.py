"""data.collection.frames from the command line: collect, train, score and go on with data that has fewer pictures."""

import json
import re
from pathlib import Path

import pytest
from policy_runs import train

from rewardlab.cli import main
from rewardlab.data import read_episodes, verify

pytestmark = pytest.mark.usefixtures("without_drawing")
SMALL = ["reward.model.width=8", "reward.model.hidden_dim=16", "reward.model.image_size=[3,32,32]"]


def collect(place: Path, *more: str, episodes: int = 12) -> list[str]:
    settings = ["env.train.image_size=[3,32,32]", "env.train.num_envs=4", *more]
    assert main(["collect", "tabletop_pickcube", "--episodes", str(episodes), "--out", str(place), *settings]) == 0
    return [episode.digest for episode in read_episodes(place)]


def test_collect_train_and_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    collect(data, "data.collection.frames=every:5")
    episodes = read_episodes(data)
    rows = [episode.frame_rows().tolist() for episode in episodes]
    count = sum(map(len, rows))
    assert count < sum(episode.length for episode in episodes) / 2
    assert verify(data) == []

    where = [f"runner.logger.log_path={run}", "runner.max_epochs=1"]
    assert main(["train-reward", "--data", str(data), *SMALL, *where]) == 0
    checkpoint = run / "checkpoints" / "best_model"
    facts = (checkpoint / "README.md").read_text()
    told = re.findall(r"([\d,]+) frames \(", facts)  # of training and of validation
    assert sum(int(words.replace(",", "")) for words in told[:2]) == count

    capsys.readouterr()
    assert main(["score", str(checkpoint), str(data), "--format", "json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert [row["frame"] for row in scored] == [time for part in rows for time in part]
    assert main(["score", str(checkpoint), str(episodes[0].path), "--plot", str(tmp_path / "plot.png")]) == 0
    assert (tmp_path / "plot.png").is_file()


def test_the_same_seed_gives_the_same_files_and_another_choice_the_same_transitions(tmp_path: Path) -> None:
    kinds = {"a": "last:3", "b": "last:3", "c": "all"}
    digests = {
        name: collect(tmp_path / name, f"data.collection.frames={kind}", episodes=4) for name, kind in kinds.items()
    }
    assert digests["a"] == digests["b"] != digests["c"]
    origins = {name: [episode.origin for episode in read_episodes(tmp_path / name)] for name in kinds}
    assert [o.identity for o in origins["a"] if o] == [o.identity for o in origins["c"] if o]


def test_collection_while_a_policy_trains(tmp_path: Path) -> None:
    settings = ["data.collection.enabled=true", f"data.collection.save_dir={tmp_path / 'data'}", "runner.max_epochs=1"]
    train(tmp_path / "run", *settings, "data.collection.frames=last:2", "data.collection.watched_envs=3")
    rows = {tuple(episode.frame_rows().tolist()) for episode in read_episodes(tmp_path / "data")}
    assert rows == {(4, 5)}
